#!/usr/bin/python3
"""Compares values and gradients with PyTorch's at the edges of each function's domain.

    edges.py [NAME…] [--engines=interpreter,cpu] [--build=build/release] [--work=DIR] [--reuse] [--operators] [--all] [--list]
    edges.py --write-tests=test/Ops/Inputs/edges

Each case of edge_cases.py is a small ONNX graph and the same function in PyTorch. The inputs lie at zeros, ties, bounds,
infinities and where a float overflows. Every input is a trained parameter; the loss is the sum of output · fixed numbers.
pdc-eval computes the output and the gradients with each engine, several cases in one model, so that fusion meets them together.
The table has a line for each value that differs by more than 2e-5 relative, or is finite, infinite or NaN where PyTorch's is
not; --all prints the lines that agree too. The exit status says whether all agree.

Cases named torch/… are exported by PyTorch's exporters, each by both, so the graphs are what users have.

Needs torch 2.15, onnx and onnxscript; test/Ops has the values that were once wrong, as numbers.
"""
import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import numpy
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper

from edge_values import as_entry, differences, gradient_of, tensors, weights_of

TOGETHER = 24

# Where pdc does not follow PyTorch, and why.
OTHERWISE = {
    "GridSample nearest reflection 0": "ONNX rounds a position and reflects it then, PyTorch the other way round",
    "Det": "PyTorch has the gradient 0 at singular matrices; that of the definition is the adjugate",
    "torch/max of a dimension": "exporters write max(dim) as ReduceMax, whose gradient is that of amax",
    "torch/min of a dimension": "exporters write min(dim) as ReduceMin, whose gradient is that of amin",
    "torch/clamp by tensors": "exporters write a maximum and a minimum, which share gradients one after the other",
    **dict.fromkeys(("torch/xlogy", "torch/entropy", "torch/sinc", "torch/atan2"),
                    "exporters write a Where, the branch of which that is not chosen has no finite derivative"),
    **dict.fromkeys(("torch/binary_cross_entropy", "torch/binary_cross_entropy, wrong"),
                    "PyTorch divides by 1e-12 at least; limited logarithms, as exporters write them, have the gradient 0"),
    "torch/logaddexp": "exporters write exponentials, which overflow",
    "torch/attention": "the default exporter masks with the lowest finite number, so that hidden keys are seen alike",
    "torch/attention, float mask": "exporters write a Softmax, which has no value without a key",
    "torch/pairwise_distance": "the older exporter leaves the epsilon out",
    "torch/cross_entropy, smoothed": "exporters leave the smoothing out",
    "torch/cosine_embedding_loss": "exporters leave the epsilon out",
}
# Values that were wrong once, as tests without PyTorch: test/Ops/NAME.test.
TESTS = {
    "lengths-of-zero": ["ReduceL2, axis 1", "ReduceL2 of all", "ReduceL2 of two axes", "Sqrt of ReduceSumSquare", "LpPool 2", "LpPool 3",
                        "GlobalLpPool 3", "normalize by hand", "norm of order 3 by hand", "std by hand", "cosine_similarity by hand",
                        "pairwise_distance by hand"],
    "powers-at-zero": ["Pow", "Pow as in fault", "Pow, exponent 0.0", "Pow, base 0.0", "Pow, exponent shared", "Pow, exponent 0.5"],
    "products-with-zeros": ["ReduceProd, axis 1", "ReduceProd, axis 0", "ReduceProd of all", "ReduceProd of two axes", "ReduceProd, axes apart",
                            "ReduceProd of one"],
    "ties-share-gradients": ["Max", "Min", "Max with a constant", "Min with a constant", "Max of three", "Clip", "Clip, crossed",
                             "ReduceMax, axis 1", "ReduceMin, axis 0", "TopK of ties", "MaxPool of ties", "GlobalMaxPool of"],
    "what-is-not-taken-has-no-gradient": ["Log after Relu", "Sqrt after Relu", "Reciprocal after Clip", "Log after Max", "Log after HardSigmoid",
                                          "Log before Where", "Where before Log", "Where, NaN not chosen", "Softmax of masked_fill", "safe softmax by hand", "attention by hand, NaN replaced"],
    "ends-of-domains": ["Asinh", "Acosh", "Atanh", "HardSwish", "HardSigmoid", "ThresholdedRelu", "Shrink lambd=0.5 bias", "Asin", "Acos"],
    "logarithms-of-sums": ["ReduceLogSumExp, axis 1", "ReduceLogSumExp, axis 0", "ReduceLogSumExp of one", "Log of Sigmoid",
                           "Log of 1 - Sigmoid", "binary cross-entropy by hand", "SoftmaxCrossEntropyLoss none", "SoftmaxCrossEntropyLoss sum",
                           "SoftmaxCrossEntropyLoss, each", "NegativeLogLikelihoodLoss, ignored"],
    "resize-beyond-the-image": ["Resize cropped"],
    "grids-at-borders": ["GridSample bilinear border 0", "GridSample bilinear border 1", "GridSample bilinear reflection 0",
                         "GridSample bilinear reflection 1", "GridSample bicubic border 0", "GridSample bicubic border 1"],
}


