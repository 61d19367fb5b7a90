#!/usr/bin/python3
"""Writes the seeds of test/fuzz/corpus: small inputs of each reader, made by the tools of a build and by ONNX's helpers.

  test/fuzz/make_corpus.py [--build build/release]

What fuzzing has found is there too, under names that begin with `found-`; it is left alone. The same build gives the same
bytes.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

SOURCE = pathlib.Path(__file__).resolve().parent.parent.parent
CORPUS = SOURCE / "test/fuzz/corpus"
sys.path.insert(0, str(SOURCE / "test/Import/Inputs"))
import make_learning  # noqa: E402


def put(reader, name, data):
    folder = CORPUS / reader
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())


def tensor(name, *shape, kind=numpy.float32):
    return numpy_helper.from_array(numpy.arange(numpy.prod(shape, dtype=int), dtype=kind).reshape(shape) / kind(8), name)


def model(nodes, initializers, inputs, outputs, opset=17, **more):
    def info(name, shape):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    graph = helper.make_graph(nodes, "g", [info(*entry) for entry in inputs], [info(*entry) for entry in outputs], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], producer_name="seed", ir_version=8, **more)


def mlp():
    return model([helper.make_node("Gemm", ["x", "w", "b"], ["h"], "fc1", transB=1), helper.make_node("Relu", ["h"], ["r"], "relu"),
                  helper.make_node("MatMul", ["r", "v"], ["y"], "fc2")],
                 [tensor("w", 3, 2), tensor("b", 3), tensor("v", 3, 2)], [("x", ["batch", 2])], [("y", ["batch", 2])])


def convolutions():
    return model([helper.make_node("Conv", ["x", "w"], ["c"], "conv", pads=[1, 1, 1, 1]),
                  helper.make_node("BatchNormalization", ["c", "s", "b", "m", "v"], ["n", "mm", "vv"], "bn", training_mode=1),
                  helper.make_node("MaxPool", ["n"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
                  helper.make_node("Shape", ["p"], ["shape"]), helper.make_node("Constant", [], ["zero"], value_int=0),
                  helper.make_node("Gather", ["shape", "zero"], ["rows"]), helper.make_node("Unsqueeze", ["rows", "axes"], ["row"]),
                  helper.make_node("Concat", ["row", "rest"], ["to"], axis=0), helper.make_node("Reshape", ["p", "to"], ["y"])],
                 [tensor("w", 2, 1, 3, 3), *(tensor(name, 2) for name in "sbmv"),
                  numpy_helper.from_array(numpy.array([0]), "axes"), numpy_helper.from_array(numpy.array([-1]), "rest")],
                 [("x", ["batch", 1, 4, 4])], [("y", ["batch", 8])])


def control_flow():
    body = helper.make_graph([helper.make_node("Add", ["carried", "x"], ["next"]), helper.make_node("Identity", ["go"], ["on"])], "body",
                             [helper.make_tensor_value_info("i", TensorProto.INT64, []),
                              helper.make_tensor_value_info("go", TensorProto.BOOL, []),
                              helper.make_tensor_value_info("carried", TensorProto.FLOAT, [2])],
                             [helper.make_tensor_value_info("on", TensorProto.BOOL, []),
                              helper.make_tensor_value_info("next", TensorProto.FLOAT, [2])])
    return model([helper.make_node("Loop", ["trips", "", "x"], ["y"], body=body)], [numpy_helper.from_array(numpy.array(3), "trips")],
                 [("x", [2])], [("y", [2])])


def function():
    twice = helper.make_function("own", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])],
                                 [helper.make_opsetid("", 17)])
    made = model([helper.make_node("Twice", ["x"], ["y"], domain="own")], [], [("x", [2, 3])], [("y", [2, 3])], functions=[twice])
    made.opset_import.append(helper.make_opsetid("own", 1))
    return made


def fields():
    """Elements as numbers, bytes and in another file; sparse and odd things."""
    numbers = helper.make_tensor("n", TensorProto.FLOAT, [2], [1.0, 2.0])
    halves = helper.make_tensor("h", TensorProto.FLOAT16, [2], numpy.array([1, 2], numpy.float16).view(numpy.uint16).tolist())
    outside = TensorProto(name="e", data_type=TensorProto.FLOAT, dims=[2], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": "e.bin", "offset": "0", "length": "8"}.items():
        outside.external_data.add(key=key, value=value)
    made = model([helper.make_node("Add", ["x", "n"], ["a"]), helper.make_node("Cast", ["h"], ["f"], to=TensorProto.FLOAT),
                  helper.make_node("Mul", ["a", "f"], ["m"]), helper.make_node("Add", ["m", "e"], ["y"])],
                 [numbers, halves, outside], [("x", [2])], [("y", [2])])
    made.doc_string = "seed"
    onnx.helper.set_model_props(made, {"key": "value"})
    return made


def annotated():
    """Annotations for devices, which the messages of this package may not know: field by field."""
    def field(number, value):
        if isinstance(value, int):
            return bytes([number << 3, value & 0x7f])
        return bytes([number << 3 & 0x7f | 2 | (0x80 if number > 15 else 0)] + ([number >> 4] if number > 15 else []) + [len(value)]) + value

    made = mlp()
    shards = field(1, 3) + field(2, field(1, 1) + field(3, 1)) + field(2, field(1, 4) + field(3, 2))
    spec = field(1, b"w") + field(2, 5) + field(2, 1) + field(3, field(1, 5) + field(2, 0) + field(2, 2)) + field(4, shards)
    for node in made.graph.node:
        more = field(1, b"three") + field(3, 1) + (field(2, spec) if "w" in node.input else b"")
        node.ParseFromString(node.SerializeToString() + field(10, more))
    made.metadata_props.add(key="pdc.split", value="tp:2")
    return made.SerializeToString() + field(26, field(1, b"three") + field(2, 3) + field(3, b"a") + field(3, b"b") + field(3, b"c"))


def onnx_seeds(folder):
    put("annotations", "sharded", annotated())
    put("annotations", "none", mlp().SerializeToString())
    for name, made in {"mlp": mlp(), "convolutions": convolutions(), "loop": control_flow(), "function": function(),
                       "fields": fields()}.items():
        put("onnx", name, made.SerializeToString())
    for name in ("stated_signature", "stated_modules", "norms_merged", "towers_chained", "loops", "constants_only", "ruled"):
        put("onnx", name.replace("_", "-"), getattr(make_learning, name)().proto.SerializeToString())
    for name, made in {"float": tensor("t", 2, 3), "int": numpy_helper.from_array(numpy.array([1, 2]), "i")}.items():
        put("onnx-tensor", name, made.SerializeToString())
    put("onnx-tensor", "numbers", helper.make_tensor("n", TensorProto.INT32, [2, 2], [1, 2, 3, 4]).SerializeToString())
    for name, lines in {"plain": ["w.bin", "", ""], "range": ["w.bin", "8", "24"], "sub": ["sub/w.bin", "0", "24"],
                        "parent": ["../secret", "0", "24"], "absolute": ["/etc/hostname", "0", "24"], "link": ["link", "0", "24"],
                        "alias": ["alias", "0", "24"], "up": ["up/secret", "0", "24"], "links": ["links", "0", "24"],
                        "dots": ["./sub/../w.bin", "0", "24"], "end": ["w.bin", "40", "24"], "past": ["w.bin", "41", "24"],
                        "huge": ["w.bin", "18446744073709551615", "24"], "negative": ["w.bin", "-8", "24"],
                        "folder": ["sub", "0", "24"]}.items():
        put("external-data", name, "\n".join(lines) + "\n")


def planner_seeds(tools, folder):
    path = "m.onnx"
    (folder / path).write_bytes(mlp().SerializeToString())

    def run(*words):
        return subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True, cwd=folder).stdout
    compile_ = [tools / "pdc", path, "--batch=4", "--profile=analytic", "--loss=mse", "--replicas=2,1"]
    put("plan", "two-stages", run(*compile_, "--emit=plan"))
    put("ir", "mlp", run(*compile_, "--emit=ir"))
    put("ir", "training", run(*compile_, "--emit=training-ir"))
    for schedule in ("1f1b", "1f1b-flush", "gpipe"):
        text = run(*compile_, f"--schedule={schedule}", "--emit=schedule")
        put("schedule", schedule, text)
        put("schedule-file", schedule, text)
    # Two stages on one machine, straight: forms that need as many devices as stages.
    straight = [word for word in compile_ if not str(word).startswith("--replicas")] + ["--devices=2", "--straight"]
    csv = run(*straight, "--schedule=gpipe", "--microbatches=2", "--emit=csv")
    put("torch-csv", "gpipe", csv)
    put("schedule-file", "gpipe.csv", csv)
    out = folder / "out"
    run(*compile_, "-o", "out", "--schedule=1f1b-flush", "--microbatches=2", "--clip-norm=1", "--param-group=b:lr=0.1")
    put("profile", "analytic", (out / "profile.json").read_text())
    measured = json.loads((out / "profile.json").read_text())
    kernel = {"kernel": "Conv2d{.input = {2, 16, 8, 8}, .filter = {16, 16, 3, 3}}", "method": "forward"}
    measured["kernels"] = [{**kernel, "algorithm": "direct", "ms": 0.5}, {**kernel, "algorithm": "winograd", "ms": 0.25}]
    put("profile", "kernels", json.dumps(measured, indent=2) + "\n")
    sizes = {"outputs_first": False, "outputs_first_in_module": True, "inputs": 4, "outputs": 6, "rank": 2, "alpha": 4.0, "dropout": 0.05}
    put("adapters", "two", json.dumps({"trained": ["head.weight"], "adapters": [
        {"path": "h.0.attn", "weight": "h.0.attn.weight", **sizes, "slice": slice, "slices": 3} for slice in (0, 2)]}))
    put("peft-config", "peft", json.dumps({"peft_type": "LORA", "r": 2, "lora_alpha": 4, "bias": "none", "use_rslora": True,
                                           "alpha_pattern": {"h[.]0[.]attn": 8}, "target_modules": ["attn"]}))
    put("training", "small", (out / "training.json").read_text())
    put("safetensors", "weights", next((out / "weights").iterdir()).read_bytes())
    inputs = SOURCE / "test/Planner/Inputs"
    put("cost-graph", "chain", (inputs / "chain.json").read_text())
    put("cluster", "levels", (inputs / "cluster.json").read_text())
    put("placement", "small", (inputs / "placement.json").read_text())
    put("piper", "small", (inputs / "piper.json").read_text())
    put("pipedream-profile", "chain", (inputs / "chain.txt").read_text())
    put("trace", "two", json.dumps({"traceEvents": [
        {"name": "process_name", "ph": "M", "pid": 0, "args": {"name": "rank 0"}},
        {"name": "0F0", "cat": "forward", "ph": "X", "pid": 0, "tid": 0, "ts": 0, "dur": 10},
        {"name": "?0RB0<1", "cat": "wait", "ph": "X", "pid": 0, "tid": 0, "ts": 10, "dur": 5}]}))
    put("metrics", "two", '{"step": 0, "loss": 1.5, "lr": 0.1}\n{"step": 1, "test_loss": 1.25, "accuracy": 0.5}\n')


def runtime_seeds():
    for name, descr, shape, data in [("matrix", "<f4", "(2, 3)", bytes(24)), ("vector", "<i8", "(2,)", bytes(16)), ("scalar", "|b1", "()", b"\1")]:
        header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"
        header += " " * (63 - (10 + len(header)) % 64) + "\n"
        put("npy", name, b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header.encode() + data)
    header = json.dumps({"__metadata__": {"a": "b"}, "x": {"dtype": "F32", "shape": [2, 1], "data_offsets": [0, 8]},
                         "y": {"dtype": "I64", "shape": [], "data_offsets": [8, 16]}}).encode()
    put("safetensors", "two", len(header).to_bytes(8, "little") + header + bytes(16))
    put("manifest", "body", """{
 "format": 1,
 "minibatches": 8,
 "minibatches_per_update": 4,
 "step": 2,
 "data": {
  "batch": 4,
  "samples": 64,
  "seed": 5,
  "shuffle": true
 },
 "optimizer": "sgd",
 "lr": 0.1,
 "loss_scale": {
  "scale": 1.0,
  "finite_steps": 0
 },
 "model_hash": "00ff",
 "replicas": [
  1
 ],
 "shards": [
  {
   "file": "stage0.safetensors",
   "kind": "weights",
   "stage": 0,
   "replica": 0,
   "bytes": 24,
   "crc32c": "00000000"
  },
  {
   "file": "stage0.optimizer.safetensors",
   "kind": "optimizer",
   "stage": 0,
   "replica": 0,
   "bytes": 24,
   "crc32c": "00000000"
  }
 ],
""")
    put("control", "lines", "hello 0123 4711 host 00ff.11aa 0:0.0 1:1.0,3.1\nbeat 1 7 1 ?0RB2<1 250\nbeat 0 0 0 - 0\nbye 75\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=SOURCE / "build/release", type=pathlib.Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        onnx_seeds(pathlib.Path(folder))
        planner_seeds(arguments.build.resolve() / "bin", pathlib.Path(folder))
    runtime_seeds()
    print(sum(path.is_file() for path in CORPUS.rglob("*")), "files", file=sys.stderr)


main()
