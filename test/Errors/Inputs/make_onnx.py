"""make_onnx.py KIND OUT.onnx: small models, most of them with something wrong. Needs the onnx package."""
import sys

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper


def weight(name, *shape):
    rng = numpy.random.default_rng(1)
    return numpy_helper.from_array(rng.standard_normal(shape).astype(numpy.float32) * 0.3, name)


def model(nodes, inputs, outputs, weights):
    graph = helper.make_graph(nodes, "g", inputs, outputs, weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)])
    made.ir_version = 8
    return made


def f32(name, shape):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


weights = [weight("w1", 16, 8), weight("b1", 16), weight("w2", 3, 16), weight("b2", 3)]
mlp = [helper.make_node("Gemm", ["x", "w1", "b1"], ["h"], "fc1", transB=1),
       helper.make_node("Relu", ["h"], ["r"], "relu"),
       helper.make_node("Gemm", ["r", "w2", "b2"], ["y"], "fc2", transB=1)]
def half():
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], "product")]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT16, [2, 4]) for n in ("x", "y")]
    w = numpy_helper.from_array(numpy.ones((4, 4), numpy.float16), "w")
    return model(nodes, ends[:1], ends[1:], [w])


kinds = {
    "half": half,
    "mlp": lambda: model(mlp, [f32("x", ["batch", 8])], [f32("y", ["batch", 3])], weights),
    "cyclic": lambda: model([helper.make_node("Add", ["x", "b"], ["a"], "first"),
                             helper.make_node("Relu", ["a"], ["b"], "second")],
                            [f32("x", [2, 8])], [f32("b", [2, 8])], []),
    "unsupported": lambda: model([helper.make_node("TfIdfVectorizer", ["x"], ["n"], "count"),
                                  helper.make_node("StringNormalizer", ["x"], ["h"], "volume"),
                                  helper.make_node("StringNormalizer", ["h"], ["y"], "again")],
                                 [f32("x", [2, 8])], [f32("y", [2, 8])], []),
    "sequence": lambda: model([helper.make_node("Relu", ["x"], ["y"], "relu")],
                              [f32("x", ["batch", "length", 8])], [f32("y", ["batch", "length", 8])], []),
}
onnx.save(kinds[sys.argv[1]](), sys.argv[2])
