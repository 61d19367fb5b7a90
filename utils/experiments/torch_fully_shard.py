"""A training step of a decoder like Llama under PyTorch's FSDP2 (`fully_shard`), over gloo: the peer of `pdc --shard=weights`.

    torch_fully_shard.py LAYERS WIDTH HEADS GROUPS HIDDEN WORDS TIME BATCH MICROBATCHES STEPS whole|shards
                                                                       with RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT

Each layer is a unit, words and head are of the root. Gradients of the microbatches of a step are added up where FSDP does it with
the fewest bytes (no reduction before the last microbatch). `whole`: DistributedDataParallel with the same sizes. Rank 0 prints
{"step_ms": […], "loss": […]}.
"""
import contextlib
import json
import os
import pathlib
import sys
import time

import torch
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "models"))
import attention  # noqa: E402


def main():
    layers, width, heads, groups, hidden, words, positions, batch, microbatches, steps = map(int, sys.argv[1:11])
    shards = sys.argv[11] == "shards"
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    distributed.init_process_group("gloo")
    torch.manual_seed(0)
    model = attention.Llama(words, width, layers, heads, groups, hidden, positions)
    if shards:
        mesh = init_device_mesh("cpu", (distributed.get_world_size(),))
        for layer in model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    else:
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    tokens, label = (torch.randint(words, (batch, positions)) for _ in range(2))
    times, losses = [], []
    for _ in range(steps):
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        for microbatch in range(microbatches):
            last = microbatch + 1 == microbatches
            if shards:
                model.set_requires_gradient_sync(last)
            with contextlib.nullcontext() if shards or last else model.no_sync():
                loss = functional.cross_entropy(model(tokens).flatten(0, 1), label.flatten()) / microbatches
                loss.backward()
        optimizer.step()
        times.append(1e3 * (time.perf_counter() - begin))
        losses.append(float(loss.detach()) * microbatches)
    if distributed.get_rank() == 0:
        print(json.dumps({"step_ms": times, "loss": losses}))
    distributed.destroy_process_group()


main()
