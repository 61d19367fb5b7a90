"""lora_files.py MODEL.onnx WEIGHTS CHECKPOINT MERGED.onnx: of a training with adapters of rank 2 and alpha 6: WEIGHTS differ from the
model's in the adapters alone, CHECKPOINT holds nothing but them, and MERGED.onnx is MODEL.onnx with W + 3 (B A), transposed."""
import json
import pathlib
import sys

import numpy
import onnx
from exported import numbers, tensors
from onnx import numpy_helper

model, merged = onnx.load(sys.argv[1]), onnx.load(sys.argv[4])
weights, checkpoint = numbers(sys.argv[2]), pathlib.Path(sys.argv[3])
before = {weight.name: numpy_helper.to_array(weight) for weight in model.graph.initializer}
after = {weight.name: numpy_helper.to_array(weight) for weight in merged.graph.initializer}
adapters = {name for name in weights if ".lora_" in name}
print(len(adapters), "tensors of adapters")
print("changed beside them:", *(name for name in sorted(weights.keys() - adapters) if (weights[name] != before[name]).any()))
print("still zero:", *(name for name in sorted(adapters) if (weights[name] == 0).all()))
held = {name for path in checkpoint.glob("stage?.safetensors") for name in tensors(path)}
print("held by the checkpoint beside them:", *sorted(held - adapters), "; lacking:", *sorted(adapters - held))
moments = {name.split("/", 1)[1] for name in tensors(checkpoint / "stage0.optimizer.safetensors")}
print("the optimizer's beside them:", *sorted(moments - adapters))
header = (checkpoint / "stage0.safetensors").read_bytes()
metadata = json.loads(header[8:8 + int.from_bytes(header[:8], "little")])["__metadata__"]
print("sums of frozen parameters:", sum(key.startswith("frozen/") for key in metadata), "of", len(weights) - len(adapters))
for name in sorted(after):
    a, b = (name.removesuffix("weight") + f"lora_{part}.weight" for part in "AB")
    wanted = before[name]
    if a in adapters:
        wanted = (before[name].astype(float) + 3 * (weights[b] @ weights[a]).T).astype(numpy.float32)
    if not numpy.allclose(after[name], wanted, rtol=2e-7, atol=1e-9):
        print("merged wrongly:", name)
same = lambda graph: [graph.node[i].SerializeToString() for i in range(len(graph.node))]
print("the graph is", "the model's" if same(model.graph) == same(merged.graph) else "another one")
