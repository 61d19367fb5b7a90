"""Biases with which no ReLU of the first step is at its kink but for rounding.

Whether a gradient passes a ReLU whose input is 0 but for rounding differs between any two precisions, and between any two
orders of a sum. One such input among a million changes the gradients before it by about 1e-3, a thousand times what rounding
does, and hides whether anything else is right. PyTorch in f64 finds them: from the first layer to the last, every channel's
bias is moved by at most a twentieth of the standard deviation of what it is added to, into the middle of the widest
gap between the values there.
"""
import copy

import numpy
import torch
from torch.overrides import TorchFunctionMode

REACH = 0.05


def shift(values, kinks):
    """What to add to `values` to have none of them near any of `kinks`; at most REACH of their standard deviation."""
    reach = REACH * values.std()
    near = numpy.sort(numpy.concatenate([values - kink for kink in kinks]))
    near = near[numpy.abs(near) < reach]
    edges = numpy.concatenate(([-reach], near, [reach]))
    widest = numpy.diff(edges).argmax()
    return -(edges[widest] + edges[widest + 1]) / 2


class Settling(TorchFunctionMode):
    """Moves the biases while a network computes. `batch`: samples that BatchNorm takes together."""

    def __init__(self, batch):
        super().__init__()
        self.batch = batch

    def __torch_function__(self, function, types, arguments=(), named=None):
        named = named or {}
        name = getattr(function, "__name__", "")
        if name == "relu":
            self.settle(arguments[0], [0.0])
        elif name == "hardtanh":
            self.settle(arguments[0], [named["min_val"], named["max_val"]] if named else arguments[1:3])
        elif name == "batch_norm":
            parts = [function(part, *arguments[1:], **named) for part in arguments[0].split(self.batch)]
            return self.with_bias(torch.cat(parts), named["bias"])
        result = function(*arguments, **named)
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
    def settle(tensor, kinks):
        bias = getattr(tensor, "bias", None)
        if bias is None:
            return
        axis = 1 if tensor.dim() == 4 else -1
        channels = tensor.movedim(axis, 0).flatten(1).numpy()
        moves = torch.tensor([shift(values, kinks) for values in channels])
        bias += moves
        tensor += moves.reshape([-1, 1, 1] if axis == 1 else [-1])
        tensor.bias = None


def settle(module, inputs, batch):
    """Moves the biases of `module`, for minibatches of `batch` of the samples in `inputs`."""
    exact = copy.deepcopy(module).double()
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)  # of constants that a network makes for itself
    with torch.no_grad(), Settling(batch):
        exact(*(entry.double() if entry.is_floating_point() else entry for entry in inputs))
    torch.set_default_dtype(before)
    with torch.no_grad():
        for parameter, settled in zip(module.parameters(), exact.parameters()):
            parameter.copy_(settled)
