"""same_tensors.py A B: two folders of safetensors files hold the same tensors, bit for bit, however split over files."""
import sys

from exported import tensors

a, b = tensors(sys.argv[1]), tensors(sys.argv[2])
different = sorted(name for name in a.keys() | b.keys() if a.get(name) != b.get(name))
print(f"{len(a)} tensors, {len(different)} differ", *different[:5])
sys.exit(bool(different) or not a)
