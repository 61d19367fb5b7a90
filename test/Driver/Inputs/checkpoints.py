"""checkpoints.py IN OUT [--type=T] [--rounded=FILE] [--rename=FROM:TO] [--transpose=NAME] [--only=NAMES] [--shards=N]: the f32
tensors of a safetensors file as other people store them.

--type: BF16, F16 or F64; --rounded: the same values as f32, to compare with. --rename: the prefix FROM of all names becomes TO.
--transpose: this matrix. --only: names apart by commas. --shards: OUT is a folder, with an index of so many files.
"""
import json
import math
import os
import struct
import sys

flags = dict(word[2:].split("=", 1) for word in sys.argv[3:])


def read(path):
    content = open(path, "rb").read()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8:8 + length])
    header.pop("__metadata__", None)
    data = content[8 + length:]
    return {name: (entry["shape"], struct.unpack("<%df" % math.prod(entry["shape"]), data[slice(*entry["data_offsets"])]))
            for name, entry in header.items()}


def stored(values, kind):
    if kind == "BF16":  # the upper half; what is cut off is not rounded
        return b"".join(struct.pack("<f", value)[2:] for value in values)
    return struct.pack("<%d%s" % (len(values), {"F16": "e", "F32": "f", "F64": "d"}[kind]), *values)


def rounded(data, kind):
    if kind == "BF16":
        return [struct.unpack("<f", b"\0\0" + data[i:i + 2])[0] for i in range(0, len(data), 2)]
    size = {"F16": 2, "F32": 4, "F64": 8}[kind]
    return struct.unpack("<%d%s" % (len(data) // size, {"F16": "e", "F32": "f", "F64": "d"}[kind]), data)


def write(path, tensors, kind="F32"):
    header, data = {}, b""
    for name, (shape, values) in tensors.items():
        part = stored(values, kind)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(header).encode()
    open(path, "wb").write(struct.pack("<Q", len(text)) + text + data)


kind = flags.get("type", "F32")
tensors = read(sys.argv[1])
if "only" in flags:
    tensors = {name: tensors[name] for name in flags["only"].split(",")}
if "transpose" in flags:
    (rows, columns), values = tensors[flags["transpose"]]
    tensors[flags["transpose"]] = [columns, rows], [values[r * columns + c] for c in range(columns) for r in range(rows)]
if "rounded" in flags:
    write(flags["rounded"], {name: (shape, rounded(stored(values, kind), kind)) for name, (shape, values) in tensors.items()})
if "rename" in flags:
    old, new = flags["rename"].split(":")
    tensors = {new + name[len(old):]: tensor for name, tensor in tensors.items() if name.startswith(old)}
if "shards" not in flags:
    write(sys.argv[2], tensors, kind)
    sys.exit()
os.makedirs(sys.argv[2])
count, index = int(flags["shards"]), {}
for shard in range(count):
    name = "model-%05d-of-%05d.safetensors" % (shard + 1, count)
    part = {key: tensors[key] for key in list(tensors)[shard::count]}
    write(sys.argv[2] + "/" + name, part, kind)
    index.update({key: name for key in part})
json.dump({"metadata": {}, "weight_map": index}, open(sys.argv[2] + "/model.safetensors.index.json", "w"))
