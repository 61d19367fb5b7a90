"""experts_capacity_of_data.py BUILD FOLDER: the capacities that --capacity=auto takes, against the places that PyTorch's router gives the tokens of
the same minibatches where every expert has room for all."""
import pathlib
import re
import subprocess
import sys

import numpy
import torch
from torch.nn import functional

sys.path.append(str(pathlib.Path(__file__).resolve().parents[3] / "utils" / "models"))
from experts import Experts
from networks import build, samples, with_loss

BATCHES, SAMPLES = 5, 4


def places(part, tokens):
    """Of all choices of the tokens that are dealt out together."""
    best = part.router(tokens).softmax(-1).topk(part.chosen, dim=-1)[1]
    taken, found = 0, []
    for k in range(part.chosen):
        choice = functional.one_hot(best[:, k], part.experts)
        found.append(((choice.cumsum(0) - 1 + taken) * choice).sum(-1))
        taken = taken + choice.sum(0, keepdim=True)
    return torch.cat(found)


def least(found, drop):
    return next(slots for slots in range(1, len(found) + 1) if (found >= slots).double().mean().item() <= drop)


def main():
    tools, work = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    for name in ("switch", "top2-experts"):
        network, module = build(name, "small", seed=3)
        folder = work / name
        folder.mkdir(parents=True, exist_ok=True)
        (tokens,), label = samples(network, SAMPLES)
        torch.onnx.export(with_loss(network, module).train(), (tokens, label), str(folder / "model.onnx"), opset_version=network.opset,
                          training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False, input_names=["input_ids", "label"],
                          output_names=["loss", *network.auxiliary])
        many = torch.randint(0, 40, (BATCHES * SAMPLES, tokens.shape[1]), generator=torch.Generator().manual_seed(1))
        numpy.save(folder / "input_ids.npy", many.numpy())
        layers = [part for part in module.modules() if isinstance(part, Experts)]
        seen = {part: [] for part in layers}
        for part in layers:
            part.capacity = part.chosen * tokens.numel()  # room for all
            part.register_forward_pre_hook(lambda part, inputs: seen[part].append(places(part, inputs[0])))
        with torch.no_grad():
            for batch in many.split(SAMPLES):
                module(batch, label)  # of any labels
        for drop in (0, 0.05, 0.2):
            expected = [least(torch.cat(seen[part]), drop) for part in layers]
            text = subprocess.run([tools / "bin/pdc", folder / "model.onnx", f"--batch={SAMPLES}", "--loss=output:loss", "--emit=ir",
                                   f"--capacity=auto,drop={drop},data={folder},batches={BATCHES}"], check=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True).stdout
            taken = [int(slots) for slots in re.findall(r" = dispatch .*capacity = (\d+)", text)]
            print(f"{name}, drop {drop}: {taken} slots, {'those' if taken == expected else f'NOT {expected}'} of PyTorch's places")


main()
