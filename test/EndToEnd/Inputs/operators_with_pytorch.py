"""operators_with_pytorch.py PDC_EVAL FOLDER CASE…: gradients through operators, against PyTorch's in f64.

Each case is a graph whose last value is multiplied with fixed numbers and summed up to a loss. The gradients are computed by the
interpreter in f64, and by generated code in f32.
"""
import pathlib
import subprocess
import sys

import numpy
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import exported  # noqa: E402

node = helper.make_node
rng = numpy.random.default_rng(11)


def drawn(*shape, spread=0.5):
    return (rng.standard_normal(shape) * spread).astype(numpy.float32)


def fixed(name, value):
    return node("Constant", [], [name], value=numpy_helper.from_array(numpy.asarray(value), name + "_value"))


class Case:
    """`trained`: parameters by name. `constants`: constants by name, as the graph and PyTorch read them. The graph computes y."""

    def __init__(self, nodes, trained, constants, function, opset=17, flags=(), tolerance=1e-6):
        self.nodes, self.trained, self.constants = nodes, trained, constants
        self.function, self.opset, self.flags, self.tolerance = function, opset, list(flags), tolerance
        self.weights = drawn(*self.by_pytorch()[0].shape, spread=1)

    def by_pytorch(self):
        parameters = {name: torch.tensor(value).double().requires_grad_() for name, value in self.trained.items()}
        constants = {name: torch.tensor(value) for name, value in self.constants.items()}
        constants = {name: value.double() if value.is_floating_point() else value for name, value in constants.items()}
        return self.function(**parameters, **constants), parameters

    def gradients(self):
        result, parameters = self.by_pytorch()
        (result * torch.tensor(self.weights).double()).sum().backward()
        return {name: p.grad.numpy() if p.grad is not None else numpy.zeros(p.shape) for name, p in parameters.items()}

    def nodes_as(self, prefix):
        """The nodes, with a prefix before all names; the last gives the loss."""
        tail = [fixed("weights", self.weights), node("Mul", ["y", "weights"], ["weighted"]),
                node("ReduceSum", ["weighted"], ["loss"], keepdims=0)]
        made = []
        for each in [*(fixed(name, value) for name, value in self.constants.items()), *self.nodes, *tail]:
            copy = onnx.NodeProto()
            copy.CopyFrom(each)
            copy.input[:] = [prefix + name if name else "" for name in each.input]
            copy.output[:] = [prefix + name for name in each.output]
            made.append(copy)
        return made


def write(path, cases):
    """One model for all cases, whose losses add up."""
    (opset,) = {case.opset for case in cases.values()}
    nodes = [made for name, case in cases.items() for made in case.nodes_as(name + "/")]
    nodes.append(node("Sum", [f"{name}/loss" for name in cases], ["loss"]))
    graph = helper.make_graph(
        nodes, "operators", [helper.make_tensor_value_info("one", TensorProto.FLOAT, [])],
        [helper.make_tensor_value_info("loss", TensorProto.FLOAT, [])],
        [numpy_helper.from_array(value, f"{name}/{key}") for name, case in cases.items() for key, value in case.trained.items()])
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", opset)]), path)


def run(tool, place, flags, engine):
    subprocess.run([tool, "model.onnx", "--inputs=.", f"--outputs={engine}", "--gradients", f"--engine={engine}",
                    *(["--precision=f64"] if engine == "interpreter" else []), *flags], cwd=place, check=True)
    found = {}
    for name, (kind, shape, content) in exported.tensors(place / engine).items():
        found[name] = numpy.frombuffer(content, {"F32": numpy.float32, "F64": numpy.float64}[kind]).reshape(shape)
    return found


def compare(case, engine, found, expected, tolerance):
    for parameter, value in expected.items():
        name = f"{case}/{parameter}"
        if name not in found:
            sys.exit(f"{engine}: no gradient of {name}")
        error = numpy.abs(found[name] - value).max() / max(numpy.abs(value).max(), 1e-3)
        if not error <= tolerance:
            sys.exit(f"{engine}: gradient of {name} is off by {error:.3g}:\n{found[name]}\nexpected\n{value}")
        if engine == "interpreter" and (found[name][value == 0] != 0).any():
            sys.exit(f"{engine}: gradient of {name} is not 0 where PyTorch's is:\n{found[name]}\n{value}")


# Fake quantisation. Values at and just beyond the last integers, where rounding decides, are among them.

def edges(scale, zero, low, high):
    steps = numpy.array([low - 1, low - 0.75, low - 0.25, low, low + 0.25, 0, high - 0.25, high, high + 0.25, high + 0.75, high + 1.5,
                         7.25])
    return ((steps - zero) * scale).astype(numpy.float32).reshape(3, 4)


def pair(between=(), scale="s", zero="z", **attributes):
    quantized = "q"
    nodes = [node("QuantizeLinear", ["x", scale, zero], ["q"], **attributes)]
    for kind, inputs, options in between:
        nodes.append(node(kind, [quantized, *inputs], [quantized + "'"], **options))
        quantized += "'"
    return [*nodes, node("DequantizeLinear", [quantized, scale, zero], ["y"], **attributes)]


