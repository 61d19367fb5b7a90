"""ignored_with_pytorch.py BUILD FOLDER: labels that do not count, over microbatches and replicas, against PyTorch in f64.

PyTorch sees the whole batch of an update at once: its loss is the mean over all positions of it that count, its optimizer the one
that is named (with momentum and weight decay, which act on an update without any position that counts as on every zero gradient).
Some microbatches have no position that counts, one update has none, and the last one is short. Each case is also compared with the
mean over microbatches, which it must not be.
"""
import json
import pathlib
import re
import subprocess
import sys

import numpy
import onnx
import torch
from exported import numbers
from onnx import TensorProto, helper, numpy_helper

build, folder = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
BATCH, WIDTH, CLASSES, POSITIONS, IGNORED = 4, 6, 5, 3, -100
rng = numpy.random.default_rng(11)
shapes = {"first.weight": (8, WIDTH), "first.bias": (8,), "second.weight": (CLASSES, 8), "second.bias": (CLASSES,)}
initial = {name: (0.5 * rng.standard_normal(shape)).astype(numpy.float32) for name, shape in shapes.items()}
MINIBATCHES, MICROBATCHES = 22, 4  # five whole updates, and one of two minibatches
samples = BATCH * MINIBATCHES
x = rng.standard_normal((samples, POSITIONS, WIDTH)).astype(numpy.float32)
full = rng.integers(CLASSES, size=(samples, POSITIONS))
some = numpy.where(rng.random((samples, POSITIONS)) < 0.6, IGNORED, full)
some[:BATCH] = full[:BATCH]
some[BATCH:2 * BATCH] = IGNORED  # a microbatch without any
some[2 * MICROBATCHES * BATCH:3 * MICROBATCHES * BATCH] = IGNORED  # an update without any
class_weights = [0.5, 2, 1, 0.25, 3]
WEIGHTS = "/".join(map(str, class_weights))


def run(*command):
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: code {done.returncode}\n{done.stdout}")
    return done.stdout


def write_inputs():
    for name, labels in {"some": some, "full": full}.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        numpy.save(folder / name / "x.npy", x)
        numpy.save(folder / name / "label.npy", labels)
    linear = lambda x, layer, y: [helper.make_node("MatMul", [x, layer + ".turned"], [y + ".product"]),
                                  helper.make_node("Add", [y + ".product", layer + ".bias"], [y])]
    turned = [helper.make_node("Transpose", [layer + ".weight"], [layer + ".turned"], perm=[1, 0]) for layer in ("first", "second")]
    graph = helper.make_graph(
        [*turned, *linear("x", "first", "sum"), helper.make_node("Tanh", ["sum"], ["hidden"]), *linear("hidden", "second", "logits"),
         helper.make_node("Softmax", ["logits"], ["probabilities"], axis=-1)], "mlp",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", POSITIONS, WIDTH])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["N", POSITIONS, CLASSES])],
        [numpy_helper.from_array(value, name) for name, value in initial.items()])
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 13)]), folder / "model.onnx")


OPTIMIZER = "--optimizer=momentum,lr=0.2,momentum=0.8,weight_decay=0.05"
programs = {}  # by what they depend on


def by_pdc(name, schedule, replicas, loss, data="some"):
    run(build / "bin/pdc", folder / "model.onnx", "-o", folder / name, f"--batch={BATCH}", f"--replicas={replicas}", *schedule,
        "--profile=analytic", f"--loss={loss}", OPTIMIZER)
    sources = tuple(re.sub("^//.*", "", (folder / name / f"stage{s}.cpp").read_text(), flags=re.M)
                    for s in range(len(replicas.split(","))))
    if sources not in programs:
        programs[sources] = folder / f"programs-{len(programs)}"
        run("cmake", "-S", folder / name, "-B", programs[sources], "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={build}")
        run("cmake", "--build", programs[sources])
    log = folder / name / "metrics.jsonl"
    run(programs[sources] / "pipeline", "--dir", folder / name, "--threads", "--data", folder / data, "--shuffle=off",
        "--epochs=1", "--export-weights", folder / f"{name}-weights", "--metrics", log)
    losses = [json.loads(line) for line in log.read_text().splitlines()]
    return numbers(folder / f"{name}-weights"), [entry["loss"] for entry in losses if "loss" in entry and "step" in entry]


