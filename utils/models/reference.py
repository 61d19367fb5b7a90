#!/usr/bin/python3
"""Trains a network of networks.py with PyTorch, in f64 and in f32.

    reference.py NAME DIR [--size=small] [--batch=4] [--microbatches=2] [--steps=10] [--lr=0.01] [--seed=0] [--inference]

An update averages the gradients of the microbatches, each of which has its own BatchNorm statistics: what a flushing
schedule computes. Samples are taken in order (pdc-run --shuffle=off), every Dropout keeps everything. With --inference, networks
with BatchNorm are as an export for inference has them (folded.py). Writes into DIR:

    data/NAME.npy                    steps x microbatches x batch samples of each input, and of `label`
    {f64,f32}/losses.npy             one per step: the mean over its microbatches
    {f64,f32}/gradients/NAME.npy     of the first step, one per parameter, by its ONNX name
    f32-nudged-{1,2}/                likewise, with every weight one unit in the last place higher or lower, at random

The runs in f32 differ in rounding alone. Where one number decides, such as a gradient of one element, or whether a ReLU of a
later step is passed, a single run may be right by chance: the largest error of the three is what rounding does.
"""
import argparse
import pathlib

import numpy
import torch

from folded import folded, has_batch_norm, with_statistics
from kinks import settle
from networks import NETWORKS, build, loss_of, samples


def settled_weights(name, options):
    """Weights with which no ReLU of the first step is near its kink."""
    network, module = build(name, options.size, options.seed, dropout=False)
    inputs = [entry[:options.batch * options.microbatches] for entry in samples_of(network, options)[0]]
    if options.inference and has_batch_norm(module):
        with_statistics(module, inputs)
    settle(module, inputs, options.batch)
    return module.state_dict()


def compared(name, options, weights):
    """The network, and the module with which an exported one is compared."""
    network, module = build(name, options.size, dropout=False)
    if options.inference and has_batch_norm(module):
        module = folded(module)
    module.load_state_dict(weights)
    return network, module


def samples_of(network, options):
    return samples(network, options.batch * options.microbatches * options.steps, options.seed + 1)


def train(name, folder, dtype, data, weights, options):
    network, module = compared(name, options, weights)
    module.to(dtype)
    inputs, label = data
    batches = [[(entry.to(dtype) if entry.is_floating_point() else entry).split(options.batch) for entry in inputs],
               label.split(options.batch)]
    torch.set_default_dtype(dtype)  # of constants that a network makes for itself
    optimizer = torch.optim.SGD(module.parameters(), lr=options.lr)
    losses = []
    for step in range(options.steps):
        optimizer.zero_grad()
        total = 0.0
        for k in range(step * options.microbatches, (step + 1) * options.microbatches):
            outputs = module(*(entry[k] for entry in batches[0]))
            loss = loss_of(network, outputs, batches[1][k]) / options.microbatches
            loss.backward()
            total += loss.item()
        losses.append(total)
        if step == 0:
            save(folder / "gradients", {name: value.grad for name, value in module.named_parameters()})
        optimizer.step()
    torch.set_default_dtype(torch.float32)
    if not numpy.isfinite(losses).all():
        raise ValueError(f"{name} diverges: its losses in {dtype} are {losses}")
    numpy.save(folder / "losses.npy", numpy.array(losses))


def nudged(weights, seed):
    generator = torch.Generator().manual_seed(seed)

    def nudge(values):
        if not values.is_floating_point():
            return values
        up = torch.randint(0, 2, values.shape, generator=generator, dtype=torch.bool)
        return torch.nextafter(values, torch.where(up, torch.inf, -torch.inf).to(values.dtype))
    return {name: nudge(values) for name, values in weights.items()}


def save(folder, tensors):
    folder.mkdir(parents=True, exist_ok=True)
    for name, tensor in tensors.items():
        if tensor is not None:
            numpy.save(folder / f"{name}.npy", tensor.detach().numpy())


def reference(name, folder, weights, options):
    network = NETWORKS[name][options.size]
    inputs, label = samples_of(network, options)
    save(folder / "data", {entry.name: values for entry, values in zip((*network.inputs, network.label), (*inputs, label))})
    for dtype, precision in ((torch.float64, "f64"), (torch.float32, "f32")):
        train(name, folder / precision, dtype, (inputs, label), weights, options)
    for seed in (1, 2):
        train(name, folder / f"f32-nudged-{seed}", torch.float32, (inputs, label), nudged(weights, seed), options)


def add_options(parser):
    parser.add_argument("--size", choices=["small", "full"], default="small")
    parser.add_argument("--batch", type=int, default=4)  # with 2, BatchNorm over the last small maps is unstable
    parser.add_argument("--microbatches", type=int, default=2)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--inference", action="store_true", help="of an export for inference: the first minibatch only")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=sorted(NETWORKS))
    parser.add_argument("dir", type=pathlib.Path)
    add_options(parser)
    arguments = parser.parse_args()
    reference(arguments.name, arguments.dir, settled_weights(arguments.name, arguments), arguments)


if __name__ == "__main__":
    main()
