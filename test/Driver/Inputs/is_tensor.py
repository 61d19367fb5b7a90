"""Ends with 0 when a .npy file and one with a TensorProto hold the same numbers: is_tensor.py FILE.npy FILE.pb"""
import sys

import numpy
import onnx
from onnx import numpy_helper

expected = numpy_helper.to_array(onnx.load_tensor(sys.argv[2]))
sys.exit(not numpy.array_equal(numpy.load(sys.argv[1]), expected))
