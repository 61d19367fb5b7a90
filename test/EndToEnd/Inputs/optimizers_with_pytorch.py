"""optimizers_with_pytorch.py BUILD FOLDER: weights after 12 updates of a two-stage pipeline, against PyTorch's in f64.

The programs are compiled once; optimizers, schedules of the learning rate, groups of parameters are in training.json. The error
of each parameter is at most 3 times that of PyTorch in f32 (floor 1e-6 of its norm), and the weights are no other optimizer's.
"""
import math
import pathlib
import subprocess
import sys

import numpy
import onnx
import torch
from exported import numbers
from onnx import TensorProto, helper, numpy_helper

build, folder = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
BATCH, MICROBATCHES, UPDATES, WIDTH, CLASSES = 4, 2, 12, 10, 5
rng = numpy.random.default_rng(3)
shapes = {"first.weight": (16, WIDTH), "first.bias": (16,), "second.weight": (CLASSES, 16), "second.bias": (CLASSES,)}
initial = {name: (0.5 * rng.standard_normal(shape)).astype(numpy.float32) for name, shape in shapes.items()}
samples = BATCH * MICROBATCHES * UPDATES
x, label = rng.standard_normal((samples, WIDTH)).astype(numpy.float32), rng.integers(CLASSES, size=samples)


def run(*command):
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: code {done.returncode}\n{done.stdout}")
    return done.stdout


def write_inputs():
    (folder / "data").mkdir(parents=True, exist_ok=True)
    numpy.save(folder / "data/x.npy", x)
    numpy.save(folder / "data/label.npy", label)
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "first.weight", "first.bias"], ["sum"], transB=1),
         helper.make_node("Tanh", ["sum"], ["hidden"]),
         helper.make_node("Gemm", ["hidden", "second.weight", "second.bias"], ["logits"], transB=1),
         helper.make_node("Mul", ["logits", "logits"], ["squares"]),
         helper.make_node("ReduceMean", ["squares"], ["energy"], keepdims=0)], "mlp",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", WIDTH])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", CLASSES]),
         helper.make_tensor_value_info("energy", TensorProto.FLOAT, [])],
        [numpy_helper.from_array(value, name) for name, value in initial.items()])
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 13)]), folder / "model.onnx")


said = {}  # by the runs


def by_pdc(name, flags, replicas="1,1", own_programs=False):
    run(build / "bin/pdc", folder / "model.onnx", "-o", folder / name, f"--batch={BATCH}", f"--replicas={replicas}",
        "--schedule=1f1b-flush", f"--microbatches={MICROBATCHES}", "--profile=analytic", "--loss=softmax-cross-entropy", *flags)
    programs = folder / (f"programs-{name}" if own_programs else f"programs-{replicas}")
    if not programs.exists():
        run("cmake", "-S", folder / name, "-B", programs, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={build}")
        run("cmake", "--build", programs)
    said[name] = run(programs / "pipeline", "--dir", folder / name, "--threads", "--data", folder / "data", "--shuffle=off",
        f"--steps={UPDATES}", "--eval", folder / "data", "--export-weights", folder / f"{name}-weights")
    return numbers(folder / f"{name}-weights")


def by_pytorch(make, factor, clip, dtype):
    parameters = {name: torch.tensor(value, dtype=dtype, requires_grad=True) for name, value in initial.items()}
    optimizer = make(parameters)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda update: factor(update * MICROBATCHES))
    batches = iter(zip(torch.tensor(x).to(dtype).split(BATCH), torch.tensor(label).split(BATCH)))
    for _ in range(UPDATES):
        optimizer.zero_grad()
        for _ in range(MICROBATCHES):
            inputs, labels = next(batches)
            hidden = torch.tanh(inputs @ parameters["first.weight"].T + parameters["first.bias"])
            logits = hidden @ parameters["second.weight"].T + parameters["second.bias"]
            (torch.nn.functional.cross_entropy(logits, labels) / MICROBATCHES).backward()
        for stage in clip or []:
            torch.nn.utils.clip_grad_norm_([p for name, p in parameters.items() if name.startswith(stage)], clip[stage])
        optimizer.step()
        schedule.step()
    return {name: value.detach().double().numpy() for name, value in parameters.items()}


def error(found, expected):
    return max(numpy.linalg.norm(found[name] - expected[name]) / numpy.linalg.norm(expected[name]) for name in expected)


