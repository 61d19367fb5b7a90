"""divide_weights.py IN FOLDER MEMBERS: a stage's weights as the members of a team write them.

Matrices are divided along their last axis, in two blocks where those have equal parts; other tensors along the first
axis, filled up with zeros. Every third tensor stays whole.
"""
import json
import math
import os
import struct
import sys

content = open(sys.argv[1], "rb").read()
(length,) = struct.unpack("<Q", content[:8])
entries, data = json.loads(content[8:8 + length]), content[8 + length:]
entries.pop("__metadata__", None)
folder, members = sys.argv[2], int(sys.argv[3])
os.makedirs(folder, exist_ok=True)


def part(shape, values, size, axis, blocks, member):
    """The shape and the values that a member has; an element has `size` bytes."""
    outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1:]) * size
    block = shape[axis] // blocks
    share = -(-block // members)
    own = b""
    for o in range(outer):
        for j in range(blocks * share):
            at = member * share + j % share
            begin = (o * shape[axis] + j // share * block + at) * inner
            own += values[begin:begin + inner] if at < block else bytes(inner)
    return shape[:axis] + [blocks * share] + shape[axis + 1:], own


for member in range(members):
    header, metadata, values = {}, {}, b""
    for number, (name, entry) in enumerate(entries.items()):
        shape, (begin, end) = entry["shape"], entry["data_offsets"]
        own, bytes_of = shape, data[begin:end]
        if number % 3 == 2 or not shape:
            if member > 0:
                continue
        else:
            axis = len(shape) - 1 if len(shape) == 2 else 0
            blocks = 2 if len(shape) == 2 and shape[axis] % (2 * members) == 0 else 1
            size = len(bytes_of) // math.prod(shape)
            own, bytes_of = part(shape, bytes_of, size, axis, blocks, member)
            dims = " ".join(str(dim) for dim in shape)
            metadata["part/" + name] = f"axis {axis} blocks {blocks} of {members} member {member} shape {dims}"
        header[name] = {"dtype": entry["dtype"], "shape": own, "data_offsets": [len(values), len(values) + len(bytes_of)]}
        values += bytes_of
    text = json.dumps({"__metadata__": metadata, **header}).encode()
    text += b" " * (-len(text) % 8)
    suffix = f".member{member}" if member else ""
    with open(f"{folder}/stage0{suffix}.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + values)
