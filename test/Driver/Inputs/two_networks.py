"""two_networks.py A B OUT: one safetensors file with the tensors of A as student.NAME and those of B as teacher.NAME."""
import json
import struct
import sys

header, data = {}, b""
for path, prefix in [(sys.argv[1], "student."), (sys.argv[2], "teacher.")]:
    content = open(path, "rb").read()
    (length,) = struct.unpack("<Q", content[:8])
    for name, entry in json.loads(content[8:8 + length]).items():
        if name != "__metadata__":
            header[prefix + name] = {**entry, "data_offsets": [offset + len(data) for offset in entry["data_offsets"]]}
    data += content[8 + length:]
text = json.dumps(header).encode()
open(sys.argv[3], "wb").write(struct.pack("<Q", len(text)) + text + data)
