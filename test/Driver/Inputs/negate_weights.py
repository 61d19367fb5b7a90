"""negate_weights.py IN OUT [--prefix=P] [--flat]: a safetensors file with the signs of all floats turned; the same bytes otherwise.

With a prefix, every tensor has it before its name; flat tensors have one dimension.
"""
import json
import math
import struct
import sys

content = open(sys.argv[1], "rb").read()
(length,) = struct.unpack("<Q", content[:8])
header, data = content[8:8 + length], bytearray(content[8 + length:])
data[3::4] = bytes(byte ^ 0x80 for byte in data[3::4])
prefix = next((word[9:] for word in sys.argv if word.startswith("--prefix=")), "")
if prefix or "--flat" in sys.argv:
    entries = json.loads(header)
    entries.pop("__metadata__", None)
    for entry in entries.values():
        if "--flat" in sys.argv:
            entry["shape"] = [math.prod(entry["shape"])]
    header = json.dumps({prefix + name: entry for name, entry in entries.items()}).encode()
    header += b" " * (-len(header) % 8)
open(sys.argv[2], "wb").write(struct.pack("<Q", len(header)) + header + data)
