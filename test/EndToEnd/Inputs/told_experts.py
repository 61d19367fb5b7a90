"""told_experts.py BUILD FOLDER: what a run of ST-MoE tells beside its loss, against PyTorch: the losses of its routers at each step, and
at an evaluation how many tokens each expert takes and how many find no slot. In one stage and in three, with a loss that the model adds
up, and in three with a --loss for each term. Nothing is learnt, so that all steps have the initial weights."""
import argparse
import copy
import json
import pathlib
import sys

import numpy
import torch
from torch.nn import functional

sys.path.append(str(pathlib.Path(__file__).resolve().parents[3] / "utils" / "models"))
from compare import run
from experts import Experts
from export import export
from networks import NETWORKS, build, samples
from reference import settled_weights

BATCH, MICROBATCHES, STEPS, EVALUATED = 4, 2, 2, 10  # samples of the evaluation: two minibatches, and half of one


def written(network, inputs, label, folder):
    folder.mkdir(parents=True, exist_ok=True)
    for entry, values in zip((*network.inputs, network.label), (*inputs, label)):
        numpy.save(folder / f"{entry.name}.npy", values.numpy())


class Counting:
    """Counts what the layers of experts of a module do, from the choices of its routers."""

    def __init__(self, module):
        self.layers = {name: [numpy.zeros(layer.experts), 0] for name, layer in module.named_modules() if isinstance(layer, Experts)}
        for name, layer in module.named_modules():
            if isinstance(layer, Experts):
                layer.router.register_forward_hook(lambda router, _, logits, name=name, layer=layer: self.count(name, layer, logits))

    def count(self, name, layer, logits):
        """The best experts of all tokens are served first, then the second best, token by token."""
        taken = numpy.zeros(layer.experts, int)
        best = logits.topk(layer.chosen, dim=-1).indices
        for expert in best.t().reshape(-1).tolist():
            taken[expert] += 1
        self.layers[name][0] += numpy.minimum(taken, layer.capacity)
        self.layers[name][1] += best.numel()

    def told(self):
        return {name: {"dropped": 1 - taken.sum() / wanted, "shares": taken / taken.sum(), "fullest": taken.max() / taken.mean()}
                for name, (taken, wanted) in self.layers.items()}


def expected(network, module, data, evaluated):
    """The mean of the cross-entropy and of each router's loss at each step, and what experts do in the evaluation."""
    def terms(batch, label):
        logits, *others = module(batch)
        return [float(functional.cross_entropy(logits.flatten(0, 1), label.flatten())), *map(float, others)]
    each = [terms(*batch) for batch in zip(data[0][0].split(BATCH), data[1].split(BATCH))]
    steps = numpy.array(each).reshape(STEPS, MICROBATCHES, -1).mean(axis=1)
    counting = Counting(module)
    for k in range(EVALUATED // BATCH):
        module(evaluated[0][0][k * BATCH:(k + 1) * BATCH])
    return steps, counting.told()


def near(found, right):
    return numpy.allclose(found, right, rtol=1e-5, atol=1e-6)


def main():
    tools, work = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    options = argparse.Namespace(size="small", batch=BATCH, microbatches=MICROBATCHES * STEPS, steps=1, seed=0, inference=False)
    weights = settled_weights("st-moe", options)
    network, module = build("st-moe", weights=weights)
    for layer in module.modules():  # so that some find no slot
        if isinstance(layer, Experts):
            layer.capacity = 12
    data, evaluated = samples(network, BATCH * MICROBATCHES * STEPS, seed=1), samples(network, EVALUATED, seed=2)
    written(network, *data, work / "data")
    written(network, *evaluated, work / "evaluated")
    NETWORKS["st-moe"]["few"] = network._replace(make=lambda: copy.deepcopy(module))
    export("st-moe", str(work / "model.onnx"), "few", loss=True, batch=BATCH, weights=weights)
    with torch.no_grad():
        steps, layers = expected(network, module, data, evaluated)
    export("st-moe", str(work / "terms.onnx"), "few", batch=BATCH, weights=weights)
    several = ["--loss=softmax-cross-entropy:logits", *(f"--loss=output:{name},weight={weight}" for name, weight in network.auxiliary.items())]
    names = network.losses()
    for stages, model, flags, first in (("1", "model", ["--loss=output:loss"], 1), ("1,1,1", "model", ["--loss=output:loss"], 1),
                                        ("1,1,1", "terms", several, 0)):
        out = work / f"{model}{stages.count('1')}"
        run([tools / "bin/pdc", work / f"{model}.onnx", "-o", out, f"--replicas={stages}", f"--batch={BATCH}", "--schedule=1f1b-flush",
             f"--microbatches={MICROBATCHES}", "--profile=analytic", "--optimizer=sgd,lr=0", *flags])
        run([tools / "bin/pdc-run", out, "--threads", "--data", work / "data", "--eval", work / "evaluated", "--shuffle", "off", "--steps",
             str(STEPS)])
        lines = [json.loads(line) for line in open(out / "metrics.jsonl")]
        expected_names = ["softmax-cross-entropy:logits", *names][first:]
        told = [line for line in lines if "terms" in line]
        good = len(told) == STEPS and all(list(line["terms"]) == expected_names and near(list(line["terms"].values()), right[first:])
                                          and near(line["loss"], right @ [1, *network.auxiliary.values()])
                                          for line, right in zip(told, steps))
        what = f"{model}, {stages}"
        print(f"{what}: losses and terms {', '.join(expected_names)} of each step are {'those' if good else 'NOT those'} of PyTorch")
        loads = lines[-1]["loads"]
        good = loads.keys() == layers.keys() and all(near(loads[layer][key], right[key]) for layer, right in layers.items() for key in right)
        some = all(0.01 < right["dropped"] < 0.5 for right in layers.values())
        print(f"{what}: loads of {len(loads)} layers are {'those' if good and some else 'NOT those'} of PyTorch")
        print(f"{what}: the evaluation has {sorted(set(lines[-1]) - {'step'})}")
        page = (out / "report.html").read_text()
        row = f"<code>blocks.1.experts</code></td><td>4</td><td>{100 * layers['blocks.1.experts']['dropped']:.1f} %"
        print(f"{what}: the page tells {'both' if row in page and '<code>z_loss</code>' in page else 'NOT both'}")


main()
