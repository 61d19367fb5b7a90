#!/usr/bin/env python3
"""masks_in_memory.py SOURCE BUILD WORK: a Switch layer on 4,096 tokens, of 8 experts with 640 slots and rows of 768, by index and as products
with masks (whose slots are counted from the last one on, which pdc does not know). What a minibatch keeps for its backward is less by index
than with masks by what the masks take, less the indices, to the byte."""
import collections
import importlib.util
import json
import pathlib
import re
import subprocess
import sys

import numpy
import onnx
from onnx import TensorProto, helper

source, build, work = (pathlib.Path(argument) for argument in sys.argv[1:])
spec = importlib.util.spec_from_file_location("hand_made", source / "utils/models/hand_made.py")
made = importlib.util.module_from_spec(spec)
spec.loader.exec_module(made)
SAMPLES, TOKENS, EXPERTS, SLOTS = 4, 4096, 8, 640
made.WIDTH = 768
BYTES = {"f32": 4, "i64": 8, "bool": 1, "u8": 1, "i32": 4}


def choice_of(numbers):
    def choice(net, name, chosen, experts, capacity, axis, before=None):
        """One-hots of experts, and of the slots that `numbers` are the numbers of. Who finds no slot fits none."""
        values = net.op("Constant", f"{name}.values", [], value_floats=[0.0, 1.0])
        picked = net.op("OneHot", f"{name}.experts", [chosen, net.constant(f"{name}.count", numpy.int64(experts)), values])
        counted = net.op("CumSum", f"{name}.numbers", [picked, net.constant(f"{name}.axis", numpy.int64(axis))])
        own = net.op("Mul", f"{name}.own", [counted, picked])
        last = net.constant(f"{name}.last", numpy.array([-1]))
        place = net.op("Sub", f"{name}.place", [net.op("ReduceSum", f"{name}.number", [own, last], keepdims=0), made.number(net, f"{name}.one", 1)])
        slot = net.op("Unsqueeze", f"{name}.column", [net.op("Cast", f"{name}.slot", [place], to=TensorProto.INT64), last])
        equal = net.op("Equal", f"{name}.equal", [slot, net.constant(f"{name}.slots.numbers", numbers)])
        return picked, net.op("Cast", f"{name}.slots", [equal], to=TensorProto.FLOAT)
    return choice


def compile_model(name, numbers):
    made.choice = choice_of(numbers)
    net = made.Network(0)
    rows = net.op("Reshape", "rows", ["input", net.constant("rows.shape", numpy.array([TOKENS, made.WIDTH]))])
    y, balance = made.experts_layer(net, "layer", rows, 1, "t", SLOTS, experts=EXPERTS)
    y = net.op("Reshape", "samples", [y, net.constant("samples.shape", numpy.array([SAMPLES, TOKENS // SAMPLES, made.WIDTH]))])
    error = net.op("Sub", "error", [y, "label"])
    loss = net.op("Add", "loss", [net.op("ReduceMean", "mean", [net.op("Mul", "square", [error, error])], keepdims=0), balance])
    inputs = [helper.make_tensor_value_info(each, TensorProto.FLOAT, [SAMPLES, TOKENS // SAMPLES, made.WIDTH]) for each in ("input", "label")]
    graph = helper.make_graph(net.nodes, name, inputs, [helper.make_tensor_value_info(loss, TensorProto.FLOAT, [])], net.weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)])
    model.ir_version = 8
    work.mkdir(parents=True, exist_ok=True)
    onnx.save(model, str(work / f"{name}.onnx"))
    ended = subprocess.run([str(build / "bin/pdc"), str(work / f"{name}.onnx"), "-o", str(work / name), f"--batch={SAMPLES}", "--loss=output:loss",
                            "--profile=analytic", "--optimizer=sgd,lr=0.01"], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if ended.returncode:
        sys.exit(ended.stdout)
    return Program(work / name)


class Program:
    """What a stage program says of its memory."""

    def __init__(self, folder):
        (self.plan,) = json.loads((folder / "plan.json").read_text())["stages"]
        text = (folder / "stage0.cpp").read_text()
        slot = re.search(r"^struct Slot \{(.*?)^\};", text, re.S | re.M)[1]
        self.views = {}  # name: bytes, whose they are
        for name, kind, shape, what in re.findall(r"(\w+)\{frame\.slot, \d+\}; +// (\w+)\[([\d, ]*)\] ?(.*)", slot):
            count = 1
            for size in filter(None, shape.split(", ")):
                count *= int(size)
            self.views[name] = (BYTES[kind] * count, what)
        phases = {phase: re.search(rf"^void {phase}\((.*?)^\}}", text, re.S | re.M)[1] for phase in ("forward", "backward_input", "backward_weight")}
        calls = [re.findall(r"\bs\.(?!frame)(\w+)", line) for phase in phases.values() for line in phase.split("\n") if "(q" in line]
        forward = sum("(q" in line for line in phases["forward"].split("\n"))
        used = lambda calls: {name for call in calls for name in call}
        # A label is there anyway, and a loss is told.
        self.saved = sorted(used(calls[:forward]) & used(calls[forward:]) - {"label", "loss"})

    def bytes(self, names):
        return sum(self.views[name][0] for name in names)

    def names(self, names):
        return collections.Counter((self.views[name][1], self.views[name][0]) for name in names)


def told(title, of):
    print(f"{title}:" + "".join(f"\n  {count * size} bytes: {name}" for (name, size), count in sorted(of.items(), key=lambda each: (-each[0][1], each[0][0]))))


index = compile_model("index", numpy.arange(SLOTS))
masks = compile_model("masks", numpy.arange(SLOTS)[::-1].copy())
for name, program in (("index", index), ("masks", masks)):
    if program.bytes(program.saved) != program.plan["saved_bytes"]:
        sys.exit(f"{name}: the program keeps {program.bytes(program.saved)} bytes, the plan has {program.plan['saved_bytes']}: {program.saved}")
only_masks, only_index = masks.names(masks.saved) - index.names(index.saved), index.names(index.saved) - masks.names(masks.saved)
told("kept with masks only", only_masks)
told("kept by index only", only_index)
of = lambda counter: sum(count * size for (_, size), count in counter.items())
saved = masks.plan["saved_bytes"] - index.plan["saved_bytes"]
print(f"kept: {saved} bytes less = {of(only_masks)} of masks - {of(only_index)} of indices")
if saved != of(only_masks) - of(only_index):
    sys.exit("which is not so")
print(f"arenas: {index.plan['memory_bytes']} bytes by index, {masks.plan['memory_bytes']} with masks")
if masks.plan["memory_bytes"] - index.plan["memory_bytes"] < saved:
    sys.exit("the arena is not less by as much")
