"""The part of docs/Models.md that sweep.py writes: verdicts and messages, no measured numbers."""
from outcome import listed
from sweep_case import DIFFERENCES, FORWARD, GRADIENT, PROGRAM
from sweep_networks import NETWORKS

INTRO = """## What PyTorch exports

{count} architectures come from torchvision, transformers and `utils/models/sweep_networks/`. They are small and have
random weights. PyTorch 2.15 exports each with three settings: its exporter as it is, the same with `optimize=False`,
and the older one (`dynamo=False`, in training mode where there is BatchNorm).

`utils/models/sweep.py` compares what pdc makes of each file with the module: which parameters train; the forward with
ONNX Runtime's; in f64 the loss, every gradient and one step of AdamW with PyTorch's. Where a cell says *program*, a
generated program has taken the same step in f32. The script fails unless each case is one of these:

- **equal**: the module's own parameters train under their own names, and all numbers agree;
- **told**: some train in another way, and a warning names them. Whatever has a counterpart in the module agrees with
  it.
  - *renamed*: held under another name, so that the module cannot load it back by name;
  - *merged*: several equal parameters are one; *apart*: one is stored twice;
  - *left out*: not in the file any more, or not trained; *in part*: some uses were computed in advance;
  - *other*: trains in place of the last two; its gradient agrees with differences of ONNX Runtime's loss;
- **refused**: with a reason, listed below;
- **not exported**: by PyTorch.

The newer exporter writes BatchNorm for inference only. With `optimize=False`, `--bn=batch` brings its training back.
By default it is folded into the convolution before it; then PyTorch's module in inference mode is the reference.

Tolerances, relative to the norm of the right value: forward {forward}, or four times what ONNX Runtime's own
optimisations change; loss, gradients {gradient}; updates ten times that; differences {differences} and four times their
own doubt; steps of programs {program} beyond the rounding of gradients that vanish.
"""


def cell(row):
    verdict = row["verdict"]
    if verdict == "told":
        verdict += ": " + ", ".join(f"{count} {kind}" for kind, count in row["differences"].items())
    if isinstance(row.get("forward"), str):
        verdict += ", forward not compared"
    if row.get("program") and row["verdict"] in ("equal", "told"):
        verdict += ", program"
    return verdict


def document(rows, exporters):
    by_name = {}
    for row in rows:
        by_name.setdefault(row["name"], {})[row["exporter"]] = row
    names = [name for name in NETWORKS if name in by_name]
    lines = [INTRO.format(count=len(names), forward=FORWARD, gradient=GRADIENT, differences=DIFFERENCES, program=PROGRAM).rstrip(), "", "| architecture | parameters | " + " | ".join(exporters.values()) + " |",
             "|---|--:|" + "---|" * len(exporters)]
    for name in names:
        own = by_name[name]
        count = next((str(row["parameters"]) for row in own.values() if "parameters" in row), "")
        cells = [cell(own[exporter]) if exporter in own else "" for exporter in exporters]
        lines.append(f"| {NETWORKS[name][0]} | {count} | " + " | ".join(cells) + " |")
    where = {"default": "", "unoptimised": ", optimize=False", "older": ", dynamo=False"}
    cases = [(f"{row['name']}{where[row['exporter']]}", row) for name in names for row in by_name[name].values()]
    warned = [("\n".join([message, *helps]), case) for case, row in cases if row["verdict"] == "told" for message, helps in row["warnings"]]
    refused = [("\n".join([message, *helps]), case) for case, row in cases for message, helps in row.get("errors", [])[:1]]
    failed = [(row["reason"], case) for case, row in cases if row["verdict"] == "not exported"]
    lines += listed("Warnings", "An example of each kind of warning, the help that ends it, and the cases that have it.", warned)
    lines += listed("Refusals", "The first line of each kind of refusal, the help that ends it, and the cases that have it.", refused)
    lines += listed("What PyTorch does not export", "In the words of PyTorch.", failed)
    return "\n".join(lines) + "\n"
