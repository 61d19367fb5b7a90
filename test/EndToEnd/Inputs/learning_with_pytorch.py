"""learning_with_pytorch.py TOOLS WORK KIND…: trains models of test/Import/Inputs/make_learning.py for five steps and
compares the losses, and what --export writes, with PyTorch's training of the same network.

TOOLS is the folder of pdc and pdc-run.
"""
import pathlib
import re
import subprocess
import sys

import numpy
import onnx
import torch
from onnx import numpy_helper
from torch.nn import functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "Import/Inputs"))
import make_learning  # noqa: E402

BATCH, STEPS, RATE = 8, 5, 0.5


def norm(p, inputs, layers):
    h = inputs["x"]
    for k, (scale, shift, mean, var) in enumerate(layers):
        h = F.conv2d(h, p[f"k{k}"], padding=1)
        h = F.relu(F.batch_norm(h, p[mean], p[var], p[scale], p[shift], training=True, momentum=0.1))
    return h.mean((2, 3)) @ p["fc"]


def towers(p, inputs):
    a, b = [F.batch_norm(F.conv2d(inputs[x], p["k"]), p["m"], p["v"], p["s"], p["b"], training=True, momentum=0.1)
            for x in ("x1", "x2")]
    return ((a - b) ** 2).mean((2, 3))


def loops(p, inputs):
    h = inputs["x"]
    for name in ("first", "second"):
        for _ in range(3):
            h = torch.tanh(h @ p[f"{name}/W"] + p[f"{name}/b"])
    return h @ p["fc"]


def stated_kinds(p, inputs):
    h = c = torch.zeros(4, 8)
    for t in range(5):  # ONNX's order of gates: input, output, forget, cell
        gates = inputs["x"][:, t] @ p["W"][0].T + h @ p["R"][0].T + p["b"][0, :32] + p["b"][0, 32:]
        i, o, f, g = gates.chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
    return h * 0.70710677 @ p["fc"]


def scalars(p, inputs):
    h = inputs["x"] @ p["W"] * p["logit_scale"].exp() * p["blocks.0.gate"]
    h = torch.where(h > 0, h, h * p["slope"]) * 0.5
    return torch.clamp((h.abs() + 1e-5) ** 2, max=50.0)


ONE, TWO = [("gamma", "beta", "mean", "var")], [(f"s{k}", f"t{k}", f"m{k}", f"v{k}") for k in range(2)]
# The network, the model that has each of its parameters as an initializer, and how the trained model calls them.
NETWORKS = {
    "norm-merged": (lambda p, x: norm(p, x, ONE), "norm-apart",
                    {"gamma": "ones", "beta": "zeros", "mean": "norm0.running_mean", "var": "norm0.running_var"}),
    "norms-merged": (lambda p, x: norm(p, x, TWO), "norms-apart",
                     {"s0": "ones", "t0": "zeros", "m0": "norm0.running_mean", "v0": "norm0.running_var",
                      "s1": "norm1.weight",
                      "t1": "norm1.bias", "m1": "norm1.running_mean", "v1": "norm1.running_var"}),
    "towers-shared": (towers, "towers-shared", {}),
    "towers-chained": (towers, "towers-shared", {}),
    "loops": (loops, "loops-unrolled", {}),
    "constants-only": (lambda p, x: x["x"] @ p["W"] + p["b"], "initializers-only", {}),
    "stated-kinds": (stated_kinds, "stated-kinds", {}),
    "scalars": (scalars, "scalars", {}),
}
STATES = ("mean", "var", "m0", "v0", "m1", "v1", "m", "v")
CONSTANTS = ("val_16", "val_68", "half", "norm.eps", "power", "act.limit")


def run(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def main(tools, work, kinds):
    work.mkdir(parents=True, exist_ok=True)
    for kind in kinds:
        network, apart, names = NETWORKS[kind]
        model = make_learning.__dict__[kind.replace("-", "_")]().proto
        onnx.save(model, str(work / f"{kind}.onnx"))
        batch = 4 if kind == "stated-kinds" else BATCH
        data = work / f"{kind}.data"
        data.mkdir(exist_ok=True)
        r = numpy.random.default_rng(11)
        initializers = {t.name for t in model.graph.initializer}
        samples = {}
        for value in model.graph.input:
            if value.name in initializers:
                continue
            shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
            samples[value.name] = (r.normal(size=[batch * STEPS] + shape[1:]) * 2 + 0.5).astype(numpy.float32)
        samples["label"] = r.integers(0, 3, batch * STEPS)
        for name, values in samples.items():
            numpy.save(data / f"{name}.npy", values)

        run(tools / "pdc", work / f"{kind}.onnx", "-o", work / f"{kind}.out", f"--batch={batch}", "--profile=analytic",
            "--loss=softmax-cross-entropy", f"--optimizer=sgd,lr={RATE}")
        text = run(tools / "pdc-run", work / f"{kind}.out", "--data", data, "--shuffle=off", "--threads", "--steps",
                   STEPS,
                   "--export", work / f"{kind}.trained.onnx")
        losses = [float(x) for x in re.findall(r"^step \d+/\d+.*?loss ([0-9.e+-]+)", text, re.M)]

        parameters = {t.name: torch.tensor(numpy_helper.to_array(t))
                      for t in make_learning.__dict__[apart.replace("-", "_")]().proto.graph.initializer}
        trained = [p for name, p in parameters.items() if p.is_floating_point() and name not in STATES + CONSTANTS]
        for parameter in trained:
            parameter.requires_grad_()
        optimizer = torch.optim.SGD(trained, lr=RATE)
        expected = []
        for step in range(STEPS):
            inputs = {name: torch.tensor(values[step * batch:(step + 1) * batch]) for name, values in samples.items()}
            loss = F.cross_entropy(network(parameters, inputs), inputs["label"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            expected.append(loss.item())
        if len(losses) != STEPS or not numpy.allclose(losses, expected, rtol=0, atol=2e-4):
            sys.exit(f"{kind}: losses {losses}, PyTorch's are {expected}\n{text}")

        exported = {t.name: numpy_helper.to_array(t)
                    for t in onnx.load(str(work / f"{kind}.trained.onnx")).graph.initializer}
        for name, value in parameters.items():
            found = exported.get(names.get(name, name))
            if found is None:
                sys.exit(f"{kind}: '{names.get(name, name)}' was not exported, only {sorted(exported)}")
            # PyTorch's running variance is that of a sample, ONNX's that of all.
            if name not in ("var", "v0", "v1", "v") and not numpy.allclose(found, value.detach().numpy(), rtol=1e-4,
                                                                           atol=2e-5):
                sys.exit(f"{kind}: '{name}' is {found}, PyTorch's is {value.detach().numpy()}")
        print(f"{kind}: losses and weights are PyTorch's", flush=True)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3:])
