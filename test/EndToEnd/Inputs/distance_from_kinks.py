"""Prints how near an input of a ReLU6 comes to 0 or 6 in the first step, and the two largest inputs of a pooling to each other,
over the standard deviation there: as a network starts, and with the weights that compare.py trains, which are f32. Behind a
hundred layers, in Inception, roundings have grown to 1e-3."""
import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "utils" / "models"))

import torch
from torch import nn

from kinks import gap
from networks import build
from reference import samples_of, settled_weights

OPTIONS = argparse.Namespace(size="small", batch=4, microbatches=2, steps=1, seed=0, inference=False)


def to_kink(layer, inputs):
    return torch.minimum(inputs.abs(), (inputs - 6).abs()).min() / inputs.std()


def to_zero(layer, output):
    return output.abs().min() / output.std()


def of_largest(layer, inputs):
    window = layer.kernel_size, layer.dilation, layer.padding, layer.stride
    return min(gap(inputs[:, channel:channel + 1], window) for channel in range(inputs.shape[1]))


def least(name, kind, measure, weights):
    network, module = build(name, OPTIONS.size, OPTIONS.seed, dropout=False, weights=weights)
    found = []
    for part in module.double().modules():
        if isinstance(part, kind) and measure is to_zero:
            part.register_forward_hook(lambda layer, inputs, output: found.append(measure(layer, output).item()))
        elif isinstance(part, kind):
            part.register_forward_pre_hook(lambda layer, inputs: found.append(measure(layer, inputs[0]).item()))
    with torch.no_grad():
        for minibatch in samples_of(network, OPTIONS)[0][0].double().split(OPTIONS.batch):
            module(minibatch)
    return min(found)


CASES = {"mobilenet-v2": (nn.ReLU6, to_kink, 1e-4), "resnet18": (nn.MaxPool2d, of_largest, 1e-5),
         "inception-v3": (nn.BatchNorm2d, to_zero, 1e-4)}
for name in sys.argv[1:]:
    kind, measure, limit = CASES[name]
    for what, weights in (("as it starts", None), ("settled", settled_weights(name, OPTIONS))):
        print(f"{name} {what}: {'near' if least(name, kind, measure, weights) < limit else 'far'}")
