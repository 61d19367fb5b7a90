"""batch_axes_with_pytorch.py BUILD FOLDER: a recurrent network whose samples do not lie on the first axis, against PyTorch.

The network takes x [steps, batch, 3], a first state [1, batch, 4], factors [4] that are the same for all samples and a temperature that
is bound, and gives logits [steps, batch, 5]; labels are [steps, samples]. The same network with all samples first, on the same
samples, must train in the same way, in one stage and in two with microbatches, shuffled and not.
"""
import json
import pathlib
import struct
import subprocess
import sys

import numpy
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper

build, folder = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
STEPS, SAMPLES, BATCH, UPDATES, MICROBATCHES, RATE = 6, 18, 4, 3, 2, 0.5
rng = numpy.random.default_rng(11)
initial = {name: (rng.standard_normal(shape) * 0.5).astype(numpy.float32) for name, shape in
           {"in": (1, 4, 3), "again": (1, 4, 4), "out": (4, 5)}.items()}
data = {"x": rng.standard_normal((STEPS, SAMPLES, 3)).astype(numpy.float32),
        "state": rng.standard_normal((1, SAMPLES, 4)).astype(numpy.float32),
        "factors": numpy.array([0.5, 2, 1, -1], numpy.float32),
        "label": rng.integers(0, 5, (STEPS, SAMPLES))}


def write(samples_first):
    """The model, and the data in its layout."""
    place = folder / ("first" if samples_first else "second")
    (place / "data").mkdir(parents=True)
    axes = (lambda steps, rest: ["batch", steps, rest]) if samples_first else (lambda steps, rest: [steps, "batch", rest])
    swap = lambda name, after: [helper.make_node("Transpose", [name], [after], perm=[1, 0, 2])] if samples_first else []
    x, state, logits = ("x.t", "state.t", "logits.t") if samples_first else ("x", "state", "logits")
    nodes = [*swap("x", "x.t"), *swap("state", "state.t"),
             helper.make_node("RNN", [x, "in", "again", "", "", state], ["hidden"], "rnn", hidden_size=4),
             helper.make_node("Squeeze", ["hidden", "one"], ["rows"], "rows"),
             helper.make_node("Mul", ["rows", "factors"], ["scaled"], "scaled"),
             helper.make_node("MatMul", ["scaled", "out"], ["scores"], "scores"),
             helper.make_node("Div", ["scores", "temperature"], [logits], "logits"), *swap("logits.t", "logits")]
    info = lambda name, shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    graph = helper.make_graph(
        nodes, "axes", [info("x", axes(STEPS, 3)), info("state", axes(1, 4)), info("factors", [4]), info("temperature", [])],
        [info("logits", axes(STEPS, 5))],
        [*(numpy_helper.from_array(value, name) for name, value in initial.items()),
         numpy_helper.from_array(numpy.array([1]), "one")])
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 13)]), place / "model.onnx")
    for name, value in data.items():
        moved = numpy.moveaxis(value, 1, 0) if samples_first and name != "factors" else value
        numpy.save(place / "data" / f"{name}.npy", numpy.ascontiguousarray(moved))


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{command[0]} exits with {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def weights_of(place):
    found = {}
    for file in place.glob("*.safetensors"):
        content = file.read_bytes()
        (length,) = struct.unpack("<Q", content[:8])
        for name, entry in json.loads(content[8:8 + length]).items():
            if name in initial:
                values = content[8 + length:][slice(*entry["data_offsets"])]
                found[name] = numpy.frombuffer(values, numpy.float32).reshape(entry["shape"]).astype(float)
    return found


def compiled(name, model, *flags):
    run(build / "bin/pdc", folder / model / "model.onnx", "-o", folder / name, f"--batch={BATCH}", "--profile=analytic",
        "--loss=softmax-cross-entropy", f"--optimizer=sgd,lr={RATE}", "--batch-axis=factors:none", "--bind", "temperature=2",
        *flags)
    run("cmake", "-S", folder / name, "-B", folder / name / "out", "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={build}")
    run("cmake", "--build", folder / name / "out", "--target", "pipeline")


def trained(name, model, minibatches, shuffle="off"):
    """Weights after the run, and what an evaluation on all samples says."""
    exported = folder / f"{name}-{shuffle}-weights"
    said = run(folder / name / "out/pipeline", "--dir", folder / name, "--threads", "--data", folder / model / "data",
               f"--shuffle={shuffle}", f"--steps={minibatches}", "--eval", folder / model / "data", "--export-weights", exported)
    return weights_of(exported), [line for line in said.splitlines() if "test loss" in line]


def by_pytorch(dtype, minibatches_per_update):
    parameters = {name: torch.tensor(value, dtype=dtype, requires_grad=True) for name, value in initial.items()}
    tensors = {name: torch.tensor(value).to(dtype) if value.dtype == numpy.float32 else torch.tensor(value)
               for name, value in data.items()}

    def loss_of(samples):
        hidden, rows = tensors["state"][0, samples], []
        for step in tensors["x"][:, samples]:
            hidden = torch.tanh(step @ parameters["in"][0].T + hidden @ parameters["again"][0].T)
            rows.append(hidden)
        logits = torch.stack(rows) * tensors["factors"] @ parameters["out"] / 2
        return torch.nn.functional.cross_entropy(logits.reshape(-1, 5), tensors["label"][:, samples].reshape(-1))

    for update in range(UPDATES):
        for minibatch in range(update * minibatches_per_update, (update + 1) * minibatches_per_update):
            first = minibatch % (SAMPLES // BATCH) * BATCH
            (loss_of(slice(first, first + BATCH)) / minibatches_per_update).backward()
        with torch.no_grad():
            for parameter in parameters.values():
                parameter -= RATE * parameter.grad
                parameter.grad = None
    with torch.no_grad():
        return {name: value.double().numpy() for name, value in parameters.items()}, float(loss_of(slice(0, SAMPLES)))


def error(found, expected):
    return max(numpy.linalg.norm(found[name] - expected[name]) / numpy.linalg.norm(expected[name]) for name in expected)


def compare(what, found, said, minibatches_per_update):
    expected, loss = by_pytorch(torch.float64, minibatches_per_update)
    if (worst := error(found, expected)) > 1e-6:
        sys.exit(f"{what}: the relative error of the weights is {worst}")
    if not said or f"test loss {loss:.4f}" not in said[-1]:
        sys.exit(f"{what}: the evaluation says {said}, PyTorch {loss:.6f}")
    print(f"{what}: weights and evaluation are PyTorch's")


for samples_first in (True, False):
    write(samples_first)
compiled("one-first", "first")
compiled("one-second", "second")
flushing = ["--replicas=1,1", "--schedule=gpipe", f"--microbatches={MICROBATCHES}"]
compiled("two-second", "second", *flushing)
compare("samples first", *trained("one-first", "first", UPDATES), 1)
compare("samples second", *trained("one-second", "second", UPDATES), 1)
compare("samples second, two stages, microbatches", *trained("two-second", "second", UPDATES), MICROBATCHES)
first, second = (trained(f"one-{which}", which, 9, "on")[0] for which in ("first", "second"))
if (worst := error(first, second)) > 1e-6 or error(first, initial) < 1e-2:
    sys.exit(f"shuffled, the relative difference of the weights is {worst}")
print("shuffled, both layouts read the same samples")
