#!/usr/bin/python3
"""Exports a network of networks.py to ONNX, as a user of PyTorch would.

    export.py NAME OUT.onnx [--opset=14] [--batch=N] [--seed=0] [--inference] [--loss]

In training mode with nothing folded; the batch is symbolic unless --batch fixes it. --loss puts the cross-entropy into
the model, whose inputs are then `input` and `label` and whose output is `loss`.
"""
import argparse
import warnings

import torch
from torch import nn

from networks import NETWORKS, build


class WithLoss(nn.Module):
    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, x, label):
        return nn.functional.cross_entropy(self.network(x), label)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=sorted(NETWORKS))
    parser.add_argument("output")
    parser.add_argument("--opset", type=int, default=14)
    parser.add_argument("--batch", type=int, help="fixed instead of symbolic")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--inference", action="store_true", help="in inference mode, with constants folded")
    parser.add_argument("--loss", action="store_true", help="with the loss inside")
    arguments = parser.parse_args()

    network, shape, classes = build(arguments.name, arguments.seed)
    batch = arguments.batch or 2
    inputs = (torch.zeros(batch, *shape),)
    names, outputs = ["input"], ["logits"]
    if arguments.loss:
        network, inputs = WithLoss(network), (*inputs, torch.zeros(batch, dtype=torch.int64))
        names, outputs = ["input", "label"], ["loss"]
    symbolic = {} if arguments.batch else {name: {0: "batch"} for name in names + outputs if name != "loss"}
    mode = torch.onnx.TrainingMode.EVAL if arguments.inference else torch.onnx.TrainingMode.TRAINING
    warnings.filterwarnings("ignore", message=".*num_batches_tracked.*")
    torch.onnx.export(network.train(not arguments.inference), inputs, arguments.output, opset_version=arguments.opset,
                      training=mode, do_constant_folding=arguments.inference, input_names=names, output_names=outputs,
                      dynamic_axes=symbolic)


if __name__ == "__main__":
    main()
