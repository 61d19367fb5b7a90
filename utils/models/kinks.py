"""Weights with which no ReLU, no max pooling and no router of the first step is at a kink but for rounding.

Whether a gradient passes a ReLU whose input is 0 but for rounding, or to which of two inputs of a pooling that differ by
rounding, depends on the precision and on the order of every sum. One such input among a million changes the gradients before
it by about 1e-3, a thousand times what rounding does, and hides whether anything else is right. PyTorch in f64 finds them, from
the first layer to the last. Every channel's bias is moved by at most a twentieth of the standard deviation of what it is
added to, into the middle of the widest gap between the values there. A channel of a convolution in which a pooling has two
largest inputs that are nearly equal gets its weights changed at random, by some hundredths; so does a router for which two of a
token's best experts, or the last of them and the next one, are nearly equal. Others may have used that channel
before, so all is looked through again until nothing changes. What is changed is rounded to f32 at once: rounded only in the end,
all those changes together would move the values behind 90 layers to their kinks again.
"""
import copy

import numpy
import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

REACH = 0.05  # of a bias, in standard deviations
APART = 0.1  # two inputs of a pooling, in standard deviations over the number of its windows in a channel; or two of a router's
# choices, in standard deviations of its logits over the number of choices
NOISE = 0.02  # of a weight, in standard deviations
PASSES = 20


def shift(values, kinks):
    """What to add to `values` to have none of them near any of `kinks`; at most REACH of their standard deviation. Nothing where
    they are half as far from them as they can be."""
    reach = REACH * values.std()
    near = numpy.sort(numpy.concatenate([values - kink for kink in kinks]))
    near = near[numpy.abs(near) < reach]
    edges = numpy.concatenate(([-reach], near, [reach]))
    widest = numpy.diff(edges).argmax()
    if numpy.abs(edges).min() >= (edges[widest + 1] - edges[widest]) / 4:
        return 0.0
    return -(edges[widest] + edges[widest + 1]) / 2


class Channels:
    """What ReLU makes of a convolution and a BatchNorm, by channel: another one for other weights."""

    def __init__(self, convolution):
        self.inputs, self.weight, self.more = convolution[0], convolution[1], convolution[2:]

    def normalised(self, batch, statistics, named):
        self.batch, self.statistics, self.named = batch, statistics, named
        return self

    def redrawn(self, channel, generator):
        one = slice(channel, channel + 1)
        weight, bias = self.weight[one], self.named["bias"][one]
        weight.copy_((weight + NOISE * weight.std() * torch.randn(weight.shape, generator=generator, dtype=weight.dtype)).float())
        values = functional.conv2d(self.inputs, weight, *self.more)
        named = {**self.named, "weight": self.named["weight"][one], "bias": bias}
        statistics = [None, None] if named["training"] else [entry[one] for entry in self.statistics]
        values = torch.cat([functional.batch_norm(part, *statistics, **named) for part in values.split(self.batch)])
        return functional.relu(values + moved(bias, shift(values.numpy().ravel(), [0.0])))[:, 0]


def moved(bias, moves):
    """Moves `bias` to the nearest numbers of f32, and says by how much it was moved."""
    before = bias.clone()
    bias.copy_((bias + moves).float())
    return bias - before


def gap(values, window):
    """The least difference of the two largest inputs of a pooling of one channel, in standard deviations."""
    largest, second = functional.unfold(values, *window).topk(2, dim=1).values.unbind(1)
    differences = (largest - second)[largest > 0]
    return differences.min() / values.std() if differences.numel() else 1.0


def windows_of(values, window):
    return functional.unfold(values, *window).shape[2] * len(values)


class Router:
    """A layer without bias, and the softmax from which experts are chosen."""

    def __init__(self, inputs, weight, logits, probabilities):
        self.inputs, self.weight, self.logits, self.probabilities = inputs, weight, logits, probabilities

    def redraw(self, generator):
        noise = torch.randn(self.weight.shape, generator=generator, dtype=self.weight.dtype)
        self.weight.copy_((self.weight + NOISE * self.weight.std() * noise).float())
        self.logits.copy_(functional.linear(self.inputs, self.weight))
        self.probabilities.copy_(self.logits.softmax(-1))

    def is_near_tie(self, chosen):
        best = self.logits.topk(min(chosen + 1, self.logits.shape[-1]), dim=-1).values
        gaps = best[..., :-1] - best[..., 1:]
        return bool(gaps.min() < APART * self.logits.std() / gaps.numel())


