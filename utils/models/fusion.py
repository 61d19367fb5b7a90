#!/usr/bin/python3
"""Compares generated code whose operations are fused with code that has one kernel for each operation.

    fusion.py [NAME…] [--full] [--batch=4] [--build=build/release] [--work=DIR]

Each network, small, is exported in training mode; pdc-eval computes the loss and every gradient of one minibatch in generated code, as
training does and with --unfused. The norm-wise relative difference of the loss and of each gradient may be 1e-6. Every fusion group that learns has a
gradient of its own among them; the others are seen in the gradients of what comes before them.
Without names: two networks; with --full: all.
"""
import argparse
import pathlib
import sys
import tempfile

import numpy
import torch

from compare import Failed, error, flags_of, run, tensors
from export import export
from networks import NETWORKS, PUBLISHED, samples

ALLOWED = 1e-6


def evaluated(name, options, folder, way):
    out = folder / (way.strip("-") or "fused")
    run([options.build / "bin/pdc-eval", folder / "model.onnx", "--inputs", folder, "--outputs", out, "--gradients", "--engine=cpu",
         f"--batch={options.batch}", *([way] if way else []), *flags_of(name, "small")])
    return {**tensors(out), "loss": numpy.load(out / "loss.npy")}


def agrees(name, options, folder):
    network = NETWORKS[name]["small"]
    folder.mkdir(parents=True, exist_ok=True)
    export(name, str(folder / "model.onnx"), "small", loss=bool(network.auxiliary))
    inputs, label = samples(network, options.batch)
    for entry, values in zip((*network.inputs, network.label), (*inputs, label)):
        numpy.save(folder / f"{entry.name}.npy", values.numpy())
    fused, unfused = evaluated(name, options, folder, ""), evaluated(name, options, folder, "--unfused")
    if fused.keys() != unfused.keys():
        raise Failed(f"of one alone: {', '.join(sorted(fused.keys() ^ unfused.keys()))}")
    differences = {key: error(fused[key], unfused[key]) for key in fused}
    worst = max(differences, key=differences.get)
    good = all(difference <= ALLOWED for difference in differences.values())  # NaN is none
    print(f"{name}: loss and {len(fused) - 1} gradients, fused and unfused, differ by at most {differences[worst]:.1e} of their norm"
          f"{'' if good else f', which is above {ALLOWED} ({worst})'}", flush=True)
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", choices=[[], *sorted(NETWORKS)], metavar="NAME")
    parser.add_argument("--batch", type=int, default=4)
    root = pathlib.Path(__file__).resolve().parents[2]
    parser.add_argument("--build", type=pathlib.Path, default=root / "build" / "release")
    parser.add_argument("--full", action="store_true", help="all networks")
    parser.add_argument("--work", type=pathlib.Path, help="keep everything in this folder")
    options = parser.parse_args()
    names = options.names or (PUBLISHED if options.full else ["resnet18", "gpt2"])
    torch.set_num_threads(1)
    wrong = []
    with tempfile.TemporaryDirectory() as temporary:
        for name in names:
            try:
                if not agrees(name, options, (options.work or pathlib.Path(temporary)) / name):
                    wrong.append(name)
            except Failed as failure:
                print(f"{name}: FAILED: {failure}", flush=True)
                wrong.append(name)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
