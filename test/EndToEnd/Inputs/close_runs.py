"""close_runs.py A B TOLERANCE: two runs agree: losses (A.jsonl, B.jsonl) and exported tensors (folders A, B), norm-wise."""
import json
import math
import struct
import sys

from exported import tensors


def floats(folder):
    return {name: struct.unpack(f"<{len(data) // 4}f", data) for name, (kind, _, data) in tensors(folder).items() if kind == "F32"}


def losses(path):
    return [json.loads(line)["loss"] for line in open(path) if '"loss"' in line]


def distance(a, b):
    norm = math.sqrt(sum(x * x for x in a))
    return math.sqrt(sum((x - y) ** 2 for x, y in zip(a, b))) / max(norm, 1e-6)


first, second, tolerance = sys.argv[1], sys.argv[2], float(sys.argv[3])
pairs = {"losses": (losses(first + ".jsonl"), losses(second + ".jsonl"))}
a, b = floats(first), floats(second)
if a.keys() != b.keys() or not a:
    sys.exit(f"other tensors: {sorted(a.keys() ^ b.keys())[:5]}")
pairs.update({name: (a[name], b[name]) for name in a})
worst = 0
for name, (x, y) in pairs.items():
    if len(x) != len(y) or not x:
        sys.exit(f"{name}: {len(x)} and {len(y)} values")
    worst = max(worst, distance(x, y))
    if not distance(x, y) <= tolerance:
        sys.exit(f"{name}: relative difference {distance(x, y):.2g}")
count = len(pairs["losses"][0])
print(f"{count} losses and {len(a)} tensors, largest relative difference {worst:.2g}")