def grouped(parameters):
    return torch.optim.AdamW([
        {"params": [parameters["first.weight"]], "lr": 0.01, "weight_decay": 0.1},
        {"params": [parameters["first.bias"]], "lr": 0.01, "weight_decay": 0.0},
        {"params": [parameters["second.weight"]], "lr": 0.002, "weight_decay": 0.1},
        {"params": [parameters["second.bias"]], "lr": 0.002, "weight_decay": 0.0}])


constant = lambda b: 1.0
sgd = lambda **options: lambda p: torch.optim.SGD(p.values(), **options)
# name: flags, PyTorch's optimizer, factor of the learning rate by minibatch, norms to clip to by the beginning of names
CASES = {
    "sgd": (["--optimizer=sgd,lr=0.1,weight_decay=0.02"], sgd(lr=0.1, weight_decay=0.02), constant, None),
    "momentum": (["--optimizer=momentum,lr=0.05,momentum=0.8,weight_decay=0.01"],
                 sgd(lr=0.05, momentum=0.8, weight_decay=0.01), constant, None),
    "nesterov": (["--optimizer=momentum,lr=0.05,momentum=0.8,nesterov=true,weight_decay=0.01"],
                 sgd(lr=0.05, momentum=0.8, weight_decay=0.01, nesterov=True), constant, None),
    "adam": (["--optimizer=adam,lr=0.02,betas=0.8/0.95,eps=1e-6,weight_decay=0.02"],
             lambda p: torch.optim.Adam(p.values(), lr=0.02, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.02), constant, None),
    "adamw": (["--optimizer=adamw,lr=0.01,weight_decay=0.1"],
              lambda p: torch.optim.AdamW(p.values(), lr=0.01, weight_decay=0.1), constant, None),
    "groups": (["--optimizer=adamw,lr=0.01,weight_decay=0.1", "--param-group=@vectors:weight_decay=0",
                "--param-group=^second:lr=0.002"], grouped, constant, None),
    "step": (["--optimizer=sgd,lr=0.2", "--lr-schedule=step,period=8,factor=0.5"], sgd(lr=0.2), lambda b: 0.5 ** (b // 8), None),
    "cosine": (["--optimizer=sgd,lr=0.2", "--lr-schedule=cosine,period=20,warmup=6"], sgd(lr=0.2),
               lambda b: min(b / 6, 1) * (1 + math.cos(math.pi * min(b, 20) / 20)) / 2, None),
    "clip": (["--optimizer=sgd,lr=0.1", "--clip-norm=0.5"], sgd(lr=0.1), constant, {"": 0.5}),
    "clip-by-stage": (["--optimizer=sgd,lr=0.1", "--clip-norm=0.5,scope=stage"], sgd(lr=0.1), constant,
                      {"first": 0.5, "second": 0.5}),
}

write_inputs()
expected = {name: by_pytorch(*case[1:], torch.float64) for name, case in CASES.items()}
for name, (flags, *reference) in CASES.items():
    found = by_pdc(name, flags)
    allowed = max(3 * error(by_pytorch(*reference, torch.float32), expected[name]), 1e-6)
    if (worst := error(found, expected[name])) > allowed:
        sys.exit(f"{name}: the relative error is {worst}, allowed {allowed}")
    for other, value in expected.items():
        if other != name and error(found, value) <= 10 * allowed:
            sys.exit(f"{name} agrees with {other}: the comparison notices nothing")
    print(f"{name}: weights after {UPDATES} updates are PyTorch's")
cut, uncut = by_pdc("clip", CASES["clip"][0]), by_pdc("clip-uncut", [*CASES["clip"][0], "--loss-scale=1024"], "1")
if any((cut[name] != uncut[name]).any() for name in uncut):
    sys.exit("a cut, or the loss scale, changes the bits of clipped updates")
print("clip: the bits of the uncut program, whose loss is scaled")

found = by_pdc("dynamic", [*CASES["clip"][0], "--loss-scale=dynamic,start=1024,interval=5", "--metric=output:energy"],
               own_programs=True)
if any((cut[name] != found[name]).any() for name in cut):
    sys.exit("a loss scale that grows changes the bits of clipped updates")
hidden = numpy.tanh(x @ found["first.weight"].T + found["first.bias"])
energy = numpy.mean((hidden @ found["second.weight"].T + found["second.bias"]) ** 2)
printed = said["dynamic"].partition("test output:energy ")[2].split()
if not printed or abs(float(printed[0]) - energy) > 1e-4:
    sys.exit(f"the evaluation has not the metric {energy:.4f}:\n" + said["dynamic"])
print("dynamic: the same bits with a loss scale that grows, and an output as metric")
