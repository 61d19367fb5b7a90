"""experts_by_index.py BUILD FOLDER: layers of experts whose masks pdc knows, and the same with slots filled from the last one on,
whose masks it does not know. Both are evaluated with gradients by the interpreter and in generated code."""
import pathlib
import subprocess
import sys

import numpy
import torch

sys.path.append(str(pathlib.Path(__file__).resolve().parents[3] / "utils" / "models"))
from compare import error, run, tensors
from experts import Experts
from networks import build, samples, with_loss

ALLOWED = 1e-6


def exported(name, folder, from_last):
    network, module = build(name, "small", seed=3)
    for part in module.modules():
        if isinstance(part, Experts):
            part.from_last = from_last
    inputs, label = samples(network, 4)
    folder.mkdir(parents=True, exist_ok=True)
    torch.onnx.export(with_loss(network, module).train(), (*inputs, label), str(folder / "model.onnx"), opset_version=network.opset,
                      training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False, input_names=["input_ids", "label"], output_names=["loss"])
    for entry, values in (("input_ids", inputs[0]), ("label", label)):
        numpy.save(folder / f"{entry}.npy", values.numpy())


def evaluated(tools, folder, engine):
    out = folder / engine
    run([tools / "bin/pdc-eval", folder / "model.onnx", "--inputs", folder, "--outputs", out, "--gradients", f"--engine={engine}", "--batch=4",
         "--loss=output:loss"])
    return {**tensors(out), "loss": numpy.load(out / "loss.npy")}


def operations(tools, folder):
    text = subprocess.run([tools / "bin/pdc", folder / "model.onnx", "--batch=4", "--loss=output:loss", "--profile=analytic", "--emit=ir"],
                          check=True, stdout=subprocess.PIPE, text=True).stdout
    return [sum(f" = {op} " in line for line in text.splitlines()) for op in ("dispatch", "combine", "matmul")]


def main():
    tools, work = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    for name in ("switch", "top2-experts"):
        moved, multiplied = work / f"{name}.moved", work / f"{name}.multiplied"
        exported(name, moved, False)
        exported(name, multiplied, True)
        print(f"{name}: dispatch, combine, matmul: {operations(tools, moved)}; {operations(tools, multiplied)}")
        for engine in ("interpreter", "cpu"):
            first, second = evaluated(tools, moved, engine), evaluated(tools, multiplied, engine)
            assert first.keys() == second.keys()
            worst = max(error(first[key], second[key]) for key in first)
            same = "the same loss" if first["loss"] == second["loss"] else "losses that are near"
            print(f"{name}, {engine}: {same}, {len(first) - 1} gradients differ by {'at most' if worst <= ALLOWED else 'MORE than'} {ALLOWED} of their norm")


main()
