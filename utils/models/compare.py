#!/usr/bin/python3
"""Trains networks with pdc and with PyTorch, and compares losses and gradients.

    compare.py [NAME…] [--full] [--stages=1,3] [--teams=1] [--split=tp|tps|sp|ep] [--quick] [--negative] [--build=build/release] [--work=DIR]

Each network, small, is exported in training mode, compiled to 1 and 3 stages with 1f1b-flush, each of which a team of
so many members divides (--split=tp:N,all; --split=tps, sp and ep: tps:N,all, sp:N and ep:N), built, and trained for 10 steps.
The norm-wise error of the losses, and of the gradient of every parameter in the first step, against PyTorch in f64 may
be 3 times PyTorch's own in f32, the largest of three runs that differ in rounding (reference.py; 1e-6 where that is
smaller). No ReLU of the first step is near its kink (kinks.py). Without names: two networks; with --full: all.
--quick compares the first minibatch's loss and gradients as pdc-eval computes them, without compiling; --inference does so
with an export for inference, whose weights are renamed, transposed, packed and merged, whose BatchNorm is folded into
convolutions, or keeps its statistics (folded.py).
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy
import onnx
import torch
from onnx import numpy_helper

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "test" / "EndToEnd" / "Inputs"))
import exported
from export import export
from folded import as_exported
from networks import NETWORKS, PUBLISHED, build
from reference import add_options, compared, reference, settled_weights

FLOOR, ALLOWED = 1e-6, 3
# With this learning rate a step of SGD shows the gradient: (w0 - w1) / lr, rounded once as long as w0 is small beside it.
REVEALING = 2.0 ** 40


class Failed(Exception):
    pass


def run(command, **more):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True, env=environment, **more)
    if result.returncode != 0:
        raise Failed(f"{' '.join(str(word) for word in command)}\n{result.stdout[-2000:]}{result.stderr[-3000:]}")


def tensors(folder):
    """All f32 and f64 tensors of the safetensors files in `folder`, in f64; what members of a team have parts of, whole."""
    elements = {"F32": "<f4", "F64": "<f8"}
    return {name: numpy.frombuffer(values, elements[element]).reshape(shape).astype(numpy.float64)
            for name, (element, shape, values) in exported.tensors(folder).items() if element in elements}


def error(value, exact):
    """Norm-wise, relative; absolute where the exact value vanishes."""
    norm = numpy.linalg.norm(exact)
    return numpy.linalg.norm(value - exact) / (norm if norm > 1e-12 else 1.0)


class Comparison:
    def __init__(self, folder):
        self.folder = folder
        self.worst, self.where, self.failures, self.gradients = 0.0, "nothing", [], 0

    def judge(self, name, value, exact, singles):
        """`singles`: what runs of PyTorch in f32 have for it."""
        pdc, torch32 = error(value, exact), max(error(single, exact) for single in singles)
        ratio = pdc / max(torch32, FLOOR)
        if not ratio <= self.worst:
            self.worst, self.where = ratio, name
        if not ratio <= ALLOWED:
            self.failures.append(f"{name}: pdc {pdc:.2e}, PyTorch in f32 {torch32:.2e}")

    def judge_gradients(self, gradients):
        for path in sorted((self.folder / "f64" / "gradients").glob("*.npy")):
            self.gradients += 1
            if path.stem not in gradients:
                self.failures.append(f"{path.stem}: pdc has no gradient")
                continue
            singles = [numpy.load(path) for path in self.folder.glob(f"f32*/gradients/{path.name}")]
            self.judge(path.stem, gradients[path.stem], numpy.load(path), singles)

    def judge_losses(self, losses):
        exact = numpy.load(self.folder / "f64" / "losses.npy")
        singles = [numpy.load(path) for path in self.folder.glob("f32*/losses.npy")]
        self.judge("losses", numpy.array(losses).reshape(len(exact), -1).mean(axis=1), exact, singles)

    def verdict(self, what):
        for failure in self.failures[:10]:
            print("  " + failure)
        if len(self.failures) > 10:
            print(f"  … and {len(self.failures) - 10} more")
        print(f"{what}: {self.gradients} gradients and the losses {'NOT ' if self.failures else ''}within {ALLOWED} "
              f"times the error of PyTorch in f32 (worst {self.worst:.2f}, {self.where})", flush=True)
        return not self.failures and self.gradients > 0


def flags_of(name, size):
    """What a user says to train this network: which loss, and which buffers are no weights."""
    network, module = build(name, size)
    loss = "output:loss" if network.auxiliary else "softmax-cross-entropy:logits"
    buffers = [buffer for buffer, values in module.named_buffers()
               if values.is_floating_point() and not re.search(r"running_(mean|var)$", buffer)]
    return [f"--loss={loss}", *(["--freeze=^(" + "|".join(map(re.escape, buffers)) + ")$"] if buffers else [])]


def train(name, stages, members, options, folder, model):
    """Compiled to this many stages, each for a team of so many."""
    out = folder / f"stages{stages}x{members}"
    run([options.bin / "pdc", "--target=cpu", model, "-o", out, "--replicas=" + ",".join(["1"] * stages), f"--batch={options.batch}",
         "--schedule=1f1b-flush", f"--microbatches={options.microbatches}", "--profile=analytic",
         f"--optimizer=sgd,lr={options.lr}", *flags_of(name, options.size),
         *([f"--devices={stages * members}", f"--split={options.split}:{members}" + (",all" if options.split.startswith("tp") else "")] if members > 1 else [])])
    run(["cmake", "-S", out, "-B", out / "out", "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={options.build.resolve()}"])
    run(["cmake", "--build", out / "out", "--target", "pipeline"])
    what = f"{name}, {stages} stage{'s' * (stages > 1)}" + (f", teams of {members}" if members > 1 else "")
    comparison = Comparison(folder)
    comparison.judge_gradients(gradients(out, folder / "data", "off"))
    run([*program(out, folder / "data"), "--steps", options.steps, "--metrics", out / "metrics.jsonl"])
    comparison.judge_losses([json.loads(line)["loss"] for line in open(out / "metrics.jsonl") if '"loss"' in line])
    good = comparison.verdict(what)
    if options.negative:
        comparison = Comparison(folder)
        comparison.judge_gradients(gradients(out, folder / "data", "on"))
        good = good and bool(comparison.failures)
        print(f"{what}: the comparison notices {'gradients of other samples' if comparison.failures else 'NOTHING'}")
    return good


def program(out, data, shuffle="off"):
    return [out / "out" / "pipeline", "--dir", out, "--threads", "--data", data, "--shuffle", shuffle]


def gradients(out, data, shuffle):
    run([*program(out, data, shuffle), "--steps", "1", "--lr", REVEALING, "--export-weights", out / "revealed"])
    before, after = tensors(out / "weights"), tensors(out / "revealed")
    return {name: (before[name] - after[name]) / REVEALING for name in after}


def evaluate(name, options, folder, model, weights):
    """The first minibatch, by the interpreter in f32."""
    first = folder / "first"
    first.mkdir(exist_ok=True)
    for path in (folder / "data").glob("*.npy"):
        numpy.save(first / path.name, numpy.load(path)[:options.batch])
    run([options.bin / "pdc-eval", model, "--inputs", first, "--outputs", folder / "eval", "--gradients",
         "--engine=interpreter", f"--batch={options.batch}", *flags_of(name, options.size)])
    found = tensors(folder / "eval")
    if options.inference:
        found = with_original_names(found, model, name, options, weights)
    comparison = Comparison(folder)
    comparison.judge_gradients(found)
    comparison.judge_losses([float(numpy.load(folder / "eval" / "loss.npy"))])
    return comparison.verdict(f"{name}, interpreted")


def with_original_names(gradients, model, name, options, weights):
    """Gradients of weights that export has renamed, transposed or packed, as the network calls them."""
    _, module = compared(name, options, weights)
    original = {key: value.detach().numpy() for key, value in module.named_parameters()}
    found = {key: gradient for key, gradient in gradients.items() if key in original}
    graph = onnx.load(model).graph
    hidden = {operand: attribute.i for node in graph.node if node.op_type == "LSTM"
              for attribute in node.attribute if attribute.name == "hidden_size" for operand in node.input[1:4]}
    for tensor in graph.initializer:
        if tensor.name in original or tensor.name not in gradients:
            continue
        pairs = (unpacked(values, hidden.get(tensor.name))
                 for values in (numpy_helper.to_array(tensor), gradients[tensor.name]))
        for values, gradient in zip(*pairs):
            equal = [key for key, weight in original.items() if key not in found and numpy.array_equal(weight, values)]
            if equal:
                found[equal[0]] = gradient
    return found


def unpacked(values, hidden):
    """What PyTorch has for an initializer. Matrices are transposed, filters are not. An LSTM's, of `hidden` cells, has an axis for its directions and the gates in the
    order i, o, f, c where PyTorch has i, f, c, o; its bias is the input's, then the state's."""
    if not hidden:
        return [values.T if values.ndim == 2 else values]
    parts = [part for direction in values for part in direction.reshape(-1, 4, hidden, *direction.shape[1:])]
    return [part[[0, 2, 3, 1]].reshape(-1, *part.shape[2:]) for part in parts]


def compare(name, options, folder):
    model = folder / "model.onnx"
    loss = bool(NETWORKS[name][options.size].auxiliary)
    weights = settled_weights(name, options)
    export(name, str(model), options.size, loss=loss, dropout=False, inference=options.inference, weights=weights)
    if options.inference:
        weights = as_exported(build(name, options.size, dropout=False, weights=weights)[1], model)
    reference(name, folder, weights, options)
    if options.quick:
        return evaluate(name, options, folder, model, weights)
    return all([train(name, int(stages), int(members), options, folder, model)
                for stages in options.stages.split(",") for members in options.teams.split(",")])


def agrees(name, options):
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.work or pathlib.Path(temporary)) / name
        folder.mkdir(parents=True, exist_ok=True)
        try:
            return compare(name, options, folder)
        except Failed as failure:
            print(f"{name}: FAILED: {failure}", flush=True)
            return False


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", choices=[[], *sorted(NETWORKS)], metavar="NAME")
    add_options(parser)
    root = pathlib.Path(__file__).resolve().parents[2]
    parser.add_argument("--build", type=pathlib.Path, default=root / "build" / "release")
    parser.add_argument("--stages", default="1,3")
    parser.add_argument("--teams", default="1", help="members of the team that divides each stage")
    parser.add_argument("--split", choices=["tp", "tps", "sp", "ep"], default="tp",
                        help="teams divide weights, these and positions, positions, or samples and experts")
    parser.add_argument("--full", action="store_true", help="all networks")
    parser.add_argument("--quick", action="store_true", help="gradients of one minibatch, by the interpreter")
    parser.add_argument("--negative", action="store_true", help="train with other samples too, which must be noticed")
    parser.add_argument("--work", type=pathlib.Path, help="keep everything in this folder")
    options = parser.parse_args()
    options.bin = options.build / "bin"
    options.quick |= options.inference
    if options.quick:
        options.steps, options.microbatches = 1, 1
    names = options.names or (PUBLISHED if options.full else ["gpt2", "mobilenet-v2"])
    torch.set_num_threads(1)
    wrong = []
    for name in names:
        if not agrees(name, options):
            wrong.append(name)
    print(f"{len(names) - len(wrong)} of {len(names)} networks agree with PyTorch" +
          (f"; not: {', '.join(wrong)}" if wrong else ""))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
