#!/usr/bin/python3
"""Writes digits.onnx: a residual CNN with BatchNorm for 8x8 images of handwritten digits, as PyTorch exports it.

Needs PyTorch 1.13 or 2.x with the TorchScript exporter (Debian 12: python3-torch, run with /usr/bin/python3).

    make_model.py [digits.onnx] [--seed=0]
"""
import argparse
import pathlib
import warnings

import torch
from torch import nn


class Residual(nn.Module):
    """Two 3x3 convolutions beside a shortcut, which is a 1x1 convolution where the shape changes."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


class Digits(nn.Module):
    """f32[N, 1, 8, 8], grey values from 0 to 1, to f32[N, 10], one logit per digit."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU())
        self.block1 = Residual(32, 32, stride=1)
        self.block2 = Residual(32, 64, stride=2)
        self.block3 = Residual(64, 64, stride=1)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(64, 10)

    def forward(self, x):
        x = self.block3(self.block2(self.block1(self.stem(x))))
        return self.fc(self.pool(x).flatten(1))


def export(model, path):
    """In training mode and with nothing folded, so that names, BatchNorm and ties survive. The batch stays symbolic."""
    warnings.filterwarnings("ignore", message=".*num_batches_tracked.*")
    torch.onnx.export(model.train(), torch.zeros(2, 1, 8, 8), path, opset_version=17,
                      training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False,
                      input_names=["input"], output_names=["logits"],
                      dynamic_axes={"input": {0: "batch"}, "logits": {0: "batch"}})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", nargs="?", default=pathlib.Path(__file__).with_name("digits.onnx"), type=pathlib.Path)
    parser.add_argument("--seed", default=0, type=int, help="of the initial weights")
    arguments = parser.parse_args()
    torch.manual_seed(arguments.seed)
    model = Digits()
    export(model, str(arguments.output))
    print(f"{arguments.output}: {sum(p.numel() for p in model.parameters()):,} parameters")


if __name__ == "__main__":
    main()
