"""make_dropout.py FILE.onnx: x: f32[N, 6] to y: f32[N, 3], with a Dropout whose mask is multiplied with what it leaves."""
import sys

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

weights = {"w": numpy.arange(18, dtype=numpy.float32).reshape(6, 3) / 10, "ratio": numpy.float32(0.4), "training": numpy.array(True)}
graph = helper.make_graph(
    [helper.make_node("Dropout", ["x", "ratio", "training"], ["d", "mask"], "dropout"),
     helper.make_node("Cast", ["mask"], ["kept"], to=TensorProto.FLOAT), helper.make_node("Mul", ["d", "kept"], ["left"]),
     helper.make_node("MatMul", ["left", "w"], ["y"])],
    "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 6])], [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 3])],
    [numpy_helper.from_array(numpy.asarray(value), name) for name, value in weights.items()])
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), sys.argv[1])
