"""PyTorch at its best: trains a network of networks.py in several ways, and times each (utils/bench-gpu).

What is exported computes attention by products that can be read; here it is PyTorch's fused one. Samples are those of the program, from npy
files, and are copied in every step from pinned memory.
"""
import contextlib
import gc
import json
import statistics
import time
from typing import NamedTuple

import numpy
import torch
from torch.nn import functional

from attention import BertLayer, GptBlock, merge_heads, split_heads
from networks import NETWORKS, build, loss_of

FUSED = hasattr(functional, "scaled_dot_product_attention")


class FusedBertLayer(BertLayer):
    def forward(self, x, mask):
        query, key, value = (split_heads(part(x), self.heads) for part in (self.query, self.key, self.value))
        context = merge_heads(functional.scaled_dot_product_attention(query, key, value, mask, self.dropout.p))
        x = self.attention_norm(x + self.dropout(self.output(context)))
        return self.norm(x + self.dropout(self.down(functional.gelu(self.up(x)))))


class FusedGptBlock(GptBlock):
    def forward(self, x):
        query, key, value = (split_heads(part, self.heads) for part in self.attention(self.ln_1(x)).chunk(3, dim=2))
        context = functional.scaled_dot_product_attention(query, key, value, dropout_p=self.dropout.p, is_causal=True)
        x = x + self.dropout(self.projection(merge_heads(context)))
        return x + self.dropout(self.down(functional.gelu(self.up(self.ln_2(x)), approximate="tanh")))


def with_fused_attention(module):
    for part in module.modules():
        part.__class__ = {BertLayer: FusedBertLayer, GptBlock: FusedGptBlock}.get(type(part), type(part))
    return module


class Way(NamedTuple):
    title: str
    mode: str = None  # of torch.compile
    channels_last: bool = False


def ways(images, compiles):
    """Those come first that take no time to prepare, then those that are likely to be the fastest."""
    last = [Way("eager, channels_last", None, True), Way("compiled, channels_last", "default", True),
            Way("compiled, channels_last, reduce-overhead", "reduce-overhead", True)]
    more = [Way("eager"), Way("compiled", "default"), Way("compiled, reduce-overhead", "reduce-overhead")]
    every = [*last, *more[:-1]] if images else more
    return [way for way in every if compiles or not way.mode]


class Training:
    """A network, its samples, and how it is trained."""

    def __init__(self, name, size, folder, batch, low, rate, momentum, device):
        self.name, self.size, self.folder, self.batch, self.low, self.device = name, size, folder, batch, low, device
        self.network = NETWORKS[name][size]
        self.options = {"lr": rate, "momentum": momentum, **({"fused": True} if device == "cuda" else {})}

    def module(self, fused):
        """On the device, where it is made: a processor takes long to draw so many weights."""
        with contextlib.nullcontext() if self.device == "cpu" else torch.device(self.device):
            module = build(self.name, self.size, dropout=False)[1]
        return with_fused_attention(module) if fused else module

    def minibatches(self, channels_last):
        """In pinned memory: of each the inputs and the label."""
        files = [torch.from_numpy(numpy.load(self.folder / f"{entry.name}.npy")) for entry in (*self.network.inputs, self.network.label)]
        if channels_last:
            files = [values.contiguous(memory_format=torch.channels_last) if values.dim() == 4 else values for values in files]
        parts = [[part.pin_memory() if self.device == "cuda" else part for part in values.split(self.batch)] for values in files]
        return [minibatch for minibatch in zip(*parts) if len(minibatch[0]) == self.batch]

    def step(self, way, fused=FUSED):
        """A function that trains with the next minibatch."""
        module = self.module(fused)
        if way.channels_last:
            module = module.to(memory_format=torch.channels_last)
        minibatches, taken = self.minibatches(way.channels_last), 0
        optimizer = torch.optim.SGD(module.parameters(), **self.options)

        def loss(*values):
            with torch.autocast(self.device, self.low, enabled=self.low is not None):
                return loss_of(self.network, module(*values[:-1]), values[-1])
        compute = torch.compile(loss, mode=way.mode) if way.mode else loss

        def step():
            nonlocal taken
            values = [value.to(self.device, non_blocking=True) for value in minibatches[taken % len(minibatches)]]
            taken += 1
            optimizer.zero_grad(set_to_none=True)
            result = compute(*values)
            result.backward()
            optimizer.step()
            return result
        return step

    def wait(self):
        if self.device == "cuda":
            torch.cuda.synchronize()

    def milliseconds(self, step, warmup, blocks, steps):
        """The median over blocks of steps, each between two synchronisations."""
        for _ in range(warmup):
            step()
        times = []
        for _ in range(blocks):
            self.wait()
            begin = time.perf_counter()
            for _ in range(steps):
                step()
            self.wait()
            times.append(1e3 * (time.perf_counter() - begin) / steps)
        return statistics.median(times)

    def forget(self):
        """What the last way has left in memory."""
        gc.collect()
        if self.device == "cuda":
            torch._dynamo.reset()
            torch.cuda.empty_cache()

    def operations(self):
        """Of a step, as PyTorch counts them, which knows products: cuDNN's LSTM is none."""
        from torch.utils.flop_counter import FlopCounterMode
        step, counter = self.step(Way("eager"), fused=False), FlopCounterMode(display=False)
        with torch.backends.cudnn.flags(enabled=len(self.network.inputs[0].shape) == 3), counter:
            step()
        return counter.get_total_flops()

    def ceiling(self):
        """Operations per second of products of large matrices."""
        a = torch.randn(8192, 8192, device=self.device, dtype=self.low or torch.float32)
        return 2 * 8192**3 / (self.milliseconds(lambda: a @ a, 10, 3, 20) / 1e3)

    def check_fused(self):
        """Fused attention and the one that is exported have the same loss."""
        losses = [self.step(Way("eager"), fused)().item() for fused in (FUSED, False)]
        if not abs(losses[0] - losses[1]) <= 1e-5 * abs(losses[1]):
            raise ValueError(f"the loss with fused attention is {losses[0]}, without {losses[1]}")


def tell(**answer):
    """At once: whoever reads this ends it when the time is over."""
    print(json.dumps(answer), flush=True)


def time_all(training, images, warmup, blocks, steps):
    """A line of JSON after each way, with its milliseconds or why it failed; then the operations of a step and the ceiling."""
    on_gpu = training.device == "cuda"
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    tell(torch=torch.__version__, cudnn=torch.backends.cudnn.version(), cuda=torch.version.cuda)
    for way in ways(images, compiles=on_gpu):
        try:
            tell(way=way.title, ms=training.milliseconds(training.step(way), warmup, blocks, steps))
        except Exception as error:  # a compiler of PyTorch that fails is a result
            tell(way=way.title, failed=f"{type(error).__name__}: {error}"[:300])
        training.forget()
    for what, function in [("flops", training.operations), ("ceiling_flops", training.ceiling)] if on_gpu else []:
        try:
            tell(**{what: function()})
        except Exception as error:
            tell(way=what, failed=f"{type(error).__name__}: {error}"[:300])
        training.forget()
