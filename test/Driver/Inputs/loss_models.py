"""loss_models.py KIND FILE: small models for what a loss applies to.

one-number  f32[batch, 1] and, after it, f32[batch, 3]: a regression, and features
one-of-one  f32[1] by a file with a fixed batch: the mean over the batch
softmax     f32[batch, 3] by Softmax, node 'probabilities', of the inner value '/fc/Gemm_output_0'
sigmoid     the same by Sigmoid
odd-names   an input whose name no file has
"""
import sys

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

kind, path = sys.argv[1:]
rng = numpy.random.default_rng(5)
weights = {name: rng.standard_normal(shape).astype(numpy.float32) for name, shape in {"w": (6, 3), "v": (3, 1)}.items()}
batch = 1 if kind == "one-of-one" else "batch"
x = "serving_default/x:0 é" if kind == "odd-names" else "x"
node, info = helper.make_node, helper.make_tensor_value_info
inner = "/fc/Gemm_output_0"
nodes = [node("MatMul", [x, "w"], [inner])]
if kind == "one-number":
    nodes += [node("MatMul", [inner, "v"], ["y"])]
    outputs = [info("y", TensorProto.FLOAT, [batch, 1]), info(inner, TensorProto.FLOAT, [batch, 3])]
elif kind == "one-of-one":
    nodes += [node("ReduceMean", [inner], ["mean"], axes=[0, 1], keepdims=0), node("Reshape", ["mean", "shape"], ["y"]),
              node("Tanh", [inner], ["features"])]
    outputs = [info("y", TensorProto.FLOAT, [1]), info("features", TensorProto.FLOAT, [batch, 3])]
elif kind == "odd-names":
    nodes += [node("Tanh", [inner], ["y/out:0"])]
    outputs = [info("y/out:0", TensorProto.FLOAT, [batch, 3])]
else:
    nodes += [node(kind.capitalize(), [inner], ["y"], name="probabilities")]
    outputs = [info("y", TensorProto.FLOAT, [batch, 3])]
constants = [numpy_helper.from_array(weights[name], name) for name in weights if any(name in n.input for n in nodes)]
if kind == "one-of-one":
    constants.append(numpy_helper.from_array(numpy.array([1]), "shape"))
graph = helper.make_graph(nodes, kind, [info(x, TensorProto.FLOAT, [batch, 6])], outputs, constants)
onnx.save(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 13)]), path)
