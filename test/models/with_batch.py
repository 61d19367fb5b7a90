"""Gives a model whose batch is fixed another one, and makes random data for it.

    python3 test/models/with_batch.py MODEL BATCH OUT.onnx DATA

Inputs of the graph that are not parameters begin with the batch. Inside, it occurs as a constant that becomes a part of
a shape; a constant that is equal by chance would be changed too, and the import of OUT.onnx would tell. DATA becomes a
folder with 4 · BATCH samples of each input: small integers, or numbers in [-1, 1).
"""
import pathlib
import sys

import numpy
import onnx
from onnx import numpy_helper

model, batch = onnx.load(sys.argv[1]), int(sys.argv[2])
graph = model.graph
parameters = {tensor.name for tensor in graph.initializer}
inputs = [value for value in graph.input if value.name not in parameters]
fixed = inputs[0].type.tensor_type.shape.dim[0].dim_value
for value in inputs:
    value.type.tensor_type.shape.dim[0].dim_value = batch
parts = {name for node in graph.node if node.op_type in ("Unsqueeze", "Reshape", "Expand") for name in node.input}
for node in graph.node:
    if node.op_type == "Constant" and node.output[0] in parts:
        values = numpy_helper.to_array(node.attribute[0].t).copy()
        if values.dtype == numpy.int64 and values.size and values.flat[0] == fixed:
            values.flat[0] = batch
            node.attribute[0].t.CopyFrom(numpy_helper.from_array(values))
del graph.value_info[:]
onnx.save(model, sys.argv[3])

folder = pathlib.Path(sys.argv[4])
folder.mkdir(parents=True, exist_ok=True)
random = numpy.random.default_rng(1)
for value in inputs:
    shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
    shape[0] *= 4
    real = value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    array = (2 * random.random(shape) - 1).astype(numpy.float32) if real else random.integers(0, 2, shape)
    numpy.save(folder / f"{value.name}.npy", array)
