#!/usr/bin/python3
"""A worker of PyTorch's DistributedDataParallel over gloo, for a network of utils/models: the peer of pdc's data parallelism.

    ddp.py NAME SIZE BATCH STEPS RANK WORKERS ADDRESS PORT INTERFACE

Rank 0 prints {"ms": […]}, milliseconds of each step but the first two. BATCH samples per worker.
"""
import json
import os
import pathlib
import sys
import time

import torch
from torch import distributed

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "models"))
import networks


def main(name, size, batch, steps, rank, workers, address, port, interface):
    os.environ.update(MASTER_ADDR=address, MASTER_PORT=port, GLOO_SOCKET_IFNAME=interface)
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", rank=int(rank), world_size=int(workers))
    network, module = networks.build(name, size)
    inputs, label = networks.samples(network, int(batch))
    module = torch.nn.parallel.DistributedDataParallel(module)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9)
    times = []
    for _ in range(int(steps) + 2):
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        networks.loss_of(network, module(*inputs), label).backward()
        optimizer.step()
        times.append(1e3 * (time.perf_counter() - begin))
    if rank == "0":
        print(json.dumps({"ms": times[2:]}), flush=True)
    distributed.barrier()


if __name__ == "__main__":
    main(*sys.argv[1:])
