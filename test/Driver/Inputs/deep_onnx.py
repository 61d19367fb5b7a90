"""deep_onnx.py BLOCKS OUT.onnx: BLOCKS blocks of Gemm, Relu and Add around a residual connection, then a classifier.

Every eighth block reads the value of four blocks before too, so that the model is no chain of blocks. Needs the onnx package.
"""
import sys

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

blocks, out = int(sys.argv[1]), sys.argv[2]
rng = numpy.random.default_rng(1)
weights, nodes, values = [], [], ["x"]


def weight(name, *shape):
    weights.append(numpy_helper.from_array((rng.standard_normal(shape) * 0.1).astype(numpy.float32), name))
    return name


for block in range(blocks):
    name = f"block{block}"
    nodes.append(helper.make_node("Gemm", [values[-1], weight(name + ".w", 8, 8), weight(name + ".b", 8)],
                                  [name + ".gemm"], name + "/gemm", transB=1))
    nodes.append(helper.make_node("Relu", [name + ".gemm"], [name + ".relu"], name + "/relu"))
    skipped = values[-4] if block % 8 == 7 else values[-1]
    nodes.append(helper.make_node("Add", [name + ".relu", skipped], [name + ".out"], name + "/add"))
    values.append(name + ".out")
nodes.append(helper.make_node("Gemm", [values[-1], weight("head.w", 3, 8), weight("head.b", 3)], ["y"], "head", transB=1))
graph = helper.make_graph(nodes, "deep", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 8])],
                          [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 3])], weights)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)])
model.ir_version = 8
onnx.save(model, out)
