"""peft_adapter.py FOLDER [KEY=VALUE…]: writes an adapter of rank 2 for the layer `fc` of the digits example as PEFT does, of ones and
twos, with these entries in its configuration."""
import json
import pathlib
import struct
import sys

folder = pathlib.Path(sys.argv[1])
folder.mkdir(parents=True)
config = {"peft_type": "LORA", "r": 2, "lora_alpha": 6, "bias": "none", "alpha_pattern": {}}
config |= {key: json.loads(value) for key, value in (word.split("=") for word in sys.argv[2:])}
(folder / "adapter_config.json").write_text(json.dumps(config))
tensors = {"base_model.model.net.fc.lora_A.weight": ([2, 64], 1.0), "base_model.model.net.fc.lora_B.weight": ([10, 2], 2.0)}
header, values = {}, b""
for name, (shape, number) in tensors.items():
    begin = len(values)
    values += struct.pack("<f", number) * (shape[0] * shape[1])
    header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, len(values)]}
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
(folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + values)
