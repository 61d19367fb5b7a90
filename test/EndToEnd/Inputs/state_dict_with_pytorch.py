"""state_dict_with_pytorch.py EXAMPLE.py EXPORTER --lr=LR: runs an example of examples/pytorch, in this folder, and
compares the state_dict that it ends with to PyTorch's own 5 steps from the same weights, on the same minibatches.

As in docs/Models.md: how every tensor has changed may differ from PyTorch in f64, norm-wise, by 3 times what PyTorch in
f32 does, the largest of three runs that differ in rounding (at least 1e-6). --optimize: today's exporter without
optimize=False. --refused: the example must end with an error of pdc-run's instead, before anything is trained.
"""
import argparse
import copy
import pathlib
import runpy
import subprocess
import sys

import numpy
import torch

FLOOR, ALLOWED, STEPS, BATCH = 1e-6, 3, 5, 8

parser = argparse.ArgumentParser()
parser.add_argument("example")
parser.add_argument("exporter")
parser.add_argument("--lr", type=float, required=True)
parser.add_argument("--negative", action="store_true", help="as if PyTorch had another learning rate")
parser.add_argument("--optimize", action="store_true")
parser.add_argument("--refused", action="store_true")
options = parser.parse_args()
torch.manual_seed(0)
torch.set_num_threads(1)
exported = {}


def export(model, *inputs, **more):
    """What torch.onnx.export does, and a copy of the module as it is then: an export in training mode moves running
    statistics."""
    if options.optimize:
        more.pop("optimize")
    torch_export(model, *inputs, **more)
    exported["module"] = copy.deepcopy(model)


torch_export, torch.onnx.export = torch.onnx.export, export
sys.argv = [options.example, options.exporter]
try:
    model = runpy.run_path(options.example)["model"]
except subprocess.CalledProcessError as error:
    if not options.refused:
        raise
    sys.exit(print("refused:", error.cmd.split()[0]))
if options.refused:
    sys.exit("FAILED: it was not refused")


def trained(dtype, seed=None):
    """PyTorch's own steps. With a seed the samples of each minibatch have another order, which changes roundings."""
    module = copy.deepcopy(exported["module"]).to(dtype)
    lr = options.lr * (1.01 if options.negative else 1)
    optimizer = torch.optim.SGD(module.parameters(), lr=lr, momentum=0.9)
    generator = torch.Generator().manual_seed(seed or 0)
    for step in range(STEPS):
        order = torch.randperm(BATCH, generator=generator) if seed else torch.arange(BATCH)
        x, y = inputs[step * BATCH:][order], labels[step * BATCH:][order]
        logits = module(x.to(dtype) if x.is_floating_point() else x)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, -2), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return {name: tensor.to(torch.float64) for name, tensor in module.state_dict().items()}


labels = torch.from_numpy(numpy.load("data/label.npy"))
inputs = torch.from_numpy(numpy.load(next(p for p in pathlib.Path("data").glob("*.npy") if p.stem != "label")))
before = {name: tensor.to(torch.float64) for name, tensor in exported["module"].state_dict().items()}
exact, singles = trained(torch.float64), [trained(torch.float32, seed) for seed in (None, 1, 2)]
worst, where, compared, failed = 0.0, "", 0, []
for name, tensor in model.state_dict().items():
    if name.endswith("num_batches_tracked"):
        continue  # the exporter leaves it out, and load_state_dict keeps the module's
    change = exact[name] - before[name]
    norm = change.norm().item()
    if norm == 0:
        failed.append(f"{name}: PyTorch does not train it")
        continue
    error = lambda other: ((other[name] - exact[name]).norm() / norm).item()
    pdc = ((tensor.to(torch.float64) - exact[name]).norm() / norm).item()
    ratio = pdc / max(FLOOR, *(error(single) for single in singles))
    compared += 1
    if not ratio <= ALLOWED:
        failed.append(f"{name}: pdc {pdc:.2e}, PyTorch in f32 {max(error(single) for single in singles):.2e}")
    if not ratio <= worst:
        worst, where = ratio, name
for text in failed[:5]:
    print("  " + text)
print(f"{compared} tensors of the state_dict {'NOT ' if failed else ''}within {ALLOWED} times the error of PyTorch "
      f"in f32 (worst {worst:.2f}, {where})")
sys.exit(bool(failed))
