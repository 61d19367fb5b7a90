"""calibrated.py FOLDER: writes FOLDER/m.onnx, two linear layers of which the first is called w1, and FOLDER/data, 8 batches of 4 samples. Of
the inputs of w1, 3 is an outlier in every batch, 5 in two of them and 6 in one."""
import pathlib
import sys

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

folder = pathlib.Path(sys.argv[1])
(folder / "data").mkdir(parents=True)
random = numpy.random.default_rng(1)
x = random.uniform(-1, 1, (32, 8)).astype(numpy.float32)
x[1::4, 3] = -7
x[[2, 17], 5] = 6  # as large as alpha: that is an outlier
x[30, 6] = 100
numpy.save(folder / "data" / "x.npy", x)
numpy.save(folder / "data" / "label.npy", random.integers(0, 4, 32))
weights = [numpy_helper.from_array(random.normal(0, 0.5, shape).astype(numpy.float32), name)
           for name, shape in (("w1", (8, 6)), ("w2", (6, 4)))]
graph = helper.make_graph(
    [helper.make_node("MatMul", ["x", "w1"], ["a"]), helper.make_node("Relu", ["a"], ["b"]), helper.make_node("MatMul", ["b", "w2"], ["logits"])],
    "two-layers", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 8])],
    [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", 4])], weights)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)])
model.ir_version = 8
onnx.save(model, str(folder / "m.onnx"))