def per_tensor(low, high):
    return lambda x, s, z, **_: torch.fake_quantize_per_tensor_affine(x, float(s), int(z), low, high)


def straight_through(x, s, z, low, high):
    """What torch.fake_quantize computes, where PyTorch 1.13 has no way to say it."""
    q = torch.round(x / s) + z.double()
    inside = ((q >= low) & (q <= high)).double()
    return (torch.clamp(q, low, high).sub(z.double()) * s).detach() + (x * inside - (x * inside).detach())


def per_channel(axis, low, high):
    def function(x, s, z):
        shape = [1] * x.dim()
        shape[axis] = -1
        return straight_through(x, s.reshape(shape), z.reshape(shape), low, high)
    return function


f32 = numpy.float32
CASES = {
    "signed": lambda: Case(pair(), {"x": edges(0.05, 3, -128, 127)}, {"s": f32(0.05), "z": numpy.int8(3)}, per_tensor(-128, 127)),
    "unsigned": lambda: Case(pair(), {"x": edges(0.1, 8, 0, 255)}, {"s": f32(0.1), "z": numpy.uint8(8)}, per_tensor(0, 255)),
    "seven-bits": lambda: Case(
        pair([("Clip", ["least", "most"], {})]), {"x": edges(0.1, 0, 0, 127)},
        {"s": f32(0.1), "z": numpy.uint8(0), "least": numpy.uint8(0), "most": numpy.uint8(127)}, per_tensor(0, 127)),
    "moved": lambda: Case(
        pair([("Reshape", ["shape"], {}), ("Transpose", [], {"perm": [1, 0]})]), {"x": edges(0.05, 0, -128, 127)},
        {"s": f32(0.05), "z": numpy.int8(0), "shape": numpy.array([2, 6])},
        lambda x, s, z, shape: torch.fake_quantize_per_tensor_affine(x, float(s), int(z), -128, 127).reshape(2, 6).T),
    "per-channel": lambda: Case(
        pair(axis=1), {"x": drawn(3, 4, 2, spread=9)},
        {"s": numpy.array([0.05, 0.1, 0.02, 0.07], f32), "z": numpy.array([3, -7, 0, 100], numpy.int8)}, per_channel(1, -128, 127)),
    "first-axis": lambda: Case(
        pair(axis=0), {"x": drawn(3, 4, spread=9)},
        {"s": numpy.array([0.05, 0.1, 0.02], f32), "z": numpy.array([3, 128, 250], numpy.uint8)}, per_channel(0, 0, 255)),
    # PyTorch's own operator with a scale that learns, and Esser et al. 2020 without their factor.
    "learned-scale": lambda: Case(
        pair(), {"x": edges(0.05, 3, -128, 127), "s": numpy.array(0.05, f32)}, {"z": numpy.int8(3)},
        lambda x, s, z: torch._fake_quantize_learnable_per_tensor_affine(
            x.float(), s.float().reshape(1), z.float().reshape(1), -128, 127, 1.0).double(),
        flags=["--train=^learned-scale/s$"], tolerance=1e-5),
    "another-scale": lambda: Case(
        [node("QuantizeLinear", ["x", "s", "z"], ["q"]), node("DequantizeLinear", ["q", "s2", "z2"], ["y"])],
        {"x": edges(0.05, 3, -128, 127)}, {"s": f32(0.05), "z": numpy.int8(3), "s2": f32(0.1), "z2": numpy.int8(0)},
        lambda x, s, z, s2, z2: (straight_through(x, s, z, -128, 127) / s + z.double()) * s2),
}

# Scatter with reductions: places that several updates share, ties and zeros.
INDICES = numpy.array([[0, 1, 2], [0, 1, 1], [3, 1, -4]])
TIED = {"x": numpy.array([[1, 5, 2], [0, 2, 0], [7, 1, 1], [2, 0, 3]], f32),
        "u": numpy.array([[1, 5, 2], [4, 2, 3], [2, 5, 9]], f32)}
ZEROS = {"x": numpy.array([[2, 0, 2], [0, 2, -3], [0.5, 1, 1], [2, 0, 3]], f32),
         "u": numpy.array([[0, 5, 2], [4, 0, 3], [0, 0, 0]], f32)}
APART = {"x": drawn(4, 3), "u": drawn(3, 3)}


def scattered(reduction, values):
    name = {"max": "amax", "min": "amin", "mul": "prod"}[reduction]
    return Case([node("ScatterElements", ["x", "i", "u"], ["y"], axis=0, reduction=reduction)], values, {"i": INDICES},
                lambda x, u, i: x.scatter_reduce(0, i % 4, u, name, include_self=True), opset=18)


