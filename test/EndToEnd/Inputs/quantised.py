"""quantised.py MODEL.onnx BEFORE AFTER: the integers and scales in the folders of weights BEFORE and AFTER are those that the formulas of
docs/Training.md give for the matrices of the model. quantised.py --exported MODEL.onnx WEIGHTS TRAINED.onnx: TRAINED.onnx has the matrices
that the integers in WEIGHTS stand for, and what else was trained."""
import pathlib
import sys

import numpy
import onnx
from exported import tensors
from onnx import numpy_helper

TYPES = {"F32": numpy.float32, "I8": numpy.int8, "I32": numpy.int32}


def read(folder):
    found = {}
    for path in sorted(pathlib.Path(folder).glob("*.safetensors")):
        for name, (element, shape, values) in tensors(path).items():
            if element in TYPES:
                found[name] = numpy.frombuffer(values, TYPES[element]).reshape(shape)
    return found


def initializers(path):
    return {weight.name: numpy_helper.to_array(weight) for weight in onnx.load(path).graph.initializer}


def matrices(weights):
    """Name in the model, whether rows are columns there, integers, scales."""
    for name in weights:
        if name.endswith(".int8"):
            base = name.removesuffix(".int8")
            yield base.removesuffix(".T"), base.endswith(".T"), weights[name], weights[base + ".scale"]


def main():
    exported = sys.argv[1] == "--exported"
    model = initializers(sys.argv[2 if exported else 1])
    if exported:
        weights, trained = read(sys.argv[3]), initializers(sys.argv[4])
        count = 0
        for name, transposed, integers, scales in matrices(weights):
            stands_for = integers.astype(numpy.float32) * scales[:, None]
            if not numpy.array_equal(trained[name], stands_for.T if transposed else stands_for):
                sys.exit(f"{name} is another matrix")
            count += 1
        for name in trained:
            if name in weights and not numpy.array_equal(trained[name], weights[name]):
                sys.exit(f"{name} is not what was trained")
        print(count, "matrices of the exported model are those that were trained with")
        return
    before, after = read(sys.argv[2]), read(sys.argv[3])
    count = bytes_now = bytes_before = 0
    for name, transposed, integers, scales in matrices(before):
        rows = model[name].T if transposed else model[name]
        expected = numpy.abs(rows).max(axis=1) / numpy.float32(127)
        if not numpy.array_equal(scales, expected) or not numpy.array_equal(integers, numpy.rint(rows / expected[:, None])):
            sys.exit(f"{name} is not rounded as it should be")
        base = name + (".T" if transposed else "")
        if not numpy.array_equal(after[base + ".int8"], integers) or not numpy.array_equal(after[base + ".scale"], scales):
            sys.exit(f"{name} has changed")
        count += 1
        bytes_now += integers.nbytes + scales.nbytes
        bytes_before += rows.nbytes
    print(count, "matrices are the rounded ones of the model, and none has changed")
    print(f"they take {bytes_now / bytes_before:.3f} of their bytes in f32")


if __name__ == "__main__":
    main()
