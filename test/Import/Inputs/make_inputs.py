"""make_inputs.py KIND OUT.onnx: small models whose inputs are not all samples on the first axis. Needs the onnx package."""
import sys

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
node = helper.make_node


def weight(name, *shape):
    return numpy_helper.from_array((numpy.random.default_rng(1).standard_normal(shape) * 0.3).astype(numpy.float32), name)


def ints(name, *values):
    return numpy_helper.from_array(numpy.array(values), name)


def lstm(steps, batch):
    """The last step of an LSTM, with 3 classes."""
    return ([node("LSTM", ["x", "W", "R"], ["h", "", ""], "lstm", hidden_size=3), node("Squeeze", ["h", "one"], ["hs"], "squeeze"),
             node("Gather", ["hs", "last"], ["q"], "last_step", axis=0), node("MatMul", ["q", "fc"], ["y"], "product")],
            [("x", FLOAT, [steps, batch, 2])], [("y", FLOAT, [batch, 3])],
            [weight("W", 1, 12, 2), weight("R", 1, 12, 3), ints("one", 1), numpy_helper.from_array(numpy.int64(-1), "last"),
             weight("fc", 3, 3)])


def steps_of_lstm(steps, batch):
    """All steps of an LSTM."""
    nodes, inputs, _, weights = lstm(steps, batch)
    return (nodes[:2] + [node("MatMul", ["hs", "fc"], ["y"], "product")], inputs, [("y", FLOAT, [steps, batch, 3])],
            [w for w in weights if w.name != "last"])


def linear(inputs, nodes=(), batch="batch"):
    """x [batch, 4] times w, and `nodes` from there to y [batch, 3]."""
    first = node("MatMul", ["x", "w"], ["product" if nodes else "y"], "product")
    return [first, *nodes], [("x", FLOAT, [batch, 4]), *inputs], [("y", FLOAT, [batch, 3])], [weight("w", 4, 3)]


def reshaped(shape, batch=1):
    """x [batch, 2, 6] through a Reshape to `shape`."""
    return ([node("Reshape", ["x", "shape"], ["r"], "flat"), node("MatMul", ["r", "w"], ["y"], "product")],
            [("x", FLOAT, [batch, 2, 6])], [("y", FLOAT, None)], [weight("w", 12 if len(shape) == 2 else 6, 3), ints("shape", *shape)])


def attention(batch):
    """x [batch, 4, 6], whose rows attend to each other along axis 0: axis 1 has the samples."""
    return ([node("Transpose", ["x"], ["q"], "q", perm=[1, 0, 2]), node("Transpose", ["x"], ["k"], "k", perm=[1, 2, 0]),
             node("MatMul", ["q", "k"], ["scores"], "scores"), node("Softmax", ["scores"], ["p"], "softmax", axis=-1),
             node("MatMul", ["p", "q"], ["mixed"], "mixed"), node("MatMul", ["mixed", "w"], ["z"], "product"),
             node("Transpose", ["z"], ["y"], "back", perm=[1, 0, 2])],
            [("x", FLOAT, [batch, 4, 6])], [("y", FLOAT, [batch, 4, 3])], [weight("w", 6, 3)])


def branch(name, operator):
    return helper.make_graph([node(operator, ["product"], ["y." + name], name)], name, [],
                             [helper.make_tensor_value_info("y." + name, FLOAT, None)])


def graph_network():
    """Each of N rows is the sum of those that edges name."""
    return ([node("MatMul", ["x", "w"], ["h"], "product"), node("Split", ["edges"], ["from", "to"], "split", axis=0),
             node("Squeeze", ["from", "zero"], ["f"], "f"), node("Gather", ["h", "f"], ["y"], "gather", axis=0)],
            [("x", FLOAT, ["N", 4]), ("edges", INT, [2, "N"])], [("y", FLOAT, ["N", 3])], [weight("w", 4, 3), ints("zero", 0)])


def best(axis):
    """The largest number of each row, or of each column, which are samples."""
    return ([node("MatMul", ["x", "w"], ["h"], "product"), node("TopK", ["h", "two"], ["y", "at"], "best", axis=axis)],
            [("x", FLOAT, ["s0", 4])], [("y", FLOAT, None)], [weight("w", 4, 3), ints("two", 2)])


def elements():
    """GatherElements: each sample names one of its own numbers."""
    return ([node("MatMul", ["x", "w"], ["h"], "product"), node("GatherElements", ["h", "at"], ["y"], "pick", axis=1)],
            [("x", FLOAT, ["s0", 4]), ("at", INT, ["s0", 1])], [("y", FLOAT, None)], [weight("w", 4, 3)])


