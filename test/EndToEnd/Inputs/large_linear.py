"""large_linear.py OUT.onnx: two linear layers, of which the second one's weights fit no cache; for batches of 8."""
import sys

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

random = numpy.random.default_rng(1)


def weight(name, *shape):
    return numpy_helper.from_array((random.standard_normal(shape) * 0.02).astype(numpy.float32), name)


nodes = [
    helper.make_node("Gemm", ["x", "first.weight", "first.bias"], ["a"], "first", transB=1),
    helper.make_node("Relu", ["a"], ["b"], "relu"),
    helper.make_node("Gemm", ["b", "large.weight", "large.bias"], ["c"], "large", transB=1),
    helper.make_node("Relu", ["c"], ["d"], "relu2"),
    helper.make_node("Gemm", ["d", "last.weight"], ["y"], "last"),
]
weights = [weight("first.weight", 1100, 16), weight("first.bias", 1100), weight("large.weight", 2000, 1100),
           weight("large.bias", 2000), weight("last.weight", 2000, 10)]
graph = helper.make_graph(nodes, "large", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [8, 16])],
                          [helper.make_tensor_value_info("y", TensorProto.FLOAT, [8, 10])], weights)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)])
model.ir_version = 8
onnx.save(model, sys.argv[1])
