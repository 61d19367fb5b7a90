#!/usr/bin/python3
"""Measures how pdc takes the networks of networks.py, and writes docs/Models.md.

    measure.py [NAME…] [--quick] [--work=DIR] [--json FILE] [--docs FILE] [--build=build/release]

Each network, full size, is exported and compiled for 8 devices (costs estimated, stages written): CPU time, and peak
memory less the model's weights. Then the small one is trained as compare.py does, in 1 and 3 stages, and compared with
PyTorch. FILE of --json receives a list of {"name", "value", "unit", "goal", "holds"}. --work keeps the exported models and
what was measured, and only does what is missing there. --quick: two networks, nothing is compared. Where networks are named, FILE of --docs
keeps what it says of the others.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

from compare import flags_of
from measured import part_of, with_part
from networks import NETWORKS, PUBLISHED

ROOT = pathlib.Path(__file__).resolve().parents[2]
TITLES = {"alexnet": "AlexNet", "vgg16": "VGG-16", "resnet18": "ResNet-18", "resnet50": "ResNet-50",
          "inception-v3": "Inception-v3", "mobilenet-v2": "MobileNetV2", "densenet121": "DenseNet-121",
          "squeezenet": "SqueezeNet 1.1", "vit-b-16": "ViT-B/16", "bert-base": "BERT-base", "gpt2": "GPT-2",
          "llama": "Llama-like decoder, 0.67 · 10⁹ parameters", "awd-lm": "AWD-LM-like LSTM language model",
          "gnmt8": "GNMT-8", "gnmt16": "GNMT-16", "s2vt": "S2VT", "switch": "Switch experts",
          "top2-experts": "Top-2 experts", "gshard": "GShard experts in groups", "st-moe": "ST-MoE experts",
          "deepseek-moe": "DeepSeekMoE experts"}
MIXTURES = ("switch", "top2-experts", "gshard", "st-moe", "deepseek-moe")
PYTHON = "/usr/bin/python3"
# Of the same page, by other scripts.
OTHER_PARTS = {"sweep": "utils/models/sweep.py", "wheels": "utils/models/wheels.py"}


def export_flags(name):
    """Two outputs want the loss inside; the capacity of experts is that of a fixed number of samples."""
    network = NETWORKS[name]["full"]
    return (["--loss"] if network.auxiliary else []) + (["--batch=4"] if name in MIXTURES else [])


def batch_of(name):
    return 4 if name in MIXTURES else {"llama": 16}.get(name, 32)  # 32 of Llama take more than 8 devices have


def compile_flags(name):
    flags = [flag if not flag.startswith("--freeze") else "'" + flag + "'" for flag in flags_of(name, "small")]
    return [f"--batch={batch_of(name)}", *flags, "--devices=8"]


class Measurement:
    def __init__(self, name, options, work):
        self.name, self.options, self.work = name, options, work
        self.kept = work / f"{name}.measured.json"
        self.row = json.loads(self.kept.read_text()) if self.kept.exists() else {"network": name}

    def run(self):
        if not self.row.get("compiled") and not self.options.collect:
            self.export_and_compile()
        if not self.options.quick and not self.options.collect and not self.row.get("agrees"):
            self.compare()
        self.kept.write_text(json.dumps(self.row))
        return self.row

    def export_and_compile(self):
        folder = self.work / self.name  # its own: weights over 2 GiB lie beside the model, a file for each
        model = folder / f"{self.name}.onnx"
        if not model.exists():
            folder.mkdir(exist_ok=True)
            self.command([PYTHON, ROOT / "utils/models/export.py", self.name, model, "--size=full", *export_flags(self.name)])
        self.row["weights_mib"] = sum(path.stat().st_size for path in folder.iterdir()) / 2 ** 20
        self.compile(model)
        if not self.options.keep:
            shutil.rmtree(folder)

    def command(self, words, **more):
        return subprocess.run([str(word) for word in words], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env={**os.environ, "OMP_NUM_THREADS": "1"}, **more)

    def compile(self, model):
        flags = [flag.replace("'", "") for flag in compile_flags(self.name)]
        out = self.work / f"{self.name}.out"
        result = self.command(["/usr/bin/time", "-f", "measured %U %S %M", self.options.build / "bin/pdc", "--target=cpu", model, "-o", out,
                               "--profile=analytic", *flags])
        found = re.search(r"measured ([0-9.]+) ([0-9.]+) ([0-9]+)", result.stdout)
        self.row["compiled"] = result.returncode == 0
        if result.returncode:
            print(f"{self.name}: {result.stdout[-1500:]}", flush=True)
            return
        self.row["cpu_s"] = float(found[1]) + float(found[2])
        self.row["memory_mib"] = max(0.0, int(found[3]) / 1024 - self.row["weights_mib"])
        stages = json.loads((out / "plan.json").read_text())["stages"]
        self.row["groups"] = sum(len(stage["nodes"]) for stage in stages)
        self.row["stages"] = "-".join(str(stage["replicas"]) for stage in stages)
        self.command(["rm", "-r", out])

    def compare(self):
        result = self.command([PYTHON, ROOT / "utils/models/compare.py", self.name, f"--build={self.options.build}"])
        ratios = [float(ratio) for ratio in re.findall(r"worst ([0-9.]+),", result.stdout)]
        counts = re.search(r": (\d+) gradients", result.stdout)
        self.row.update(agrees=result.returncode == 0, ratio=max(ratios, default=None),
                        gradients=int(counts[1]) if counts else 0)
        if result.returncode:
            print(result.stdout, flush=True)


def records(rows):
    """As the other scripts of utils/ that measure write them."""
    def record(name, value, unit, goal, holds):
        return {"name": name, "value": value, "unit": unit, "goal": goal, "holds": holds}
    found = []
    for row in rows:
        title = TITLES[row["network"]]
        if row.get("compiled"):
            found.append(record(f"{title}, full size, 8 devices: CPU time", row["cpu_s"], "s", "< 10", row["cpu_s"] < 10))
            found.append(record(f"{title}, full size: memory beyond the weights", row["memory_mib"], "MiB", "< 2048",
                                row["memory_mib"] < 2048))
        if row.get("ratio") is not None:
            found.append(record(f"{title}, small: error of losses and gradients over that of PyTorch in f32", row["ratio"],
                                "", "<= 3", row["agrees"]))
    return found


def line_of(row):
    measured = (f"{row['weights_mib']:.0f} | {row['cpu_s']:.2f} | {row['memory_mib']:.0f} | {row['groups']} | {row['stages']}"
                if row.get("compiled") else "not measured | | | |")
    ratio = "not run" if row.get("ratio") is None else f"{row['ratio']:.2f}" + ("" if row["agrees"] else " (fails)")
    return f"| {TITLES[row['network']]} | {measured} | {ratio} | {row.get('gradients', '')} |"


def lines_with(rows, before):
    """{network: its line}: those of `before`, a page, where nothing else is known, all in their order."""
    titles, lines = {title: name for name, title in TITLES.items()}, {row["network"]: line_of(row) for row in rows}
    for line in before.splitlines():
        if (name := titles.get(line.split("|")[1].strip() if line.startswith("| ") else "")) and name not in lines:
            lines[name] = line
    return {name: lines[name] for name in PUBLISHED if name in lines}


def document(rows, before=""):
    lines = ["# Models", "",
             "This page lists networks that pdc trains, the commands that compile each of them, and what was measured. The networks",
             "are in `utils/models/`, from torchvision or written to be read there. Their weights are random; nothing is downloaded.", "",
             "- To compile one of them, copy its [commands](#commands).",
             "- To train its small version and compare it with PyTorch, run `utils/models/compare.py NAME`.",
             "- `utils/models/export.py --help` lists other sizes, opsets, and inference mode, which",
             "  [the importer](../include/pdc/Import/OnnxImport.h) repairs as far as it can.", "",
             "`utils/models/measure.py` writes this page; other scripts write the parts after the commands. Do not edit it.", "",
             "The columns are:", "",
             "| column | meaning |", "|---|---|",
             "| weights | size of the exported model, full size, in training mode |",
             "| CPU, memory | CPU time of `pdc`, and its peak memory less the weights, from the file to the written stages, for 8 devices with "
             "estimated costs. Minibatches of 32 (experts: 4, Llama: 16). The weights are mapped; the memory is 0 if not all of them are in "
             "memory at once |",
             "| groups | fusion groups; cuts lie between them |",
             "| plan | replicas of each stage |",
             "| error | norm-wise error against PyTorch in f64, divided by the error of PyTorch in f32, at most 3. The largest over the losses of "
             "10 steps and every gradient of the first step, for the small version in 1 and 3 stages, 1f1b-flush. PyTorch's error is the largest "
             "of three runs that differ in rounding, at least 1e-6 |",
             "| gradients | number of gradients compared |", "",
             "| network | weights MiB | CPU s | memory MiB | groups | plan | error | gradients |", "|---|--:|--:|--:|--:|---|--:|--:|"]
    known = lines_with(rows, before)
    lines += known.values()
    lines += ["", "## Commands", "", "`utils/models/measure.py` runs each of these commands. They need PyTorch and much memory, so no test does.", ""]
    for name in known:
        lines += [f"### {TITLES[name]}", "", "    " + " ".join(["utils/models/export.py", name, f"{name}.onnx", "--size=full",
                                                               *export_flags(name)]),
                  "    " + " ".join(["pdc", f"{name}.onnx", "-o", name, *compile_flags(name)]), ""]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--work", type=pathlib.Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--collect", action="store_true", help="measure nothing, write what --work has")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--docs", type=pathlib.Path)
    options = parser.parse_args()
    options.keep = options.work is not None
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        work = options.work or pathlib.Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        for name in options.names or (["resnet18", "squeezenet"] if options.quick else PUBLISHED):
            rows.append(Measurement(name, options, work).run())
            for row in records(rows[-1:]):
                print(f"{row['name']:<90} {row['value']:>9.2f} {row['unit']:<4} {row['goal']:<7} {'yes' if row['holds'] else 'NO'}",
                      flush=True)
    if options.docs:
        before = options.docs.read_text() if options.docs.exists() else ""
        page = document(rows, before if options.names else "")
        for part, script in sorted(OTHER_PARTS.items(), key=lambda other: before.find(f"<!-- {other[0]}:")):
            if text := part_of(before, part, script):
                page = with_part(page, part, script, text)
        options.docs.write_text(page)
    if options.json:
        options.json.write_text(json.dumps(records(rows), indent=1) + "\n")
    sys.exit(not all(row.get("compiled") and row.get("agrees", True) for row in rows))


if __name__ == "__main__":
    main()
