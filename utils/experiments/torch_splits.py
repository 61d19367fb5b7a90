"""A training step under PyTorch's own parallelism on several processes, over gloo: the peer of pdc --split=auto.

    torch_splits.py NETWORK WAY BATCH MICROBATCHES STEPS        with RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT

NETWORK is one of utils/models in its size `hosts`, for GPT-2 that of torch_tensor_parallel.py, whose queries, keys and values are three layers. A
step is of MICROBATCHES microbatches of BATCH samples, which replicas share. WAY, as PyTorch's documentation shows them:

  ddp          DistributedDataParallel, gradients summed once per step
  fsdp         FSDP2: fully_shard of each layer and of the rest
  tp           parallelize_module over all processes, a loss over divided words
  tp+dp, tp+fsdp   teams of two neighbours, replicas across
  pp, pp+dp    PipelineStage and Schedule1F1B over all processes, or over two, with two replicas

Where weights are tied, stages of a pipeline have one each. Rank 0 prints {"step_ms": […]}.
"""
import contextlib
import json
import os
import pathlib
import sys
import time

import torch
from torch import distributed, nn
from torch.distributed import pipelining
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, loss_parallel, parallelize_module
from torch.nn import functional

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent.parent / "models"), str(pathlib.Path(__file__).resolve().parent)]
import networks  # noqa: E402
import torch_tensor_parallel as megatron  # noqa: E402


class Words(nn.Module):
    """The first part of a decoder."""

    def __init__(self, model):
        super().__init__()
        self.embedding, self.places = (model.wte, model.wpe) if hasattr(model, "wte") else (model.embedding, None)

    def forward(self, tokens):
        x = self.embedding(tokens)
        return x if self.places is None else x + self.places(torch.arange(tokens.shape[1]))


class Layer(nn.Module):
    def __init__(self, layer, model):
        super().__init__()
        self.layer = layer
        self.tables = [model.cos, model.sin, model.mask] if hasattr(model, "cos") else []

    def forward(self, x):
        y = self.layer(x, *self.tables)
        return y[0] if isinstance(y, tuple) else y  # without the loss of a router, which would cross stages


class Head(nn.Module):
    def __init__(self, norm, linear):
        super().__init__()
        self.norm, self.linear = norm, nn.Linear(linear.in_features, linear.out_features, bias=linear.bias is not None)

    def forward(self, x):
        return self.linear(self.norm(x))


def parts_of(name, model):
    """The network as a chain, for stages."""
    if name == "vgg16":
        return [*model.features, nn.Sequential(model.avgpool, nn.Flatten(1)), *model.classifier]
    layers = model.blocks if hasattr(model, "blocks") else model.layers
    head = {"gpt2": ("ln_f", "head"), "llama": ("norm", "output"), "switch": ("norm", "classifier")}[name]
    return [Words(model), *(Layer(layer, model) for layer in layers), Head(*(getattr(model, part) for part in head))]


def cost_of(part, x):
    begin = time.perf_counter()
    for _ in range(3):
        y = part(x)
    return y.detach(), time.perf_counter() - begin


def stage_of(name, model, index, count, sample):
    """Part `index` of `count` of the chain, cut where stages take about as long; all processes cut by what the first one measures."""
    parts, times, x = parts_of(name, model), [], sample
    for part in parts:
        x, taken = cost_of(part, x)
        times.append(taken)
    shared = torch.tensor(times, dtype=torch.float64)
    distributed.broadcast(shared, 0)
    total, at, bounds = float(shared.sum()), 0.0, [0]
    for place, taken in enumerate(shared.tolist()):
        if len(bounds) < count and at + taken / 2 > total * len(bounds) / count and place > bounds[-1]:
            bounds.append(place)
        at += taken
    bounds.append(len(parts))
    return nn.Sequential(*parts[bounds[index]:bounds[index + 1]])


def divide(name, model, mesh):
    """Megatron-LM's division, as PyTorch's tutorial on tensor parallelism has it."""
    members, by_rows = mesh.size(), {"wte" if name == "gpt2" else "embedding": RowwiseParallel(input_layouts=Replicate())}
    if name == "gpt2":
        megatron.divide(model, mesh)
        model.head.weight = model.wte.weight
        return
    parallelize_module(model, mesh, {**by_rows, "output": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)})
    for layer in model.layers:
        parallelize_module(layer, mesh, {**{part: ColwiseParallel() for part in ("wq", "wk", "wv", "w1", "w3")},
                                         **{part: RowwiseParallel() for part in ("wo", "w2")}})
        layer.heads //= members
        layer.groups //= members


