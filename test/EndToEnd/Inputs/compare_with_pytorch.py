"""compare_with_pytorch.py REFERENCE INITIAL UPDATED LR METRICS LABEL

REFERENCE is a folder of test/models/reference.py; INITIAL and UPDATED are folders of safetensors before and after one step of SGD with
the learning rate LR; METRICS holds the losses of a run. Prints the worst ratio of pdc's error against PyTorch in f64 to
that of PyTorch in f32; exit 1 if it is above 3 anywhere.
"""
import json
import pathlib
import struct
import sys

import numpy

FLOOR = 1e-6


def tensors(folder):
    found = {}
    for path in sorted(pathlib.Path(folder).glob("*.safetensors")):
        data = path.read_bytes()
        (length,) = struct.unpack("<Q", data[:8])
        for name, entry in json.loads(data[8:8 + length]).items():
            if name != "__metadata__" and entry["dtype"] == "F32":
                begin, end = entry["data_offsets"]
                values = numpy.frombuffer(data[8 + length + begin:8 + length + end], dtype="<f4")
                found[name] = values.reshape(entry["shape"]).astype(numpy.float64)
    return found


def error(value, exact):
    """Norm-wise, relative; absolute where the exact value vanishes."""
    norm = numpy.linalg.norm(exact)
    return numpy.linalg.norm(value - exact) / (norm if norm > 1e-12 else 1.0)


reference, initial, updated, lr, metrics, label = sys.argv[1:7]
reference = pathlib.Path(reference)
before, after = tensors(initial), tensors(updated)

worst, where, compared, failures = 0.0, "", 0, []


def judge(name, pdc, torch32):
    global worst, where, compared
    compared += 1
    ratio = pdc / max(torch32, FLOOR)
    if ratio > worst:
        worst, where = ratio, name
    if not ratio <= 3:
        failures.append(f"{name}: pdc {pdc:.2e}, PyTorch f32 {torch32:.2e}")


for path in sorted((reference / "f64" / "gradients").glob("*.npy")):
    name = path.stem
    exact = numpy.load(path)
    single = numpy.load(reference / "f32" / "gradients" / path.name)
    judge(name, error((before[name] - after[name]) / float(lr), exact), error(single, exact))
gradients = compared

lines = [json.loads(line) for line in open(metrics)]
losses = [line["loss"] for line in lines if "loss" in line]
exact, single = numpy.load(reference / "f64" / "losses.npy"), numpy.load(reference / "f32" / "losses.npy")
losses = numpy.array(losses).reshape(len(exact), -1).mean(axis=1)
judge("losses", error(losses, exact), error(single, exact))

for failure in failures:
    print(failure)
verdict = "within" if not failures else "NOT within"
print(f"{label}: {gradients} gradients and {len(losses)} losses {verdict} 3 times the error of PyTorch in f32 "
      f"(worst {worst:.2f}, {where})")
sys.exit(bool(failures) or gradients == 0)
