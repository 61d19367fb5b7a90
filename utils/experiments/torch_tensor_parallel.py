"""A training step of GPT-2 under PyTorch's own tensor parallelism, over gloo: the peer of `pdc --split=tp:N`.

    torch_tensor_parallel.py LAYERS WIDTH HEADS WORDS TIME BATCH STEPS        with RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT

Layers are divided as PyTorch's tutorial on tensor parallelism says: queries, keys, values and the first layer of the MLP by
outputs, the projection and the second layer by inputs, the words by rows, with a loss over the divided words. Rank 0 prints
{"step_ms": […], "loss": […]}.
"""
import json
import math
import os
import sys
import time

import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, loss_parallel, parallelize_module
from torch.nn import functional


class Block(nn.Module):
    """A block of GPT-2 whose queries, keys and values are three layers, so that each can be divided by outputs."""

    def __init__(self, width, heads):
        super().__init__()
        self.size = width // heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value, self.projection = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        normal = self.ln_1(x)
        query, key, value = (part(normal).unflatten(-1, (-1, self.size)).transpose(1, 2)
                             for part in (self.query, self.key, self.value))
        y = functional.scaled_dot_product_attention(query, key, value, is_causal=True, scale=1 / math.sqrt(self.size))
        x = x + self.projection(y.transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, words, width, layers, heads, positions):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(words, width), nn.Embedding(positions, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln_f(x))


def divide(model, mesh):
    parallelize_module(model, mesh, {"wte": RowwiseParallel(input_layouts=Replicate()),
                                     "head": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)})
    for block in model.blocks:
        parallelize_module(block, mesh, {**{name: ColwiseParallel() for name in ("query", "key", "value", "up")},
                                         **{name: RowwiseParallel() for name in ("projection", "down")}})


def main():
    layers, width, heads, words, positions, batch, steps = map(int, sys.argv[1:])
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    distributed.init_process_group("gloo")
    torch.manual_seed(0)
    model = Gpt2(words, width, layers, heads, positions)
    divide(model, init_device_mesh("cpu", (distributed.get_world_size(),)))
    model.head.weight = model.wte.weight
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    tokens, label = (torch.randint(words, (batch, positions)) for _ in range(2))
    times, losses = [], []
    for _ in range(steps):
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with loss_parallel():
            loss = functional.cross_entropy(model(tokens).flatten(0, 1), label.flatten())
            loss.backward()
        optimizer.step()
        times.append(1e3 * (time.perf_counter() - begin))
        losses.append(float(loss.detach()))
    if distributed.get_rank() == 0:
        print(json.dumps({"step_ms": times, "loss": losses}))
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