def average(module, mesh):
    """Gradients of replicas, in one all-reduce. DistributedDataParallel takes no stage with several microbatches under way, nor divided parameters."""
    gradients = [parameter.grad.to_local() if hasattr(parameter.grad, "to_local") else parameter.grad for parameter in module.parameters()]
    flat = torch.cat([gradient.flatten() for gradient in gradients]) / mesh.size()
    distributed.all_reduce(flat, group=mesh.get_group())
    for gradient, mean in zip(gradients, flat.split([gradient.numel() for gradient in gradients])):
        gradient.copy_(mean.view_as(gradient))


def layers_of(name, model):
    if name == "vgg16":
        return [layer for layer in [*model.features, *model.classifier] if any(True for _ in layer.parameters())]
    return model.blocks if hasattr(model, "blocks") else model.layers


def build(name):
    network, model = networks.build(name, "hosts", dropout=False)
    return network, megatron.Gpt2(2000, 384, 4, 8, 64) if name == "gpt2" else model


def step_of(name, way, batch, microbatches):
    """(a function that makes a step, parameters)."""
    network, model = build(name)
    world, rank = distributed.get_world_size(), distributed.get_rank()
    if way.startswith("pp"):
        return pipeline(name, model, network, way, batch, microbatches)
    members = {"tp": world, "tp+dp": 2, "tp+fsdp": 2}.get(way, 1)
    replicas = world // members
    mesh = init_device_mesh("cpu", (replicas, members), mesh_dim_names=("dp", "tp"))
    if members > 1:
        divide(name, model, mesh["tp"])
    whole = model
    if "fsdp" in way:
        for layer in layers_of(name, model):
            fully_shard(layer, mesh=mesh["dp"])
        fully_shard(model, mesh=mesh["dp"])
    elif way == "ddp":
        model = nn.parallel.DistributedDataParallel(model)
    inputs, label = networks.samples(network, batch, seed=rank // members)
    own = max(1, microbatches // replicas)

    def step():
        for number in range(own):
            last = number + 1 == own
            if "fsdp" in way:
                model.set_requires_gradient_sync(last)
            with model.no_sync() if way == "ddp" and not last else contextlib.nullcontext(), \
                    loss_parallel() if members > 1 else contextlib.nullcontext():
                (networks.loss_of(network, model(*inputs), label) / own).backward()
        if way == "tp+dp":
            average(whole, mesh["dp"])
    return step, list(whole.parameters())


def pipeline(name, model, network, way, batch, microbatches):
    world, rank = distributed.get_world_size(), distributed.get_rank()
    stages = world if way == "pp" else 2
    replicas = world // stages
    # Neighbours are replicas of a stage, as in pdc's plans: the stages of a pipeline lie on different hosts.
    mesh = init_device_mesh("cpu", (stages, replicas), mesh_dim_names=("pp", "dp"))
    index = rank // replicas
    inputs, label = networks.samples(network, batch * microbatches // replicas, seed=rank % replicas)
    module = stage_of(name, model, index, stages, inputs[0][:batch])
    if index:  # what arrives is a leaf, which networks that compute in place may not change
        module.register_forward_pre_hook(lambda submodule, given: tuple(value.clone() for value in given))
    stage = pipelining.PipelineStage(module, index, stages, torch.device("cpu"), group=mesh["pp"].get_group())
    schedule = pipelining.Schedule1F1B(stage, microbatches // replicas,
                                       loss_fn=lambda outputs, labels: functional.cross_entropy(outputs.flatten(0, -2), labels.flatten()))

    def step():
        schedule.step(*inputs) if index == 0 else schedule.step(target=label)
        if replicas > 1:
            average(module, mesh["dp"])
    return step, list(module.parameters())


def main():
    name, way, batch, microbatches, steps = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    torch.manual_seed(0)
    step, parameters = step_of(name, way, batch, microbatches)
    optimizer, times = torch.optim.Adam(parameters, lr=0.001, foreach=False), []
    for _ in range(steps + 1):
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        step()
        optimizer.step()
        times.append(1e3 * (time.perf_counter() - begin))
    if distributed.get_rank() == 0:
        print(json.dumps({"step_ms": times[1:]}), flush=True)
    distributed.barrier()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
