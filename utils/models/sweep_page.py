"""The part of docs/Models.md that sweep.py writes: verdicts and messages, no measured numbers."""
from outcome import listed
from sweep_networks import NETWORKS

INTRO = """## What PyTorch exports

This part compares what pdc trains with the PyTorch module, for {count} small architectures with random weights from
torchvision, transformers and `utils/models/sweep_networks/`. PyTorch 2.15 exports each with three settings:

- its default exporter
- the default exporter with `optimize=False`
- the older exporter (`dynamo=False`), in training mode if there is BatchNorm

For each file these are compared with the module: the parameters that are trained; the forward, with ONNX Runtime; the
loss, every gradient and one step of AdamW, with PyTorch in f64. Where the cell says *program*, the step of a program
in f32 is compared too.

The default exporter writes BatchNorm for inference only. With `optimize=False`, `--bn=batch` restores its training.
Without `optimize=False`, BatchNorm is folded into the convolution before it; the other comparisons then use PyTorch's
module in inference mode.

`utils/models/sweep.py` writes this part. It fails unless each case ends in one of these ways:

- **equal**: the module's own parameters are trained under their own names, and all numbers agree.
- **told**: some parameters are trained in another way, and a warning names them. Whatever has a counterpart in the
  module agrees with it. The kinds are:
  - *renamed*: held under another name, so the module cannot load them back by name
  - *merged*: several equal parameters are one
  - *apart*: one parameter is stored twice
  - *left out*: not in the file any more, or not trained
  - *in part*: some of their uses were computed in advance
  - *other*: what is trained in place of the last two; its gradient agrees with differences of ONNX Runtime's loss
- **refused**: with a reason; the messages are below.
- **not exported**: by PyTorch.
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
    lines = [INTRO.format(count=len(names)).rstrip(), "", "| architecture | parameters | " + " | ".join(exporters.values()) + " |",
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
    lines += listed("Warnings", "An example of each warning, its help, and the cases that have it.", warned)
    lines += listed("Refusals", "The first line of each refusal, its help, and the cases that have it.", refused)
    lines += listed("What PyTorch does not export", "In the words of PyTorch.", failed)
    return "\n".join(lines) + "\n"
