"""gated_blocks.py OUT.onnx [BLOCKS WIDTH HIDDEN] [--tied]: blocks like those of a Llama without their attention, for batches of 4 samples of
1 x 8 x 8: a root-mean-square norm, a gate, up and down, and what goes past them. 12 blocks of 64 and 192, if nothing else is asked.
--tied: the last block has the first one's gate."""
import sys

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

tied = "--tied" in sys.argv
sizes = [int(word) for word in sys.argv[2:] if word != "--tied"]
blocks, width, hidden = sizes or (12, 64, 192)
random = numpy.random.default_rng(1)
nodes, weights = [], []


def weight(name, *shape):
    weights.append(numpy_helper.from_array((random.standard_normal(shape) / shape[0] ** 0.5).astype(numpy.float32), name))
    return name


def constant(name, value):
    weights.append(numpy_helper.from_array(numpy.array(value), name))
    return name


def node(kind, inputs, output, **attributes):
    nodes.append(helper.make_node(kind, inputs, [output], output, **attributes))
    return output


tiny, axes = constant("tiny", numpy.float32(1e-5)), constant("axes", numpy.array([-1], numpy.int64))
x = node("Flatten", ["input"], "flat")
x = node("MatMul", [x, weight("embedding", 64, width)], "embedded")
for block in range(blocks):
    name = f"block{block}."
    mean = node("ReduceMean", [node("Mul", [x, x], name + "square"), axes], name + "mean", keepdims=1)
    root = node("Sqrt", [node("Add", [mean, tiny], name + "plus")], name + "root")
    weights.append(numpy_helper.from_array(numpy.ones(width, numpy.float32), name + "scale"))
    normed = node("Mul", [node("Div", [x, root], name + "divided"), name + "scale"], name + "normed")
    shares = tied and block == blocks - 1
    gate = node("MatMul", [normed, "block0.gate.weight" if shares else weight(name + "gate.weight", width, hidden)], name + "gate")
    up = node("MatMul", [normed, weight(name + "up.weight", width, hidden)], name + "up")
    silu = node("Mul", [gate, node("Sigmoid", [gate], name + "sigmoid")], name + "silu")
    down = node("MatMul", [node("Mul", [silu, up], name + "gated"), weight(name + "down.weight", hidden, width)], name + "down")
    x = node("Add", [x, down], name + "out")
node("MatMul", [x, weight("head", width, 10)], "logits")
graph = helper.make_graph(nodes, "gated", [helper.make_tensor_value_info("input", TensorProto.FLOAT, [4, 1, 8, 8])],
                          [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [4, 10])], weights)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
model.ir_version = 8
onnx.save(model, sys.argv[1])
