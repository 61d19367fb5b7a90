"""make_quantized.py NAME FILE.onnx: x: f32[N, 6] to y: f32[N, 3], quantized in one way or another.

    pairs          W and the hidden values behind QuantizeLinear and DequantizeLinear: quantisation-aware training
    integers       the weights are integers behind DequantizeLinear, the bias too
    products       a weight of integers, multiplied as such
    half           QuantizeLinear before W2 without a DequantizeLinear: its integers are multiplied
    blocks         W quantized in blocks of 4 rows
"""
import sys

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

name, path = sys.argv[1:]
rng = numpy.random.default_rng(3)
node = helper.make_node
W, W2 = ((rng.standard_normal(shape) * 0.5).astype(numpy.float32) for shape in [(6, 3), (3, 3)])
scale, zero = numpy.float32(0.05), numpy.int8(0)


def pair(x, y, **attributes):
    return [node("QuantizeLinear", [x, "s", "z"], [y + "_q"], x + "_quantize", **attributes),
            node("DequantizeLinear", [y + "_q", "s", "z"], [y], x + "_dequantize", **attributes)]


product = node("MatMul", ["x", "Wd"], ["h"], "first")
weights, opset = {"s": scale, "z": zero}, 17
if name == "pairs":
    nodes = [*pair("W", "Wd"), product, *pair("h", "hd"), node("MatMul", ["hd", "W2"], ["y"], "second")]
    weights |= {"W": W, "W2": W2}
elif name == "integers":
    nodes = [node("DequantizeLinear", ["Wq", "s", "z"], ["Wd"], "weights"), product,
             node("DequantizeLinear", ["bq", "s"], ["b"], "bias"), node("Add", ["h", "b"], ["y"], "sum")]
    weights |= {"Wq": (W * 20).astype(numpy.int8), "bq": numpy.arange(3).astype(numpy.int32)}
elif name == "products":
    nodes = [node("QuantizeLinear", ["x", "s", "z"], ["xq"], "x_quantize"), node("MatMulInteger", ["xq", "Wq"], ["p"], "first"),
             node("Cast", ["p"], ["y"], "floats", to=TensorProto.FLOAT)]
    weights |= {"Wq": (W * 20).astype(numpy.int8)}
elif name == "half":
    nodes = [node("MatMul", ["x", "W"], ["h"], "first"), node("QuantizeLinear", ["h", "s", "z"], ["hq"], "h_quantize"),
             node("MatMulInteger", ["hq", "Wq"], ["p"], "second"), node("Cast", ["p"], ["pf"], "floats", to=TensorProto.FLOAT),
             node("Add", ["pf", "b"], ["y"], "bias")]
    weights |= {"W": W, "Wq": (W2 * 20).astype(numpy.int8), "b": W2[0]}
elif name == "blocks":
    nodes = [*pair("W", "Wd", axis=0, block_size=4), node("MatMul", ["x", "Wd"], ["y"], "first")]
    weights |= {"W": W, "s": numpy.full((2, 3), 0.05, numpy.float32), "z": numpy.zeros((2, 3), numpy.int8)}
    opset = 21
graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 6])],
                          [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 3])],
                          [numpy_helper.from_array(numpy.asarray(value), key) for key, value in weights.items()])
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), path)