def scattered_rows(reduction, x, u):
    name = {"max": "amax", "min": "amin", "mul": "prod"}[reduction]
    places = numpy.array([[0, 1], [1, 2], [0, 1]])
    rows = torch.tensor(places[:, :1] * 3 + places[:, 1:]).expand(3, 2)
    return Case([node("ScatterND", ["x", "i", "u"], ["y"], reduction=reduction)], {"x": x, "u": u}, {"i": places},
                lambda x, u, i: x.reshape(6, 2).scatter_reduce(0, rows, u, name, include_self=True).reshape(2, 3, 2), opset=18)


for reduction in ["max", "min", "mul"]:
    CASES[f"scatter-{reduction}"] = lambda r=reduction: scattered(r, APART)
    CASES[f"scatter-{reduction}-rows"] = lambda r=reduction: scattered_rows(r, drawn(2, 3, 2), drawn(3, 2))
CASES["scatter-max-ties"] = lambda: scattered("max", TIED)
CASES["scatter-min-ties"] = lambda: scattered("min", TIED)
CASES["scatter-mul-zeros"] = lambda: scattered("mul", ZEROS)
CASES["scatter-mul-zeros-rows"] = lambda: scattered_rows("mul", numpy.array([[[0, 2], [1, 0], [3, 4]], [[5, 6], [0, 8], [9, 0]]], f32),
                                                         numpy.array([[0, 3], [4, 0], [2, 5]], f32))

# Statistics that the model reads, or computes.


def normalised(x, s, b, read):
    mean, variance = x.mean(1, keepdim=True), x.var(1, unbiased=False, keepdim=True)
    inverse = 1 / torch.sqrt(variance + 1e-5)
    y = (x - mean) * inverse * s + b
    return {"mean": mean + 0 * y, "inverse": inverse + 0 * y, "all": y * mean + inverse * y}[read]


def layer_norm(read):
    tail = {"mean": [node("Mul", ["n", "zero"], ["n0"]), node("Add", ["m", "n0"], ["y"])],
            "inverse": [node("Mul", ["n", "zero"], ["n0"]), node("Add", ["i", "n0"], ["y"])],
            "all": [node("Mul", ["n", "m"], ["a"]), node("Mul", ["i", "n"], ["c"]), node("Add", ["a", "c"], ["y"])]}[read]
    trained = {"x": drawn(3, 5, spread=2) + 1, "s": drawn(5) + 1, "b": drawn(5)}
    constants = {} if read == "all" else {"zero": f32(0)}
    return Case([node("LayerNormalization", ["x", "s", "b"], ["n", "m", "i"], axis=1, epsilon=1e-5), *tail], trained, constants,
                lambda x, s, b, zero=None: normalised(x, s, b, read))


for read in ["mean", "inverse", "all"]:
    CASES[f"layer-norm-{read}"] = lambda r=read: layer_norm(r)


def batch_norm(shape):
    axes = [a for a in range(len(shape)) if a != 1]
    keep = [1 if a != 1 else shape[1] for a in range(len(shape))]
    nodes = [node("ReduceMean", ["x"], ["mean"], axes=axes, keepdims=0), node("Reshape", ["mean", "keep"], ["column"]),
             node("Sub", ["x", "column"], ["distance"]), node("Mul", ["distance", "distance"], ["square"]),
             node("ReduceMean", ["square"], ["variance"], axes=axes, keepdims=0),
             node("BatchNormalization", ["x", "s", "b", "mean", "variance"], ["y"], epsilon=1e-3)]
    trained = {"x": drawn(*shape, spread=2), "s": drawn(shape[1]) + 1, "b": drawn(shape[1])}
    return Case(nodes, trained, {"keep": numpy.array(keep)}, lambda x, s, b, keep: torch.nn.functional.batch_norm(
        x, None, None, s, b, training=True, eps=1e-3))


CASES["batch-norm-rows"] = lambda: batch_norm([5, 3])
CASES["batch-norm-planes"] = lambda: batch_norm([2, 3, 4, 2])

# Sequences.
CASES["sequence"] = lambda: Case(
    [node("SplitToSequence", ["x"], ["sq"], axis=1, keepdims=0), node("SequenceAt", ["sq", "first"], ["a"]),
     node("SequenceAt", ["sq", "last"], ["b"]), node("Mul", ["a", "b"], ["ab"]), node("SequenceConstruct", ["ab", "b", "a"], ["s2"]),
     node("ConcatFromSequence", ["s2"], ["y"], axis=-1, new_axis=1)],
    {"x": drawn(4, 3)}, {"first": numpy.int64(0), "last": numpy.int64(-1)},
    lambda x, first, last: torch.stack([x[:, 0] * x[:, 2], x[:, 2], x[:, 0]], 1))

if __name__ == "__main__":
    tool, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True)
    cases = {name: CASES[name]() for name in sys.argv[3:]}
    write(folder / "model.onnx", cases)
    numpy.save(folder / "one.npy", f32(1))
    for engine in ["interpreter", "cpu"]:
        found = run(tool, folder, [flag for case in cases.values() for flag in case.flags], engine)
        for name, case in cases.items():
            compare(name, engine, found, case.gradients(), case.tolerance if engine == "interpreter" else 2e-5)
    print(f"{len(cases)} operators' gradients agree with PyTorch")
