#!/usr/bin/python3
"""What edges.py found PyTorch to compute, kept as numbers, against what pdc-eval computes; needs numpy only.

    edge_values.py data NAME.json DIR      writes DIR/r0.npy, …: the data of NAME.onnx
    edge_values.py compare NAME.json DIR   compares what pdc-eval wrote into DIR, values or gradients, or both

A case's loss is the sum of its output · fixed numbers, which are the data, so that a gradient of 1 is no accident.
"""
import json
import pathlib
import struct
import sys

import numpy

RELATIVE = 2e-5


def weights_of(shape):
    """Numbers that are neither alike nor 0: 1, -1.5, 2, -2.5, …, again from 1 on after 7."""
    numbers = numpy.arange(int(numpy.prod(shape))) % 7
    return ((1 + numbers / 2) * (-1.0) ** numbers).astype(numpy.float32).reshape(tuple(shape))


def differences(actual, expected, skipped=None):
    """Positions at which two arrays differ: by more than rounding, or in being infinite or no number."""
    if actual.shape != expected.shape:
        return [f"shape {actual.shape}, not {expected.shape}"]
    found = []
    scale = numpy.abs(expected[numpy.isfinite(expected)]).max(initial=0)
    for at, (a, e) in enumerate(zip(actual.ravel(), expected.ravel())):
        same = a == e or (numpy.isnan(a) and numpy.isnan(e)) or (skipped is not None and skipped.ravel()[at])
        if not same and numpy.isfinite(a) and numpy.isfinite(e):
            same = abs(a - e) <= RELATIVE * abs(e) + 1e-6 * min(scale, 100) + 1e-37
        if not same:
            found.append(f"[{at}] {a:.8g}, not {e:.8g}")
    return found


def tensors(path):
    """Those of a safetensors file, which are all f32."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    entries = {name: entry for name, entry in json.loads(data[8:8 + length]).items() if name != "__metadata__"}
    return {name: numpy.frombuffer(data[8 + length:][slice(*entry["data_offsets"])], "<f4").reshape(entry["shape"])
            for name, entry in entries.items()}


def gradient_of(found, name, shape):
    """Of the values among those of a parameter, whose last one makes it differ from all others; 0 where there is none."""
    return found[name][:-1].reshape(shape) if name in found else numpy.zeros(shape, numpy.float32)


def as_array(entry):
    """An entry's numbers, and where it has none."""
    numbers = [float("nan" if number == "any" else number) for number in entry["numbers"]]
    skipped = numpy.array([number == "any" for number in entry["numbers"]], bool)
    return numpy.array(numbers, numpy.float32).reshape(entry["shape"]), skipped


def as_entry(array, skipped=None):
    """`skipped`: where any number will do."""
    numbers = ["any" if skipped is not None and skipped.ravel()[at] else str(number) for at, number in enumerate(array.ravel())]
    return {"shape": list(array.shape), "numbers": numbers}


def compare(cases, folder):
    values = (folder / "y0.npy").exists()
    gradients = tensors(folder / "gradients.safetensors") if (folder / "gradients.safetensors").exists() else None
    if not values and gradients is None:
        sys.exit(f"{folder} has neither values nor gradients")
    good = True
    for i, case in enumerate(cases):
        lines = [("value", numpy.load(folder / f"y{i}.npy"), *as_array(case["value"]))] if values else []
        for k, entry in enumerate(case["gradients"] if gradients is not None else []):
            lines.append((f"gradient {k}", gradient_of(gradients, f"w{i}_{k}", entry["shape"]), *as_array(entry)))
        for what, actual, expected, skipped in lines:
            wrong = differences(actual, expected, skipped)
            good &= not wrong
            print(f"{case['name']}: {what}: {'; '.join(wrong) or 'agrees'}")
    sys.exit(0 if good else 1)


def main():
    command, path, folder = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    cases = json.loads(path.read_text())["cases"]
    if command == "compare":
        compare(cases, folder)
    folder.mkdir(parents=True, exist_ok=True)
    for i, case in enumerate(cases):
        numpy.save(folder / f"r{i}.npy", weights_of(case["value"]["shape"]))


if __name__ == "__main__":
    main()
