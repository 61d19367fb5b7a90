"""Programs of pdc for one network: exported, profiled, planned, built, run on hosts."""
import dataclasses
import json
import os
import pathlib
import subprocess
import sys

root = pathlib.Path(__file__).resolve().parent.parent.parent
build = pathlib.Path(os.environ.get("PDC_BUILD", root / "build" / "release"))
PYTHON = "/usr/bin/python3"  # Debian's, which has torch
LATENCY_S = 5e-5  # of a small message between namespaces, about


def call(command, log):
    """Its standard output; ends the script if it fails."""
    result = subprocess.run([str(word) for word in command], text=True, capture_output=True,
                            env={**os.environ, "OMP_NUM_THREADS": "1"}, stdin=subprocess.DEVNULL)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(result.stdout + result.stderr)
    if result.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{result.stdout[-3000:]}{result.stderr[-3000:]}")
    return result.stdout


@dataclasses.dataclass
class Measured:
    """A run: milliseconds per minibatch of one worker's size in the steady state, and what it sent per minibatch."""
    ms: float
    sent_by_transport: float
    sent_by_interface: float


class Model:
    """A network as a file, and its profile, in a folder that keeps them."""

    def __init__(self, name, size, batch, work, optimizer="momentum,lr=0.01,momentum=0.9"):
        self.name, self.batch, self.work = name, batch, work / name
        self.file = self.work / "model.onnx"
        self.flags = [f"--batch={batch}", "--loss=softmax-cross-entropy:logits", f"--optimizer={optimizer}"]
        if not self.file.exists():
            call([PYTHON, root / "utils/models/export.py", name, self.file, f"--size={size}"], self.work / "export.log")

    def measure(self):
        """Of every fusion group, on a core while another host's core computes the same."""
        call([build / "bin/pdc-profile", self.file, "-o", self.work / "profile.json", f"--busy-cores={min(2, os.cpu_count())}",
              *self.flags], self.work / "profile.log")
        groups = json.loads((self.work / "profile.json").read_text())["groups"]
        self.compute_ms = sum(group[part] for group in groups for part in ("forward_ms", "input_gradient_ms", "weight_gradient_ms"))
        return self.compute_ms

    def parameter_bytes(self):
        """As the data-parallel plan states them."""
        return sum(stage["parameter_bytes"] for stage in self.plan(1e9, ["--devices=1"])["stages"])

    def cluster(self, bytes_per_s, count):
        file = self.work / f"cluster-{count}.json"
        file.write_text(json.dumps({"levels": [{"name": "network", "count": count, "bandwidth_bytes_per_s": bytes_per_s, "latency_s": LATENCY_S}],
                                    "device": {"name": "cpu", "memory_bytes": 8e9}}))
        return file

    def plan(self, bytes_per_s, flags, count=2):
        """The plan that pdc makes for hosts with such links."""
        machines = [] if "--devices=1" in flags else [f"--cluster={self.cluster(bytes_per_s, count)}"]
        return json.loads(call([build / "bin/pdc", self.file, *self.flags, *machines, f"--profile={self.work / 'profile.json'}",
                                "--emit=plan", *flags], self.work / "plan.log"))

    def program(self, title, bytes_per_s, flags):
        return Program(self, title, bytes_per_s, flags)


class Program:
    """Stage programs for hosts with such links, built."""

    def __init__(self, model, title, bytes_per_s, flags):
        self.model, self.title, self.folder = model, title, model.work / title.replace(" ", "-")
        machines = [] if "--devices=1" in flags else [f"--cluster={model.cluster(bytes_per_s, 2)}"]
        call([build / "bin/pdc", model.file, "-o", self.folder, *model.flags, *machines,
              f"--profile={model.work / 'profile.json'}", *flags], model.work / f"{title}.log")
        self.plan = json.loads((self.folder / "plan.json").read_text())
        out = self.folder / "out"
        call(["cmake", "-S", self.folder, "-B", out, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={build}"], model.work / "cmake.log")
        call(["cmake", "--build", out, "--target", "pipeline"], model.work / "build.log")

    def shape(self):
        """Replicas of each stage."""
        return "-".join(str(stage["replicas"]) for stage in self.plan["stages"])

    def predicted_ms(self):
        """By the simulator, in the steady state."""
        return json.loads(call([build / "bin/pdc-sim", self.folder / "plan.json", "--json"], self.folder / "sim.log"))["time_per_minibatch_ms"]

    def run(self, hosts, minibatches, more=()):
        ranks = len(self.plan["ranks"])
        metrics = self.folder / "metrics.jsonl"
        before = hosts.bytes_sent()
        words = [*hosts.mpirun(range(ranks), ["OMP_NUM_THREADS"]), self.folder / "out/pipeline", "--dir", self.folder, "--data", "synthetic",
                 "--samples", 4 * self.model.batch, "--steps", minibatches, "--metrics", metrics, *more]
        result = hosts.run(0, words, text=True, capture_output=True, stdin=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"})
        (self.folder / "run.log").write_text(result.stdout + result.stderr)
        if result.returncode:
            sys.exit(f"{' '.join(map(str, words))} failed:\n{result.stdout[-3000:]}{result.stderr[-3000:]}")
        text = result.stdout + result.stderr
        line = next(line for line in text.splitlines() if line.startswith("pipeline: "))
        after = hosts.bytes_sent()
        return Measured(ms=float(line.split(" ms measured")[0].split()[-1]), sent_by_transport=self._sent(text) / minibatches,
                        sent_by_interface=sum(b - a for a, b in zip(before, after)) / minibatches)

    def _sent(self, text):
        """Bytes that the ranks say they have sent: the last column of the summary, in MiB."""
        lines = text.splitlines()
        first = next(i for i, line in enumerate(lines) if line.split()[:2] == ["stage", "rank"]) + 1
        return sum(float(line.split()[-1]) for line in lines[first:first + len(self.plan["ranks"])]) * 2**20
