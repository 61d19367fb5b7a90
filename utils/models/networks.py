"""The networks of this folder by name, in sizes: `small` for tests, `full` as published, `reduced` for a run on two cores, `hosts` for four processes
on them (utils/bench-auto)."""
from typing import Callable, NamedTuple

import torch
from torch import nn
from torch.nn import functional

import attention
import experts
import recurrent
import teaching

try:
    import vision
except ModuleNotFoundError:  # a bare machine may lack torchvision; the other networks need none
    vision = None


class Input(NamedTuple):
    name: str
    shape: tuple  # of one sample
    below: int = 0  # integers in [0, below); 0: normally distributed numbers
    ones: bool = False  # integers that are all 1, such as the mask of unpadded text


class Network(NamedTuple):
    make: Callable  # () -> nn.Module
    inputs: tuple
    label: Input  # classes
    auxiliary: dict = {}  # weights, in the loss, of the outputs after the logits: losses (NAME_loss), or other logits
    opset: int = 14

    def losses(self):
        return [name for name in self.auxiliary if name.endswith("_loss")]


def image(size, channels=3):
    return (Input("input", (channels, size, size)),)


def text(words, time, *more):
    return (Input("input_ids", (time,), words), *more), Input("label", (time,), words)


def of_vision(make, small_size, full_size=224, **more):
    """`make`: the name of a function of vision.py."""
    return {"small": Network(lambda: getattr(vision, make)(False), image(small_size), Input("label", (), 10), **more),
            "full": Network(lambda: getattr(vision, make)(True), image(full_size), Input("label", (), 1000), **more)}


def of_text(make, small, full, time, mask=False, **more):
    """`small` and `full`: the arguments of `make`, words first; `time`: tokens per sample, for both."""
    def network(arguments, time):
        masks = (Input("attention_mask", (time,), ones=True),) if mask else ()
        return Network(lambda: make(**arguments), *text(arguments["words"], time, *masks), **more)
    return {"small": network(small, time[0]), "full": network(full, time[1])}


def translation(make, arguments, time):
    words = arguments["words"]
    inputs = (Input("source", (time,), words), Input("target", (time,), words))
    return Network(lambda: make(**arguments), inputs, Input("label", (time,), words))


def captions(arguments, frames, time):
    inputs = (Input("frames", (frames, arguments["features"])), Input("captions", (time,), arguments["words"]))
    return Network(lambda: recurrent.S2vt(**arguments), inputs, Input("label", (time,), arguments["words"]))


def gnmt(layers):
    return {"small": translation(recurrent.Gnmt, dict(words=40, width=16, layers=layers), 6),
            "reduced": translation(recurrent.Gnmt, dict(words=8000, width=256, layers=layers), 20),
            "full": translation(recurrent.Gnmt, dict(words=32320, width=1024, layers=layers), 50)}


def lstm_lm():
    """As awd-lm, but with a classifier of its own. `text`: for utils/headline, whose text has so many words."""
    def network(time, **arguments):
        return Network(lambda: recurrent.LstmLm(**arguments), *text(arguments["words"], time))
    return {"small": network(8, words=60, width=24, hidden=32), "reduced": network(35, words=10000, width=400, hidden=650),
            "text": network(24, words=2000, width=128, hidden=256)}


