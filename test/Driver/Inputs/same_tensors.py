"""same_tensors.py FOLDER FOLDER: whether the safetensors files of two folders hold the same tensors."""
import json
import pathlib
import sys


def tensors(folder):
    found = {}
    for path in pathlib.Path(folder).glob("*.safetensors"):
        data = path.read_bytes()
        begin = 8 + int.from_bytes(data[:8], "little")
        for name, entry in json.loads(data[8:begin]).items():
            if name != "__metadata__":
                first, last = entry["data_offsets"]
                found[name] = (entry["dtype"], entry["shape"], data[begin + first:begin + last])
    return found


one, two = tensors(sys.argv[1]), tensors(sys.argv[2])
sys.exit(one != two or not one)
