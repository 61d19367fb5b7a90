#!/usr/bin/python3
"""Prepares a comparison with f64 on a machine that has a GPU and neither pdc nor PyTorch (utils/check-gpu).

    exact.py NAME DIR [--build=build/release]

The network, small, is trained for 10 steps of 2 microbatches by PyTorch in f64 and by pdc's program for the CPU, as in compare.py.
Writes the program for CUDA into DIR/program, the samples into DIR/data, and DIR/exact.json: the losses in f64, of each parameter every
k-th element of the gradient of the first step, and how far the CPU's program is from them: of the losses, norm-wise; of the
gradients, norm-wise for each parameter over these elements, then the root of the mean square over all parameters. Of the losses it is
the largest of runs that differ in the weights' last bits (prepared.py): these decide whether a ReLU of a later step is passed, and a
single run may be right by chance.
"""
import argparse
import json
import pathlib
import shutil
import tempfile

import numpy
import torch

from compare import error, flags_of, gradients, program, run
from export import export
from networks import NETWORKS
from prepared import NUDGED, nudged
from reference import add_options, samples_of, save, settled_weights, train

SAMPLED = 256  # elements of a gradient, at most twice that


def step_of(values):
    return max(1, values.size // SAMPLED)


def sampled(values):
    return numpy.asarray(values, numpy.float64).reshape(-1)[::step_of(values)]


def error_of_losses(cpu, data, exact):
    """Of a run of the CPU's program."""
    run([*program(cpu, data), "--steps", len(exact), "--metrics", cpu / "metrics.jsonl"])
    found = [json.loads(line)["loss"] for line in open(cpu / "metrics.jsonl") if '"loss"' in line]
    return error(numpy.array(found).reshape(len(exact), -1).mean(axis=1), exact)


def prepare(name, folder, options):
    build = options.build.resolve()
    network = NETWORKS[name][options.size]
    weights = settled_weights(name, options)
    inputs, label = samples_of(network, options)
    save(folder / "data", {entry.name: values for entry, values in zip((*network.inputs, network.label), (*inputs, label))})
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        train(name, work / "f64", torch.float64, (inputs, label), weights, options)
        export(name, str(work / "model.onnx"), options.size, loss=bool(network.auxiliary), dropout=False, weights=weights)
        flags = ["--replicas=1", f"--batch={options.batch}", "--schedule=1f1b-flush", f"--microbatches={options.microbatches}",
                 "--profile=analytic", f"--optimizer=sgd,lr={options.lr}", *flags_of(name, options.size)]
        run([build / "bin/pdc", work / "model.onnx", "-o", folder / "program", "--target=cuda", *flags])
        cpu = work / "cpu"
        run([build / "bin/pdc", "--target=cpu", work / "model.onnx", "-o", cpu, *flags])
        run(["cmake", "-S", cpu, "-B", cpu / "out", "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={build}"])
        run(["cmake", "--build", cpu / "out", "--target", "pipeline"])
        losses = numpy.load(work / "f64/losses.npy")
        exact = {path.stem: numpy.load(path) for path in sorted((work / "f64/gradients").glob("*.npy"))}
        own = gradients(cpu, folder / "data", "off")
        squares = [error(sampled(own[key]), sampled(values)) ** 2 for key, values in exact.items()]
        errors = [error_of_losses(cpu, folder / "data", losses) for _ in nudged(cpu / "weights", NUDGED)]
    (folder / "exact.json").write_text(json.dumps({
        "steps": options.steps, "losses": losses.tolist(),
        "gradients": {key: {"every": step_of(values), "values": sampled(values).tolist()} for key, values in exact.items()},
        "cpu": {"losses": max(errors), "gradients": float(numpy.sqrt(numpy.mean(squares)))}}) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=sorted(NETWORKS))
    parser.add_argument("dir", type=pathlib.Path)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build/release"))
    add_options(parser)
    options = parser.parse_args()
    if options.dir.exists():
        shutil.rmtree(options.dir)
    prepare(options.name, options.dir.resolve(), options)


if __name__ == "__main__":
    main()
