"""Runs an ONNX model in ONNX Runtime on the CPU: an oracle of the tests (python from utils/venv).

    run_onnxruntime.py MODEL INPUT=FILE:f32:32x1x8x8 ... OUTPUT=FILE ...

Files are raw elements, little-endian; those of the outputs are written.
"""
import sys

import numpy
import onnxruntime

TYPES = {"f32": numpy.float32, "i64": numpy.int64}

session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
inputs, outputs = {}, {}
for argument in sys.argv[2:]:
    name, _, place = argument.partition("=")
    if ":" in place:
        path, element, shape = place.rsplit(":", 2)
        dims = [int(dim) for dim in shape.split("x")]
        inputs[name] = numpy.fromfile(path, TYPES[element]).reshape(dims)
    else:
        outputs[name] = place
for path, value in zip(outputs.values(), session.run(list(outputs), inputs)):
    value.tofile(path)
