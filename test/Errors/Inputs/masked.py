"""masked.py OUT.onnx: a model with tokens and a mask, which its second half reads."""
import sys

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

rng = numpy.random.default_rng(1)


def weight(name, *shape):
    return numpy_helper.from_array(rng.standard_normal(shape).astype(numpy.float32), name)


nodes = [helper.make_node("Gather", ["table", "ids"], ["x"]),
         helper.make_node("MatMul", ["x", "first"], ["y"]),
         helper.make_node("Tanh", ["y"], ["z"]),
         helper.make_node("Cast", ["mask"], ["numbers"], to=TensorProto.FLOAT),
         helper.make_node("Unsqueeze", ["numbers", "last axis"], ["wide"]),
         helper.make_node("Mul", ["z", "wide"], ["masked"]),
         helper.make_node("MatMul", ["masked", "second"], ["logits"])]
weights = [weight("table", 200, 8), weight("first", 8, 8), weight("second", 8, 200),
           numpy_helper.from_array(numpy.array([2]), "last axis")]
inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["N", 8]) for name in ("ids", "mask")]
outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", 8, 200])]
graph = helper.make_graph(nodes, "masked", inputs, outputs, weights)
onnx.save(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 14)]), sys.argv[1])
