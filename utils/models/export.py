#!/usr/bin/python3
"""Exports a network of networks.py to ONNX, as a user of PyTorch would.

    export.py NAME OUT.onnx [--size=small|reduced|full] [--opset=N] [--batch=N] [--seed=0] [--inference] [--loss] [--no-dropout]
    export.py --list

In training mode with nothing folded: weights keep their names, ties stay ties, BatchNorm and Dropout are trained. The
batch is symbolic unless --batch fixes it. --loss puts the loss into the model, whose inputs are then those of the
network and `label`, and whose outputs are `loss` and the scalars that are a part of it, such as `balance_loss`; networks
with several outputs (inception-v3, mixtures of experts) want it. --inference shows what people have more often: a file for inference, with constants folded.
"""
import argparse
import pathlib
import warnings

import torch

from networks import NETWORKS, PUBLISHED, build, samples, with_loss


def export(name, path, size="small", opset=None, batch=None, seed=0, inference=False, loss=False, dropout=True,
           weights=None):
    network, module = build(name, size, seed, dropout, weights)
    inputs, label = samples(network, batch or 2)
    names, outputs = [entry.name for entry in network.inputs], ["logits"]
    if loss:
        module, inputs = with_loss(network, module), [*inputs, label]
        names, outputs = [*names, "label"], ["loss", *network.losses()]
    elif network.auxiliary and isinstance(module.train(not inference)(*inputs), tuple):  # Inception: in training only
        outputs += network.auxiliary
    symbolic = {} if batch else {entry: {0: "batch"} for entry in [*names, "logits"]}
    mode = torch.onnx.TrainingMode.EVAL if inference else torch.onnx.TrainingMode.TRAINING
    warnings.filterwarnings("ignore")
    pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    torch.onnx.export(module.train(not inference), tuple(inputs), path, opset_version=opset or network.opset,
                      training=mode, do_constant_folding=inference, input_names=names, output_names=outputs,
                      dynamic_axes={entry: axes for entry, axes in symbolic.items() if entry in names + outputs})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=sorted(NETWORKS), nargs="?")
    parser.add_argument("output", nargs="?")
    parser.add_argument("--list", action="store_true", help="print the names of the published networks")
    parser.add_argument("--size", choices=["small", "reduced", "full", "text", "hosts"], default="small")
    parser.add_argument("--opset", type=int)
    parser.add_argument("--batch", type=int, help="fixed instead of symbolic")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--inference", action="store_true", help="in inference mode, with constants folded")
    parser.add_argument("--loss", action="store_true", help="with the loss inside")
    parser.add_argument("--no-dropout", action="store_true", help="every Dropout keeps everything")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(PUBLISHED))
        return
    if not arguments.output:
        parser.error("NAME and OUT.onnx are needed")
    export(arguments.name, arguments.output, arguments.size, arguments.opset, arguments.batch, arguments.seed,
           arguments.inference, arguments.loss, not arguments.no_dropout)


if __name__ == "__main__":
    main()
