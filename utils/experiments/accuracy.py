"""Time to accuracy on two hosts: synchronous data parallelism, and pipelines under three schedules.

A minibatch of one worker has as many samples under data parallelism and 1F1B; microbatches of 2BW and 1F1B-flush are so much smaller that
an update averages over as many samples as one of data parallelism does. Learning rates are proportional to the samples of an update.
"""
import dataclasses
import json
import sys
import time

from formulas import link_for, reached
from hosts import Hosts
from pipelines import Model, call, root
import texts


@dataclasses.dataclass
class Method:
    name: str
    part: int  # of a worker's batch: samples of a minibatch or microbatch
    rate: float  # learning rate, of that with which a worker's batch is one update
    flags: list


METHODS = [
    Method("data parallel", 1, 2, ["--replicas=2"]),
    Method("1F1B, stashing", 1, 1, ["--replicas=1,1"]),
    Method("2BW", 2, 2, ["--replicas=1,1", "--schedule=2bw", "--microbatches=4"]),
    Method("1F1B-flush", 2, 2, ["--replicas=1,1", "--schedule=1f1b-flush", "--microbatches=4"]),
]


@dataclasses.dataclass
class Task:
    title: str
    network: str
    size: str
    batch: int
    rho: float
    optimizer: str  # with {lr}
    lr: float
    epochs: int
    metric: str
    target: float
    seeds: int
    chosen: str = ""  # how rate and target were

    def data(self, folder):
        """Makes the data set once; the number of training samples."""
        if self.metric == "perplexity":
            return texts.write(folder, 2000, 24)[0]
        if not (folder / "train").exists():
            call([sys.executable, root / "examples/digits/fetch_data.py", folder], folder.with_suffix(".log"))
        return 1437

    def better(self, value):
        """Larger is better."""
        return -value if self.metric == "perplexity" else value


TASKS = {
    "digits": Task("VGG-style network, UCI digits", "vgg-digits", "small", 32, 5.2, "momentum,lr={lr},momentum=0.5", 0.02, 10, "accuracy", 0.93, 3,
                   "Learning rate and target were chosen with trial runs of all methods with one of these seeds on the same held-out samples: at 0.95, the "
                   "first target,\ndata parallelism had not arrived after 8 epochs, and 2BW lagged; 2BW got no rate of its own."),
    "text": Task("LSTM LM, Debian's licences", "lstm-lm", "text", 16, 4.0, "adam,lr={lr}", 0.002, 14, "perplexity", 140, 1,
                 "Epochs and target were chosen by training the network with PyTorch on the same samples, where it arrives after 11 epochs."),
}


def curve(lines, samples_per_step, samples, metric):
    """[(epochs, seconds, value)] of the evaluations in a file of metrics; the time of an evaluation is in no step's."""
    points, seconds = [], 0
    for line in map(json.loads, lines):
        if "step_ms" in line:
            seconds += line["step_ms"] / 1e3
        else:
            points.append((line["step"] * samples_per_step / samples, seconds, line[metric]))
    return points


class Accuracy:
    """A task in steps: profile and run want a quiet machine, build does not."""

    def __init__(self, name, work):
        self.name, self.task, self.work = name, TASKS[name], work
        self.link_file = work / f"accuracy-{name}-link.json"

    def model(self, method):
        optimizer = self.task.optimizer.format(lr=self.task.lr * method.rate)
        return Model(self.task.network, self.task.size, self.task.batch // method.part, self.work, optimizer, self.task.metric)

    def profile(self):
        for method in (METHODS[0], METHODS[2]):  # a worker's batch, and a microbatch
            self.model(method).measure()
        model = self.model(METHODS[0])
        nominal = link_for(self.task.rho, 2, model.parameter_bytes(), model.compute_ms() / 1e3)
        alone = model.program("accuracy-one host", nominal, ["--devices=1"])
        with Hosts(2) as hosts:
            limit, measured = hosts.calibrate(nominal)
            core = alone.core_s_per_byte(hosts)
        self.link_file.write_text(json.dumps({"nominal": limit, "measured": measured, "core_s_per_byte": core}))

    def build(self):
        link = json.loads(self.link_file.read_text())
        for method in METHODS:
            self.model(method).program(f"accuracy-{method.name}", link["measured"], method.flags, link["core_s_per_byte"])

    def run(self, rounds=None, before=None, keep=None):
        """Each seed once, all methods in turns."""
        task, parallel = self.task, self.model(METHODS[0])
        samples = task.data(self.work / f"data-{self.name}")
        result = {"kind": "accuracy", "name": self.name, "title": task.title, "chosen": task.chosen, "rho": task.rho, "metric": task.metric, "target": task.target,
                  "batch": task.batch, "samples": samples, "links": [], "curves": {method.name: [] for method in METHODS}}
        programs = {method.name: self.model(method).built(f"accuracy-{method.name}") for method in METHODS}
        with Hosts(2) as hosts:
            # The link is that of the ratio to what computations take now (throughput.py).
            compute_ms = parallel.built("accuracy-one host").alone_ms(hosts, 2)
            result["links"].append(hosts.calibrate(link_for(task.rho, 2, parallel.parameter_bytes(), compute_ms / 1e3))[1])
            for seed in range(1, (rounds or task.seeds) + 1):
                for method in METHODS:
                    program = programs[method.name]
                    per_step = program.batch * program.plan["microbatches"]
                    metrics = program.folder / "metrics.jsonl"
                    folder = self.work / f"data-{self.name}"
                    program.launch(hosts, ["--data", folder / "train", "--eval", folder / "test", "--eval-every", samples // per_step, "--epochs", task.epochs,
                                           "--seed", seed, "--metrics", metrics])
                    points = curve(metrics.read_text().splitlines(), per_step, samples, task.metric)
                    result["curves"][method.name].append(points)
                    found = reached([(epochs, seconds, task.better(value)) for epochs, seconds, value in points], task.better(task.target))
                    told = f"{found[0]:.1f} epochs, {found[1]:.2f} s" if found else f"not reached in {points[-1][1]:.2f} s"
                    print(f"{self.name}: {method.name}, seed {seed}: {task.metric} {task.target:g}: {told}; at the end {points[-1][2]:.4g}", flush=True)
        result["date"] = time.strftime("%Y-%m-%d")
        return result