class Graph:
    """Nodes of several cases."""

    def __init__(self):
        self.nodes, self.initializers, self.count = [], [], 0

    def name(self, kind):
        self.count += 1
        return f"{kind}{self.count}"

    def __call__(self, kind, *inputs, outputs=1, **attributes):
        """The output of a node, or the list of its outputs. Arrays among the inputs become constants."""
        inputs = [entry if entry is None or isinstance(entry, str) else self.constant(entry) for entry in inputs]
        names = [self.name(kind.lower()) for _ in range(outputs)]
        self.nodes.append(helper.make_node(kind, ["" if entry is None else entry for entry in inputs], names, names[0],
                                           **attributes))
        return names[0] if outputs == 1 else names

    def constant(self, value):
        name = self.name("constant")
        self.nodes.append(helper.make_node("Constant", [], [name], value=numpy_helper.from_array(numpy.asarray(value), name)))
        return name


class Case:
    def __init__(self, name, values, node, function, opset=20):
        self.name, self.node, self.function = name, node, function
        self.opset = opset  # of exported ones: whether by the newer exporter
        self.values = [numpy.asarray(value, numpy.float32) for value in values]

    def reference(self):
        """The value, and the gradients of the inputs; none where an input is NaN, for then nothing is lost."""
        leaves = [torch.tensor(value, requires_grad=True) for value in self.values]
        y = self.function(*(leaf if self.node else leaf + 0 for leaf in leaves))
        (y * torch.tensor(weights_of(y.shape))).sum().backward()
        return y.detach().numpy(), [numpy.zeros_like(value) if leaf.grad is None else leaf.grad.numpy()
                                    for leaf, value in zip(leaves, self.values)]

    def stored(self, number):
        """The values as parameters, flat, with a number at the end that makes each differ from all others: exporters merge equal
        ones."""
        return [numpy.append(value.ravel(), numpy.float32(1000 + 10 * number + k)) for k, value in enumerate(self.values)]


def onnx_model(graph, inputs, outputs, opset):
    """Of nodes; inputs and outputs are shapes by name."""
    described = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in entries.items()]
                 for entries in (inputs, outputs)]
    made = helper.make_graph(graph.nodes, "edges", *described, graph.initializers)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def write(cases, references, folder):
    """model.onnx with all of `cases`, and in/*.npy: the fixed numbers, which are its data. The names of each one's parameters."""
    shutil.rmtree(folder, ignore_errors=True)
    if not cases[0].node:
        from edge_exports import export
        return export(cases, [weights_of(y.shape) for y, _ in references], folder, newer=cases[0].opset is True)
    graph, inputs, outputs, terms, parameters = Graph(), {}, {}, [], []
    (folder / "in").mkdir(parents=True)
    for i, (case, (y, _)) in enumerate(zip(cases, references)):
        names = []
        for k, value in enumerate(case.stored(i)):
            names.append(f"w{i}_{k}")
            graph.initializers.append(numpy_helper.from_array(value, names[-1]))
        parameters.append(names)
        starts, ends = numpy.array([0], numpy.int64), numpy.array([-1], numpy.int64)
        graph("Identity", case.node(graph, *(graph("Reshape", graph("Slice", name, starts, ends), numpy.array(value.shape, numpy.int64))
                                             for name, value in zip(names, case.values))))
        graph.nodes[-1].output[0] = f"y{i}"
        inputs[f"r{i}"] = outputs[f"y{i}"] = y.shape
        numpy.save(folder / "in" / f"r{i}.npy", weights_of(y.shape))
        terms.append(graph("ReduceSum", graph("Mul", f"y{i}", f"r{i}"), keepdims=0))
    graph("Sum", *terms)
    graph.nodes[-1].output[0] = "loss"
    onnx.save(onnx_model(graph, inputs, {**outputs, "loss": []}, cases[0].opset), folder / "model.onnx")
    return parameters


def evaluate(build, folder, engine):
    """The folder with values and gradients that pdc-eval wrote, or what it said."""
    out = folder / engine
    for more in ([], ["--gradients", "--loss=output:loss"]):
        command = [build / "bin" / "pdc-eval", folder / "model.onnx", "--inputs", folder / "in", "--outputs", out, "--engine", engine]
        result = subprocess.run([str(word) for word in command] + more, capture_output=True, text=True)
        if result.returncode != 0:
            return None, result.stderr.strip()
    return out, ""


