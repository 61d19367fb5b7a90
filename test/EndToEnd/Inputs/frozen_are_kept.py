"""frozen_are_kept.py MODEL.onnx WEIGHTS: names the parameters of the model that the exported weights have changed, and those that several stages
have, whose copies must be the same."""
import pathlib
import sys

import onnx
from exported import tensors
from onnx import numpy_helper

files = [tensors(path) for path in sorted(pathlib.Path(sys.argv[2]).glob("*.safetensors"))]
copies = {name: [file[name][2] for file in files if name in file] for file in files for name in file}
for name, values in sorted(copies.items()):
    if len(set(values)) > 1:
        sys.exit(f"the copies of {name} differ")
before = {weight.name: numpy_helper.to_array(weight).tobytes() for weight in onnx.load(sys.argv[1]).graph.initializer}
print("changed:", *sorted(name for name in copies if name in before and copies[name][0] != before[name]))
print("in several stages:", *sorted(name for name in copies if len(copies[name]) > 1))
