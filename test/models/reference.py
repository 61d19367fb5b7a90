#!/usr/bin/python3
"""Trains a network of networks.py with PyTorch, in f64 and in f32, from the weights that export.py writes.

    reference.py NAME DIR [--batch=2] [--microbatches=2] [--steps=10] [--lr=0.01] [--momentum=0] [--seed=0]

An update averages the gradients of the microbatches, each of which has its own BatchNorm statistics: what a flushing
schedule computes. Samples are taken in order (pdc-run --shuffle=off). Writes into DIR:

    data/{input,label}.npy           steps x microbatches x batch samples
    {f64,f32}/losses.npy             one per step: the mean over its microbatches
    {f64,f32}/gradients/NAME.npy     of the first step, one per parameter, by its ONNX name
    {f64,f32}/weights/NAME.npy       after the last step, running statistics included
"""
import argparse
import pathlib

import numpy
import torch
from torch import nn

from networks import NETWORKS, build


def train(arguments, dtype, inputs, labels, folder):
    network, _, _ = build(arguments.name, arguments.seed)
    network.to(dtype)
    optimizer = torch.optim.SGD(network.parameters(), lr=arguments.lr, momentum=arguments.momentum)
    losses = []
    samples = iter(zip(inputs.to(dtype).split(arguments.batch), labels.split(arguments.batch)))
    for step in range(arguments.steps):
        optimizer.zero_grad()
        total = 0.0
        for _ in range(arguments.microbatches):
            x, label = next(samples)
            loss = nn.functional.cross_entropy(network(x), label) / arguments.microbatches
            loss.backward()
            total += loss.item()
        losses.append(total)
        if step == 0:
            save(folder / "gradients", {name: value.grad for name, value in network.named_parameters()})
        optimizer.step()
    save(folder / "weights", {k: v for k, v in network.state_dict().items() if not k.endswith("num_batches_tracked")})
    numpy.save(folder / "losses.npy", numpy.array(losses))


def save(folder, tensors):
    folder.mkdir(parents=True, exist_ok=True)
    for name, tensor in tensors.items():
        numpy.save(folder / f"{name}.npy", tensor.detach().numpy())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=sorted(NETWORKS))
    parser.add_argument("dir", type=pathlib.Path)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--microbatches", type=int, default=2)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--momentum", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()

    _, shape, classes = build(arguments.name)
    generator = torch.Generator().manual_seed(arguments.seed + 1)
    count = arguments.batch * arguments.microbatches * arguments.steps
    inputs = torch.randn(count, *shape, generator=generator)
    labels = torch.randint(classes, (count,), generator=generator)
    save(arguments.dir / "data", {"input": inputs, "label": labels})
    for dtype, name in ((torch.float64, "f64"), (torch.float32, "f32")):
        train(arguments, dtype, inputs, labels, arguments.dir / name)


if __name__ == "__main__":
    main()
