"""same_tensors.py A B: two folders of safetensors files hold the same tensors, bit for bit, however split over files."""
import json
import pathlib
import struct
import sys


def tensors(folder):
    found = {}
    for path in sorted(pathlib.Path(folder).glob("*.safetensors")):
        data = path.read_bytes()
        (length,) = struct.unpack("<Q", data[:8])
        for name, entry in json.loads(data[8:8 + length]).items():
            if name != "__metadata__":
                begin, end = entry["data_offsets"]
                found[name] = (entry["dtype"], entry["shape"], data[8 + length + begin:8 + length + end])
    return found


a, b = tensors(sys.argv[1]), tensors(sys.argv[2])
different = sorted(name for name in a.keys() | b.keys() if a.get(name) != b.get(name))
print(f"{len(a)} tensors, {len(different)} differ", *different[:5])
sys.exit(bool(different) or not a)
