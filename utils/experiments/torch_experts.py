#!/usr/bin/python3
"""Trains a layer of experts whose tokens are gathered by index, as PyTorch's users write it.

    torch_experts.py WEIGHTS.npz DATA CHOSEN CAPACITY STEPS [--threads=1]

WEIGHTS: router [experts, width], up [experts, width, hidden] and down [experts, hidden, width]; DATA: a folder with input.npy and
label.npy. Prints {"step_ms": […], "losses": […]} of plain SGD with a rate of 0.01. A token that finds its expert full is dropped;
tokens that like an expert second come behind all that like it best.
"""
import argparse
import json
import pathlib
import time

import numpy
import torch
from torch import nn


class Expert(nn.Module):
    def __init__(self, up, down):
        super().__init__()
        self.up, self.down = (nn.Linear(*matrix.shape, bias=False) for matrix in (up, down))
        self.up.weight.data, self.down.weight.data = up.T.contiguous(), down.T.contiguous()

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


class Experts(nn.Module):
    def __init__(self, weights, chosen, capacity):
        super().__init__()
        self.chosen, self.capacity = chosen, capacity
        self.router = nn.Parameter(weights["router"])
        self.experts = nn.ModuleList(Expert(up, down) for up, down in zip(weights["up"], weights["down"]))

    def forward(self, tokens):
        probabilities = torch.softmax(tokens @ self.router.T, -1)
        gates, best = probabilities.topk(self.chosen, dim=-1)
        if self.chosen > 1:
            gates = gates / gates.sum(-1, keepdim=True)
        out = torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts):
            choice, token = (best.T == number).nonzero()[:self.capacity].unbind(-1)
            rows = expert(tokens.index_select(0, token))
            out.index_add_(0, token, rows * gates[token, choice, None])
        share = torch.bincount(best[:, 0], minlength=len(self.experts)) / len(tokens)
        return out, len(self.experts) * (share * probabilities.mean(0)).sum()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("weights")
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("chosen", type=int)
    parser.add_argument("capacity", type=int)
    parser.add_argument("steps", type=int)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    layer = Experts({name: torch.from_numpy(values) for name, values in numpy.load(options.weights).items()}, options.chosen, options.capacity)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)
    x, y = (torch.from_numpy(numpy.load(options.data / f"{name}.npy")).flatten(0, 1) for name in ("input", "label"))
    times, losses = [], []
    for _ in range(options.steps):
        begin = time.perf_counter()
        optimizer.zero_grad()
        out, balance = layer(x)
        loss = ((x + out - y) ** 2).mean() + 0.01 * balance
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        times.append(1000 * (time.perf_counter() - begin))
    print(json.dumps({"step_ms": times, "losses": losses}))


if __name__ == "__main__":
    main()
