"""Prints how near an input of a ReLU6 comes to 0 or 6 in the first step, over the standard deviation of that layer's inputs:
as a network starts, and with the biases that compare.py trains."""
import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "utils" / "models"))

import torch
from torch import nn

from networks import build
from reference import samples_of, settled_weights

OPTIONS = argparse.Namespace(size="small", batch=4, microbatches=2, steps=1, seed=0)


def distance(weights):
    network, module = build("mobilenet-v2", OPTIONS.size, OPTIONS.seed, dropout=False, weights=weights)
    found = []

    def look(_, inputs):
        distances = torch.minimum(inputs[0].abs(), (inputs[0] - 6).abs())
        found.append((distances.min() / inputs[0].std()).item())
    for part in module.double().modules():
        if isinstance(part, nn.ReLU6):
            part.register_forward_pre_hook(look)
    for minibatch in samples_of(network, OPTIONS)[0][0].double().split(OPTIONS.batch):
        module(minibatch)
    return min(found)


for what, weights in (("as it starts", None), ("settled", settled_weights("mobilenet-v2", OPTIONS))):
    print(f"{what}: {'near' if distance(weights) < 1e-4 else 'far'}")
