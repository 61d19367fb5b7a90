"""What an architecture of the sweep is, and the table of all of them."""
import dataclasses

import torch
from torch import nn

NETWORKS = {}  # name: (title, function)


@dataclasses.dataclass
class Case:
    module: nn.Module
    inputs: dict  # name: tensor, in the order of forward
    loss: str = "ce"  # of logits, or mse
    training: bool = False  # exported in training mode, because of BatchNorm
    flags: tuple = ()  # that a user has to give beside batch and loss
    batch: int = 4
    fresh: bool = False  # exported before anything was learned, with the equal parameters of initialisation
    dynamic: bool = False  # exported with a symbolic batch
    classes: int | None = None  # of the labels, where it is not the outputs' last axis


def network(title):
    def add(function):
        NETWORKS[function.__name__.replace("_", "-")] = (title, function)
        return function
    return add


def images(size=32, channels=3, batch=4):
    return {"x": torch.randn(batch, channels, size, size)}


def tokens(vocabulary=64, length=8, batch=4):
    return {"input_ids": torch.randint(2, vocabulary, (batch, length))}