def mixture(best, losses, layer=experts.Experts, small_experts=4, full_experts=8, part=1, **more):
    """Capacity: 1.25 times the tokens that each expert would get if all got as many, where the tokens of 4 samples, in `groups`, go to
    their `best` experts. The hidden width of an expert is four times the width, or a `part` of that."""
    def arguments(words, width, layers, heads, count, tokens):
        return dict(words=words, width=width, layers=layers, heads=heads, hidden=4 * width // part, experts=count, layer=layer,
                    capacity=-(-5 * best * tokens // (4 * count * more.get("groups", 1))), **more)
    return of_text(experts.ExpertsLm, arguments(40, 16, 2, 2, small_experts, 4 * 8),
                   arguments(32000, 768, 6, 12, full_experts, 4 * 128), (8, 128), auxiliary=losses)


def grouped_switch(words, width, time, samples):
    """Four layers with 8 experts, of which a token meets one, and a group for each of the samples; capacity 1.25."""
    def make():
        return experts.ExpertsLm(words, width, layers=4, heads=4, layer=experts.GroupedExperts, hidden=4 * width, experts=8,
                                 capacity=-(-5 * time // 32), groups=samples, chosen=1)
    return Network(make, *text(words, time), auxiliary={"balance_loss": 0.64})  # GShard's is a mean, Switch's 64 times as large


def teaching_network(make, shape):
    network = Network(make, (Input("input", shape),), Input("label", (), 10))
    return {"small": network}


NETWORKS = {
    "alexnet": of_vision("alexnet", 64),
    "vgg16": {**of_vision("vgg16", 32), "hosts": Network(lambda: vision.vgg16_of(32, 1024, 10), image(32), Input("label", (), 10))},
    "resnet18": of_vision("resnet18", 64),
    "resnet50": of_vision("resnet50", 64),
    "inception-v3": of_vision("inception_v3", 107, 299, auxiliary={"auxiliary": 0.4}),
    "mobilenet-v2": of_vision("mobilenet_v2", 64),
    "densenet121": of_vision("densenet121", 64),
    "squeezenet": of_vision("squeezenet1_1", 64),
    "vit-b-16": of_vision("vit_b_16", 32),
    "bert-base": of_text(attention.Bert, dict(words=60, width=32, layers=2, heads=4, positions=16),
                         dict(words=30522, width=768, layers=12, heads=12, positions=512), (8, 128), mask=True),
    "gpt2": {**of_text(attention.Gpt2, dict(words=60, width=32, layers=2, heads=4, positions=16),
                       dict(words=50257, width=768, layers=12, heads=12, positions=1024), (8, 128)),
             "text": Network(lambda: attention.Gpt2(words=256, width=64, layers=3, heads=4, positions=32),
                             *text(256, 32)),  # of bytes
             "hosts": Network(lambda: attention.Gpt2(words=2000, width=384, layers=4, heads=8, positions=64), *text(2000, 64))},
    "llama": {**of_text(attention.Llama, dict(words=60, width=32, layers=2, heads=4, groups=2, hidden=48, positions=16),
                        dict(words=32000, width=2048, layers=12, heads=32, groups=8, hidden=5632, positions=1024), (8, 128)),
              "hosts": Network(lambda: attention.Llama(words=2000, width=384, layers=4, heads=8, groups=4, hidden=1024, positions=64), *text(2000, 64))},
    "awd-lm": of_text(recurrent.AwdLm, dict(words=60, width=24, hidden=32),
                      dict(words=33278, width=400, hidden=1150), (8, 70)),
    "gnmt8": gnmt(8),
    "gnmt16": gnmt(16),
    "lstm-lm": lstm_lm(),
    "s2vt": {"small": captions(dict(features=32, words=40, width=16, hidden=24), 6, 5),
             "full": captions(dict(features=4096, words=12000, width=500, hidden=1000), 80, 20)},
    "switch": {**mixture(1, {"balance_loss": 0.01}, chosen=1), "hosts": grouped_switch(words=2000, width=192, time=32, samples=2)},
    "top2-experts": mixture(2, {"balance_loss": 0.01}, chosen=2),
    "gshard": mixture(2, {"balance_loss": 0.01}, layer=experts.GroupedExperts, groups=4),
    "st-moe": mixture(2, {"balance_loss": 0.01, "z_loss": 0.001}, layer=experts.StableExperts, chosen=2),
    "deepseek-moe": mixture(6, {"balance_loss": 0.003, "device_loss": 0.05}, layer=experts.FineGrainedExperts, small_experts=16,
                            full_experts=64, part=8, chosen=6, shared=2, devices=4),
    # Smaller ones, each with something that a compiler could get wrong.
    "mlp": teaching_network(teaching.Mlp, (20,)),
    "lenet": teaching_network(teaching.LeNet, (1, 28, 28)),
    "vgg-small": teaching_network(teaching.VggSmall, (3, 32, 32)),
    "vgg-digits": teaching_network(teaching.VggDigits, (1, 8, 8)),
    "norm-and-drop": teaching_network(teaching.NormAndDrop, (1, 8, 8)),
    "cells": teaching_network(teaching.Cells, (6, 8)),
    "skip": teaching_network(teaching.LongSkip, (20,)),
}

PUBLISHED = [name for name, sizes in NETWORKS.items() if "full" in sizes]


def build(name, size="small", seed=0, dropout=True, weights=None):
    """The network, and its module in training mode with `weights`, or some that depend on `seed` alone."""
    network = NETWORKS[name][size]
    torch.manual_seed(seed)
    module = network.make().train()
    for part in module.modules():
        if isinstance(part, nn.Dropout) and not dropout:
            part.p = 0.0
        if isinstance(part, nn.MultiheadAttention) and not dropout:
            part.dropout = 0.0
    if weights:
        module.load_state_dict(weights)
    return network, module


def samples(network, count, seed=0):
    """`count` samples of every input, and of the labels."""
    generator = torch.Generator().manual_seed(seed)

    def values(entry):
        shape = (count, *entry.shape)
        if entry.ones:
            return torch.ones(shape, dtype=torch.int64)
        if entry.below:
            return torch.randint(entry.below, shape, generator=generator)
        return torch.randn(shape, generator=generator)
    return [values(entry) for entry in network.inputs], values(network.label)


def loss_of(network, outputs, label):
    """Cross-entropy of the logits (classes last), and what the outputs after them add."""
    def cross_entropy(logits):
        return functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), label.reshape(-1))
    if not isinstance(outputs, tuple):
        return cross_entropy(outputs)
    total = cross_entropy(outputs[0])
    for (name, weight), other in zip(network.auxiliary.items(), outputs[1:]):
        total = total + weight * (other if name in network.losses() else cross_entropy(other))
    return total


def with_loss(network, module):
    """Makes the module compute its loss: its inputs are then the network's and the label, its outputs the loss and network.losses().
    Names stay what they are."""
    forward = module.forward

    def forward_with_loss(*inputs):
        outputs = forward(*inputs[:-1])
        loss = loss_of(network, outputs, inputs[-1])
        return (loss, *outputs[1:]) if network.losses() else loss
    module.forward = forward_with_loss
    return module
