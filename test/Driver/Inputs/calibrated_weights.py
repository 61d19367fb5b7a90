"""calibrated_weights.py MODEL.onnx WEIGHTS: the kept inputs of w1 have its own values."""
import pathlib
import sys

import numpy
import onnx
from onnx import numpy_helper

sys.path.append(str(pathlib.Path(__file__).parents[2] / "EndToEnd/Inputs"))
from exported import tensors

w1 = {weight.name: numpy_helper.to_array(weight) for weight in onnx.load(sys.argv[1]).graph.initializer}["w1"]
stored = tensors(sys.argv[2])
inputs = numpy.frombuffer(stored["w1.T.kept_inputs"][2], numpy.int32)
kept = numpy.frombuffer(stored["w1.T.kept"][2], numpy.float32).reshape(stored["w1.T.kept"][1])
if not numpy.array_equal(kept, w1[inputs]):
    sys.exit("the kept weights are not those of the model")
print("inputs", inputs.tolist(), "are those of the model")
