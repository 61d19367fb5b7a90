"""bad_log.py OUT.onnx: two layers with a logarithm of positive and negative numbers between them."""
import sys

import numpy
from onnx import TensorProto, helper, numpy_helper, save

rng = numpy.random.RandomState(1)
weights = [numpy_helper.from_array(rng.randn(*shape).astype(numpy.float32), name) for name, shape in [("v", (6, 8)), ("w", (8, 3))]]
nodes = [helper.make_node("MatMul", ["x", "v"], ["h"], "first"), helper.make_node("Log", ["h"], ["l"], "bad_log"),
         helper.make_node("MatMul", ["l", "w"], ["y"], "second")]
graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 6])],
                          [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 3])], weights)
save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), sys.argv[1])
