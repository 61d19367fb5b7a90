"""A stage of PyTorch's own pipelining (torch.distributed.pipelining, 1F1B with flushes) over gloo, for a network of utils/models: the
peer of pdc's pipelines.

    torch_pipelining.py NAME SIZE BATCH MICROBATCHES STEPS RANK NODES ADDRESS PORT INTERFACE

It has no partitioner, so it gets pdc's cut. NODES: those of the second of two stages, as in a plan ("/features/features.17/Conv, …"); the
stage begins with the first module among them that has parameters. An update is of MICROBATCHES microbatches of BATCH samples.
Rank 0 prints {"ms": […]}, milliseconds of each step but the first two.
"""
import json
import os
import pathlib
import sys
import time

import torch
from torch import distributed
from torch.distributed import pipelining

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "models"))
import networks


def module_name(node):
    """The module that a node of an exported model is from: "/layer3/layer3.0/conv1/Conv" is from layer3.0.conv1."""
    name = before = ""
    for part in node.strip("/").split("/")[:-1]:
        # Children of a container are named with it.
        above = name[:len(name) - len(before)] if before and part.startswith(f"{before}.") else name and f"{name}."
        name, before = above + part, part
    return name


def first_module(module, nodes):
    """The first of these nodes' modules that has parameters."""
    modules = dict(module.named_modules())
    for node in nodes.split(", "):
        name = module_name(node)
        if name and name in modules and any(True for _ in modules[name].parameters()):
            return name
    sys.exit(f"torch_pipelining.py: none of the nodes is of a module with parameters: {nodes}")


def main(name, size, batch, microbatches, steps, rank, nodes, address, port, interface):
    batch, microbatches, rank = int(batch), int(microbatches), int(rank)
    os.environ.update(MASTER_ADDR=address, MASTER_PORT=port, GLOO_SOCKET_IFNAME=interface)
    torch.set_num_threads(1)
    network, module = networks.build(name, size)
    inputs, label = networks.samples(network, batch * microbatches)
    for layer in module.modules():
        if isinstance(layer, torch.nn.LSTM):  # gives a view of another order of axes, which PyTorch does not send
            layer.register_forward_hook(lambda layer, given, result: (result[0].contiguous(), result[1]))
    first = first_module(module, nodes)
    pipe = pipelining.pipeline(module, tuple(value[:batch] for value in inputs), split_spec={first: pipelining.SplitPoint.BEGINNING})
    if pipe.num_stages != 2:
        sys.exit(f"torch_pipelining.py: {first} cuts {name} into {pipe.num_stages} stages, not 2")
    distributed.init_process_group("gloo", rank=rank, world_size=2)
    stage = pipe.build_stage(rank, torch.device("cpu"))
    if rank:  # what arrives is a leaf, which networks that add in place may not change
        stage.submod.register_forward_pre_hook(lambda submodule, given: tuple(value.clone() for value in given))
    schedule = pipelining.Schedule1F1B(stage, microbatches, loss_fn=lambda outputs, labels: networks.loss_of(network, outputs, labels))
    optimizer = torch.optim.SGD(stage.submod.parameters(), lr=0.01, momentum=0.9)
    times = []
    for _ in range(int(steps) + 2):
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        if rank == 0:
            schedule.step(*inputs)
        else:
            schedule.step(target=label)
        optimizer.step()
        times.append(1e3 * (time.perf_counter() - begin))
    if untrained := [name for name, value in stage.submod.named_parameters() if value.grad is None]:
        sys.exit(f"torch_pipelining.py: stage {rank} does not train {', '.join(untrained)}")
    if rank == 0:
        print(json.dumps({"ms": times[2:]}), flush=True)
    distributed.barrier()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
