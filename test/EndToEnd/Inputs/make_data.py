"""Writes a small classification data set of images: make_data.py FOLDER SAMPLES [C H W]. Standard library only.

Class k of ten is a bright stripe at row k mod H with a brightness of its own, under noise, so that there is something
to learn. The same arguments give the same bytes.
"""
import pathlib
import random
import struct
import sys


def write_npy(path, descr, shape, data):
    header = "{'descr': '%s', 'fortran_order': False, 'shape': (%s,), }" % (descr, ", ".join(map(str, shape)))
    header += " " * (63 - (10 + len(header)) % 64) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data)


folder, samples = pathlib.Path(sys.argv[1]), int(sys.argv[2])
c, h, w = (int(v) for v in sys.argv[3:6]) if len(sys.argv) > 3 else (1, 8, 8)
rng = random.Random(7)
labels = [rng.randrange(10) for _ in range(samples)]
values = []
for label in labels:
    for place in range(c * h * w):
        stripe = 0.5 + 0.1 * label if place // w % h == label % h else 0.0
        values.append(stripe + 0.2 * rng.random())
folder.mkdir(parents=True, exist_ok=True)
write_npy(folder / "input.npy", "<f4", [samples, c, h, w], struct.pack("<%df" % len(values), *values))
write_npy(folder / "label.npy", "<i8", [samples], struct.pack("<%dq" % samples, *labels))
