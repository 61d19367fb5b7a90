"""experts_capacity.py BUILD FOLDER: --capacity against models that PyTorch exports with that capacity: losses, gradients and terms of both,
evaluated by the interpreter. Fewer slots drop tokens, more slots drop none."""
import math
import pathlib
import sys

import numpy
import torch

sys.path.append(str(pathlib.Path(__file__).resolve().parents[3] / "utils" / "models"))
from compare import error, run, tensors
from networks import build, samples, with_loss

ALLOWED = 1e-6


def exported(name, folder, factor):
    network, module = build(name, "small", seed=3)
    inputs, label = samples(network, 4)
    tokens = label.numel()
    slots = set()
    for part in module.modules():
        if hasattr(part, "capacity"):
            if factor:
                chosen = getattr(part, "chosen", 2)
                part.capacity = max(1, math.ceil(factor * chosen * tokens / getattr(part, "groups", 1) / part.experts - 1e-9))
            slots.add(part.capacity)
    folder.mkdir(parents=True, exist_ok=True)
    torch.onnx.export(with_loss(network, module).train(), (*inputs, label), str(folder / "model.onnx"), opset_version=network.opset,
                      training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False, input_names=["input_ids", "label"],
                      output_names=["loss", *network.auxiliary])
    for entry, values in (("input_ids", inputs[0]), ("label", label)):
        numpy.save(folder / f"{entry}.npy", values.numpy())
    return slots


def evaluated(tools, folder, engine, *flags):
    out = folder / (engine + "".join(flags))
    run([tools / "bin/pdc-eval", folder / "model.onnx", "--inputs", folder, "--outputs", out, "--gradients", f"--engine={engine}", "--batch=4",
         "--loss=output:loss", *flags])
    return {**tensors(out), "loss": numpy.load(out / "loss.npy")}


def main():
    tools, work = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    for name in ("switch", "top2-experts", "gshard", "st-moe", "deepseek-moe"):
        before = work / f"{name}.file"
        exported(name, before, None)
        unchanged = evaluated(tools, before, "interpreter")
        for factor in (0.5, 0.8, 2):
            other = work / f"{name}.{factor}"
            slots = exported(name, other, factor)
            expected = evaluated(tools, other, "interpreter")
            for engine in ("interpreter",) if factor != 0.5 else ("interpreter", "cpu"):
                actual = evaluated(tools, before, engine, f"--capacity={factor}")
                assert actual.keys() == expected.keys(), actual.keys() ^ expected.keys()
                worst = max(error(actual[key], expected[key]) for key in expected)
                moved = max(error(unchanged[key], expected[key]) for key in expected)
                print(f"{name}, {slots} slots, {engine}: {len(expected) - 1} gradients {'within' if worst <= ALLOWED else 'NOT within'} {ALLOWED} "
                      f"of PyTorch's export{'' if moved > 1e-3 or factor == 2 else ', but the capacity does NOTHING'}")


main()