def update_of(schedule, replicas):
    return MICROBATCHES if any("microbatches" in flag for flag in schedule) else int(replicas.split(",")[0])


def by_pytorch(together, labels, per_class=None, of_microbatches=False):
    parameters = {name: torch.tensor(value, dtype=torch.float64, requires_grad=True) for name, value in initial.items()}
    optimizer = torch.optim.SGD(parameters.values(), lr=0.2, momentum=0.8, weight_decay=0.05)
    inputs, labels = torch.tensor(x).double(), torch.tensor(labels)
    weight = None if per_class is None else torch.tensor(per_class).double()
    losses = []
    for begin in range(0, samples, together * BATCH):
        own = slice(begin, begin + together * BATCH)
        hidden = torch.tanh(inputs[own] @ parameters["first.weight"].T + parameters["first.bias"])
        logits = hidden @ parameters["second.weight"].T + parameters["second.bias"]
        parts = zip(logits.split(BATCH), labels[own].split(BATCH)) if of_microbatches else [(logits, labels[own])]
        total = [torch.nn.functional.cross_entropy(l.reshape(-1, CLASSES), y.reshape(-1), weight, ignore_index=IGNORED)
                 if (y != IGNORED).any() else l.sum() * 0 for l, y in parts]
        loss = sum(total) / len(total)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {name: value.detach().numpy() for name, value in parameters.items()}, losses


def error(found, expected):
    return max(numpy.linalg.norm(found[name] - expected[name]) / numpy.linalg.norm(expected[name]) for name in expected)


write_inputs()
IGNORES = f"softmax-cross-entropy,ignore_index={IGNORED}"
flushing = lambda kind: [f"--schedule={kind}", f"--microbatches={MICROBATCHES}"]
# name: schedule, replicas, loss, class weights
CASES = {
    "gpipe": (flushing("gpipe"), "1,1", IGNORES, None),
    "1f1b-flush": (flushing("1f1b-flush"), "2,1", IGNORES, None),
    "replicated-loss": (flushing("1f1b-flush"), "1,2", IGNORES, None),
    "class-weights": (flushing("1f1b-flush"), "1,1", f"{IGNORES},class_weights={WEIGHTS}", class_weights),
    "nll": (flushing("gpipe"), "1,1", f"nll,ignore_index={IGNORED},average=update", None),
    "data-parallel": (["--schedule=1f1b", "--sync=barrier"], "2", IGNORES, None),
    "one-by-one": (["--schedule=1f1b", "--sync=barrier"], "1", IGNORES, None),
}
for name, (schedule, replicas, loss, per_class) in CASES.items():
    together = update_of(schedule, replicas)
    found, losses = by_pdc(name, schedule, replicas, loss)
    expected, expected_losses = by_pytorch(together, some, per_class)
    if (worst := error(found, expected)) > 2e-6:
        sys.exit(f"{name}: the relative error is {worst}")
    if together == MICROBATCHES and not numpy.allclose(losses, expected_losses, rtol=1e-5, atol=1e-6):
        sys.exit(f"{name}: the losses are {losses}, PyTorch's {expected_losses}")
    if together > 1 and error(found, by_pytorch(together, some, per_class, of_microbatches=True)[0]) < 1e-3:
        sys.exit(f"{name}: agrees with the mean of means, too")
    print(f"{name}: weights after {MINIBATCHES} minibatches are PyTorch's of whole batches")

minibatch, _ = by_pdc("minibatch", flushing("gpipe"), "1,1", f"{IGNORES},average=minibatch")
if (worst := error(minibatch, by_pytorch(MICROBATCHES, some, None, of_microbatches=True)[0])) > 2e-6:
    sys.exit(f"average=minibatch: the relative error is {worst}")
print("average=minibatch: weights are PyTorch's of the mean of means")
without, update, average = (by_pdc(name, flushing("gpipe"), "1,1", loss, "full")[0] for name, loss in
                            {"without": "softmax-cross-entropy", "all-count": IGNORES, "means": f"{IGNORES},average=minibatch"}.items())
if any((without[name] != update[name]).any() or (average[name] != update[name]).any() for name in without):
    sys.exit("where every position counts, shares change bits")
print("where every position counts, shares change no bit")
