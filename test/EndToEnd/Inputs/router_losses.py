"""router_losses.py BUILD FOLDER: the losses of the routers of mixtures of experts, one by one: what pdc says of their gradients against
differences of the loss between weights that are moved a little along random directions, in f64 by the interpreter. No choice of an
expert is near a tie."""
import argparse
import pathlib
import sys

import numpy
import onnx
from onnx import numpy_helper

sys.path.append(str(pathlib.Path(__file__).resolve().parents[3] / "utils" / "models"))
from compare import run
from exported import tensors
from export import export
from networks import NETWORKS, samples
from reference import settled_weights

STEP, ALLOWED, DIRECTIONS = 2.0 ** -20, 1e-8, 3
OPTIONS = argparse.Namespace(size="small", batch=4, microbatches=1, steps=1, seed=0, inference=False)


class Loss:
    """One output of a model, as pdc-eval computes it."""

    def __init__(self, tools, folder, name):
        self.tools, self.folder, self.name = tools, folder, name

    def at(self, weights):
        """Its value with other weights."""
        model = onnx.load(self.folder / "model.onnx")
        for tensor in model.graph.initializer:
            if tensor.name in weights:
                tensor.CopyFrom(numpy_helper.from_array(weights[tensor.name], tensor.name))
        onnx.save(model, str(self.folder / "moved.onnx"))
        run([self.tools / "bin/pdc-eval", self.folder / "moved.onnx", "--inputs", self.folder, "--outputs", self.folder / "out", "--gradients",
             "--precision=f64", "--batch=4", f"--loss=output:{self.name}"])
        return float(numpy.load(self.folder / "out" / "loss.npy"))

    def gradients(self):
        self.at({})
        return {name: numpy.frombuffer(values, "<f8").reshape(shape)
                      for name, (element, shape, values) in tensors(self.folder / "out").items() if element == "F64"}


def norm(values):
    return numpy.sqrt(sum(numpy.vdot(value, value) for value in values.values()))


def check(name, tools, folder):
    network, settled = NETWORKS[name]["small"], settled_weights(name, OPTIONS)
    weights = {key: value.numpy() for key, value in settled.items()}
    folder.mkdir(parents=True, exist_ok=True)
    export(name, str(folder / "model.onnx"), loss=True, batch=4, weights=settled)
    inputs, label = samples(network, 4, seed=1)
    for entry, values in zip((*network.inputs, network.label), (*inputs, label)):
        numpy.save(folder / f"{entry.name}.npy", values.numpy())
    for output in network.losses():
        loss, random, worst, without = Loss(tools, folder, output), numpy.random.default_rng(0), 0.0, 0.0
        gradients = loss.gradients()
        routers = [key for key in gradients if key.endswith("router.weight")]
        for _ in range(DIRECTIONS):
            moves = {key: STEP * random.standard_normal(weights[key].shape) for key in gradients}
            ends = [{key: (weights[key] + sign * moves[key]).astype(numpy.float32) for key in gradients} for sign in (1, -1)]
            difference = loss.at(ends[0]) - loss.at(ends[1])
            moved = {key: ends[0][key].astype(numpy.float64) - ends[1][key] for key in gradients}
            of_routers, of_all = (sum(float(numpy.vdot(gradients[key], moved[key])) for key in keys) for keys in (routers, gradients))
            worst = max(worst, abs(difference - of_all) / (norm(gradients) * norm(moved)))
            without = max(without, abs(difference - of_all + of_routers) / (norm(gradients) * norm(moved)))
        print(f"{name}, {output}: {len(gradients)} gradients, of {len(routers)} routers too: differences of the loss are "
              f"{'equal' if worst <= ALLOWED else f'NOT equal, {worst:.1e}'}, without routers they are "
              f"{'not' if without > ALLOWED else 'NOT noticed'}", flush=True)


for model in ("switch", "gshard", "st-moe", "deepseek-moe"):
    check(model, pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]) / model)