def report(case, engine, reference, y, gradients, show_all):
    good = True
    lines = [("value", y, reference[0], None)]
    for k, (gradient, expected) in enumerate(zip(gradients, reference[1])):
        lines.append((f"gradient {k}", gradient, expected, numpy.isnan(case.values[k])))
    for what, actual, expected, skipped in lines:
        wrong = differences(actual, expected, skipped)
        reason = OTHERWISE.get(case.name.removesuffix(", older"))
        if wrong and reason:
            print(f"{case.name:32} {engine:12} {what:11} otherwise: {reason}", flush=True)
            continue
        good &= not wrong
        if wrong or show_all:
            print(f"{case.name:32} {engine:12} {what:11} {'; '.join(wrong[:6]) or 'agrees'}{' …' if len(wrong) > 6 else ''}",
                  flush=True)
    return good


def run(cases, options, folder):
    """Whether all of `cases`, of one opset, agree; one by one where they do not compile together."""
    references = [case.reference() for case in cases]
    good = True
    known = folder / "parameters.json"
    asked = [case.name for case in cases]
    try:
        if options.reuse and known.exists() and json.loads(known.read_text())[0] == asked:
            parameters = json.loads(known.read_text())[1]
        else:
            parameters = write(cases, references, folder)
            known.write_text(json.dumps([asked, parameters]))
    except Exception as error:  # whatever an exporter may throw
        if len(cases) > 1:
            return all([run([case], options, folder / str(i)) for i, case in enumerate(cases)])
        print(f"{cases[0].name:32} {'exporter':12} {str(error).strip().splitlines()[:1]}", flush=True)
        return True
    for engine in options.engines.split(","):
        out, error = evaluate(options.build, folder, engine)
        if out is None and len(cases) > 1:
            return all([run([case], options, folder / str(i)) for i, case in enumerate(cases)])
        if out is None:
            print(f"{cases[0].name:32} {engine:12} {error}", flush=True)
            good = False
            continue
        found = tensors(out / "gradients.safetensors")
        for i, (case, reference) in enumerate(zip(cases, references)):
            gradients = [gradient_of(found, name, value.shape) for name, value in zip(parameters[i], case.values)]
            good &= report(case, engine, reference, numpy.load(out / f"y{i}.npy"), gradients, options.all)
    return good


def write_tests(cases, folder):
    for test, beginnings in TESTS.items():
        chosen = [case for case in cases if case.opset == 20 and case.node and any(case.name.startswith(name) for name in beginnings)]
        references = [case.reference() for case in chosen]
        write(chosen, references, folder / test)
        shutil.move(folder / test / "model.onnx", folder / f"{test}.onnx")
        shutil.rmtree(folder / test)
        kept = [{"name": case.name, "value": as_entry(y), "gradients": [as_entry(gradient, numpy.isnan(value)) for gradient, value in zip(gradients, case.values)]}
                for case, (y, gradients) in zip(chosen, references)]
        text = json.dumps({"source": f"PyTorch {torch.__version__}, by utils/models/edges.py", "cases": kept}, indent=1)
        (folder / f"{test}.json").write_text(re.sub(r"\n {4,}", " ", text) + "\n")


def main():
    import edge_exports  # noqa: F401 (adds cases, as edge_layers does)
    from edge_cases import CASES
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--engines", default="interpreter,cpu")
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build/release"))
    parser.add_argument("--work", type=pathlib.Path)
    parser.add_argument("--reuse", action="store_true", help="the models in --work, where they are there")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--operators", action="store_true", help="without those that exporters write")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--write-tests", type=pathlib.Path, metavar="DIR", help="models and numbers of test/Ops")
    options = parser.parse_args()
    if options.write_tests:
        write_tests(CASES, options.write_tests)
        return 0
    cases = [case for case in CASES if not options.names or any(name in case.name for name in options.names)]
    if options.operators:
        cases = [case for case in cases if case.node]
    if options.list:
        print("\n".join(case.name for case in cases))
        return 0
    folder = options.work or pathlib.Path(tempfile.mkdtemp(prefix="edges."))
    good, number = True, 0
    for kind in dict.fromkeys((case.node is None, case.opset) for case in cases):
        alike = [case for case in cases if (case.node is None, case.opset) == kind]
        for first in range(0, len(alike), TOGETHER):
            number += 1
            good &= run(alike[first:first + TOGETHER], options, folder / str(number))
    print(f"{len(cases)} cases: {'all agree' if good else 'some differ'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