class Settling(TorchFunctionMode):
    """Changes the weights while a network computes. `batch`: samples that BatchNorm takes together."""

    def __init__(self, batch, generator):
        super().__init__()
        self.batch, self.generator, self.changed = batch, generator, False

    def __torch_function__(self, function, types, arguments=(), named=None):
        named = named or {}
        name = getattr(function, "__name__", "")
        channels = getattr(arguments[0], "channels", None) if arguments and torch.is_tensor(arguments[0]) else None
        if name == "relu":
            self.settle(arguments[0], [0.0])
            return self.with_channels(function(*arguments, **named), channels)
        if name == "topk" and hasattr(arguments[0], "router"):
            while arguments[0].router.is_near_tie(arguments[1]):
                arguments[0].router.redraw(self.generator)
                self.changed = True
        if name == "max_pool2d" and channels:
            self.untie(arguments[0], channels, arguments[1], named)
        if name == "hardtanh":
            self.settle(arguments[0], [named["min_val"], named["max_val"]] if named else arguments[1:3])
        elif name == "batch_norm":
            parts = [function(part, *arguments[1:], **named) for part in arguments[0].split(self.batch)]
            found = channels[0].normalised(self.batch, arguments[1:3], named) if channels else None
            return self.with_channels(self.with_bias(torch.cat(parts), named["bias"]), found and [found])
        result = function(*arguments, **named)
        if name == "linear" and arguments[2] is None:
            result.layer = arguments[:2]
        if name == "softmax" and hasattr(arguments[0], "layer"):
            result.router = Router(*arguments[0].layer, arguments[0], result)
        if name == "conv2d" and arguments[2] is None and arguments[6] == 1:
            return self.with_channels(result, [Channels(arguments)])
        if name == "cat" and all(getattr(part, "channels", None) for part in arguments[0]):
            return self.with_channels(result, [channel for part in arguments[0] for channel in part.channels])
        if name in ("conv2d", "linear"):
            return self.with_bias(result, arguments[2])
        if name in ("__add__", "__iadd__"):
            return self.with_bias(result, getattr(arguments[0], "bias", None))
        return result

    @staticmethod
    def with_bias(result, bias):
        """Remembers that another value of `bias` would move the channels of `result`."""
        result.bias = bias
        return result

    @staticmethod
    def with_channels(result, channels):
        """Remembers where the channels of `result` come from."""
        result.channels = channels
        return result

    def untie(self, tensor, channels, size, named):
        window = (size, named["dilation"], named["padding"], named["stride"] or size)
        first = 0
        for source in channels:
            for channel in range(len(source.weight)):
                values = tensor[:, first + channel]
                while gap(values.unsqueeze(1), window) < APART / windows_of(values.unsqueeze(1), window):
                    values.copy_(source.redrawn(channel, self.generator))
                    self.changed = True
            first += len(source.weight)

    def settle(self, tensor, kinks):
        bias = getattr(tensor, "bias", None)
        if bias is None:
            return
        axis = 1 if tensor.dim() == 4 else -1
        channels = tensor.movedim(axis, 0).flatten(1).numpy()
        moves = moved(bias, torch.tensor([shift(values, kinks) for values in channels]))
        self.changed |= bool(moves.any())
        tensor += moves.reshape([-1, 1, 1] if axis == 1 else [-1])
        tensor.bias = None


def settle(module, inputs, batch):
    """Changes the weights of `module`, for minibatches of `batch` of the samples in `inputs`."""
    exact = copy.deepcopy(module).double()
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)  # of constants that a network makes for itself
    generator = torch.Generator().manual_seed(0)
    for _ in range(PASSES):
        with torch.no_grad(), Settling(batch, generator) as settling:
            exact(*(entry.double() if entry.is_floating_point() else entry for entry in inputs))
        if not settling.changed:
            break
    else:
        raise ValueError(f"values come near their kinks again and again, in {PASSES} passes")
    torch.set_default_dtype(before)
    with torch.no_grad():
        for parameter, settled in zip(module.parameters(), exact.parameters()):
            parameter.copy_(settled)