def merged():
    """Logits of steps and samples on one axis."""
    return ([node("MatMul", ["x", "w"], ["h"], "product"), node("Reshape", ["h", "shape"], ["y"], "view")],
            [("x", FLOAT, [5, "batch", 4])], [("y", FLOAT, None)], [weight("w", 4, 3), ints("shape", -1, 3)])


def kept():
    """An exporter has written down which rows there are: as_strided becomes a Gather of the samples that it saw."""
    return ([node("MatMul", ["x", "w"], ["h"], "product"), node("Gather", ["h", "rows"], ["y"], "rows")],
            [("x", FLOAT, [4, 6])], [("y", FLOAT, None)], [weight("w", 6, 3), ints("rows", 0, 1, 2, 3)])


KINDS = {
    "kept": kept,
    "lstm": lambda: lstm(5, "N"),
    "lstm-fixed": lambda: lstm(5, 4),
    "lstm-numbered": lambda: steps_of_lstm("s0", "s1"),
    "lstm-steps-fixed": lambda: steps_of_lstm(4, 4),
    "attention-numbered": lambda: attention("s0"),
    "sequence-first": lambda: lstm("sequence", "samples"),
    "state": lambda: linear([("state", FLOAT, [1, "batch", 3])], [node("Squeeze", ["state", "zero"], ["s"], "s"),
                                                                   node("Add", ["product", "s"], ["y"], "add")]),
    "temperature": lambda: linear([("temperature", FLOAT, [])], [node("Div", ["product", "temperature"], ["y"], "div")]),
    "mask": lambda: linear([("mask", FLOAT, [1, 3])], [node("Mul", ["product", "mask"], ["y"], "mul")]),
    "edges": lambda: linear([("edges", INT, [2, "edges"])], [node("ReduceMax", ["edges.f"], ["m"], "max", keepdims=0),
                                                             node("Mul", ["product", "m"], ["y"], "mul")]),
    "condition": lambda: linear([("training", BOOL, [])], [
        node("If", ["training"], ["y"], "if", then_branch=branch("then", "Tanh"), else_branch=branch("else", "Relu"))]),
    "dropout": lambda: linear([("training", BOOL, [])], [node("Dropout", ["product", "ratio", "training"], ["y"], "dropout")]),
    "large": lambda: linear([("bias", FLOAT, [200, 100, 1])], [node("ReduceSum", ["bias", "axes"], ["b"], "sum", keepdims=0),
                                                                node("Add", ["product", "b"], ["y"], "add")]),
    "unread": lambda: linear([("lost", FLOAT, ["rows", 2]), ("flag", BOOL, [])]),
    "fixed": lambda: linear([], batch=5),
    "unknown": lambda: linear([], batch="?"),
    "negative": lambda: linear([], batch=-1),
    "two-unknown": lambda: ([node("MatMul", ["x", "w"], ["h"], "product"), node("ReduceMean", ["h"], ["y"], "mean", axes=[1], keepdims=0)],
                            [("x", FLOAT, ["?", "?", 4])], [("y", FLOAT, ["?", 3])], [weight("w", 4, 3)]),
    "two-axes": lambda: ([node("MatMul", ["x", "x"], ["y"], "product")], [("x", FLOAT, ["batch", "batch"])],
                         [("y", FLOAT, ["batch", "batch"])], []),
    "keeps-batch": lambda: reshaped((1, -1)),
    "in-a-row": lambda: reshaped((1, -1, 6)),
    "takes-any-batch": lambda: reshaped((-1, 12)),
    "graph": graph_network,
    "best-of-sample": lambda: best(1),
    "best-samples": lambda: best(0),
    "elements": elements,
    "merged": merged,
}

kind, out = sys.argv[1:]
nodes, inputs, outputs, weights = KINDS[kind]()
if kind == "dropout":
    weights.append(numpy_helper.from_array(numpy.float32(0.5), "ratio"))
if kind == "state":
    weights.append(ints("zero", 0))
if kind == "large":
    weights.append(ints("axes", 0, 1))
if kind == "edges":
    nodes.insert(0, node("Cast", ["edges"], ["edges.f"], "cast", to=FLOAT))
values = lambda rows: [helper.make_tensor_value_info(name, element, shape) for name, element, shape in rows]
graph = helper.make_graph(nodes, "g", values(inputs), values(outputs), weights)
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8), out)
