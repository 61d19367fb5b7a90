"""lora_int8.py MODEL.onnx WEIGHTS MERGED.onnx: of a training with adapters of rank 2 and alpha 6 on weights of 8 bits: MERGED.onnx has, for
each matrix, what the integers stand for, and 3 (B A) added where there is an adapter, transposed as the matrix is."""
import sys

import numpy
from quantised import initializers, matrices, read

model, weights, merged = initializers(sys.argv[1]), read(sys.argv[2]), initializers(sys.argv[3])
adapted = changed = 0
for name, transposed, integers, scales in matrices(weights):
    matrix = integers.astype(numpy.float64) * scales[:, None]
    matrix = matrix.T if transposed else matrix
    a, b = (weights.get(name.removesuffix("weight") + f"lora_{part}.weight") for part in "AB")
    if a is not None:
        matrix, adapted = matrix + 3 * (b.astype(float) @ a).T, adapted + 1
        changed += numpy.abs(merged[name] - model[name]).max() > 0.02 * numpy.abs(model[name]).max()
    if not numpy.allclose(merged[name], matrix, rtol=1e-6, atol=1e-8):
        print("merged wrongly:", name)
print(f"{adapted} matrices with adapters, {changed} of them changed by more than rounding")
