"""Programs of pdc for one network: exported, profiled, planned, built, run on hosts."""
import dataclasses
import json
import os
import pathlib
import subprocess
import sys

from formulas import bytes_per_minibatch
from machine import processor_time
from traces import busiest, steady_ms, steady_window, with_times_of

root = pathlib.Path(__file__).resolve().parent.parent.parent
build = pathlib.Path(os.environ.get("PDC_BUILD", root / "build" / "release"))
PYTHON = "/usr/bin/python3"  # Debian's, which has torch
LATENCY_S = 5e-5  # of a small message between namespaces, about
COMPUTING = ("forward_ms", "input_gradient_ms", "weight_gradient_ms")  # of a stage of a plan, and of a group of a profile


def call(command, log):
    """Its standard output; ends the script if it fails."""
    result = subprocess.run([str(word) for word in command], text=True, capture_output=True,
                            env={**os.environ, "OMP_NUM_THREADS": "1"}, stdin=subprocess.DEVNULL)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(result.stdout + result.stderr)
    if result.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{result.stdout[-3000:]}{result.stderr[-3000:]}")
    return result.stdout


def cluster(file, bytes_per_s, count, core_s_per_byte):
    """`file`, in which so many hosts with such links are described."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"levels": [{"name": "network", "count": count, "bandwidth_bytes_per_s": bytes_per_s, "latency_s": LATENCY_S}],
                                "device": {"name": "cpu", "memory_bytes": 8e9, "core_s_per_byte": core_s_per_byte}}))
    return file


def with_link(plan, bytes_per_s):
    """The plan with links of another rate. Its all-reduces, which it states as times, take as much longer, but for the latency of their 2(r-1) steps.
    What a backward hides of them, pdc-sim computes again where the plan states buckets.
    """
    plan = json.loads(json.dumps(plan))
    level = plan["cluster"]["levels"][-1]
    slower = level["bandwidth_bytes_per_s"] / bytes_per_s
    for stage in plan["stages"]:
        alone = stage.get("all_reduce_ms", 0)
        latency = min(alone, 2e3 * (stage.get("replicas", 1) - 1) * level.get("latency_s", 0))
        stage["all_reduce_ms"] = latency + (alone - latency) * slower
        stage["exposed_sync_ms"] = stage.get("exposed_sync_ms", 0) * (stage["all_reduce_ms"] / alone if alone else 1)
    level["bandwidth_bytes_per_s"] = bytes_per_s
    return plan


def simulated(plan, file, more=()):
    """What pdc-sim says of a plan, which is written to `file`."""
    file.write_text(json.dumps(plan))
    return json.loads(call([build / "bin/pdc-sim", file, "--json", *more], file.with_suffix(".log")))


@dataclasses.dataclass
class Measured:
    """A run: its length, milliseconds per minibatch of one worker's size in the steady state; the same as the simulator says it with the times that
    the computations took in this run; what was sent per minibatch; parts of all ranks' time.
    """
    minibatches: int
    ms: float
    own_ms: float
    compute_ms: float  # forward and backward of a minibatch, all stages
    sent_by_transport: float
    sent_by_interface: float
    exposed: float  # waiting for transfers and all-reduces under way
    waiting: float  # for what another rank had not started
    other: float  # neither waiting nor computing
    busiest: float  # part of the time that the rank with most to do computes for
    stolen: float  # part of the processors' time that a virtual machine's host took away


class Model:
    """A network as a file, and its profile, in a folder that keeps them."""

    def __init__(self, name, size, batch, work, optimizer="momentum,lr=0.01,momentum=0.9", metric="accuracy"):
        self.name, self.batch, self.work = name, batch, work / f"{name}-{size}"
        self.file, self.profile_file = self.work / "model.onnx", self.work / f"profile-{batch}.json"
        self.flags = [f"--batch={batch}", "--loss=softmax-cross-entropy:logits", f"--optimizer={optimizer}", f"--metric={metric}"]
        if not self.file.exists():
            call([PYTHON, root / "utils/models/export.py", name, self.file, f"--size={size}"], self.work / "export.log")

    def measure(self):
        """Every fusion group, on a core while another host's core computes the same."""
        call([build / "bin/pdc-profile", "--target=cpu", self.file, "-o", self.profile_file, f"--busy-cores={min(2, os.cpu_count())}",
              *[flag for flag in self.flags if not flag.startswith("--metric")]], self.work / "profile.log")

    def compute_ms(self):
        groups = json.loads(self.profile_file.read_text())["groups"]
        return sum(group[part] for group in groups for part in COMPUTING)

    def parameter_bytes(self):
        """Of what is trained."""
        return sum(stage["gradient_bytes"] for stage in self.plan(1e9, ["--devices=1"])["stages"])

    def _machines(self, bytes_per_s, flags, count, core_s_per_byte=0.0):
        if "--devices=1" in flags:
            return []
        return [f"--cluster={cluster(self.work / f'cluster-{count}.json', bytes_per_s, count, core_s_per_byte)}"]

    def plan(self, bytes_per_s, flags, count=2):
        """The plan that pdc makes for hosts with such links, and cores that need not move bytes."""
        return json.loads(call([build / "bin/pdc", "--target=cpu", self.file, *self.flags, *self._machines(bytes_per_s, flags, count),
                                f"--profile={self.profile_file}", "--emit=plan", *flags], self.work / "plan.log"))

    def folder(self, title):
        return self.work / title.replace(" ", "-").replace(",", "")

    def built(self, title):
        """What `program` has left there."""
        if not (self.folder(title) / "out/pipeline").exists():
            sys.exit(f"{self.folder(title)} was not built: run the step 'build' first")
        return Program(self.folder(title))

    def program(self, title, bytes_per_s, flags, core_s_per_byte=0.0):
        """Stage programs for two hosts with such links, built; a byte sent or received takes so much of a core."""
        folder = self.folder(title)
        call([build / "bin/pdc", "--target=cpu", self.file, "-o", folder, *self.flags, *self._machines(bytes_per_s, flags, 2, core_s_per_byte),
              f"--profile={self.profile_file}", *flags], self.work / f"{folder.name}.log")
        call(["cmake", "-S", folder, "-B", folder / "out", "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={build}"], self.work / "cmake.log")
        call(["cmake", "--build", folder / "out", "--target", "pipeline"], self.work / "build.log")
        return Program(folder)


class Program:
    """A folder of stage programs that were built."""

    def __init__(self, folder):
        self.folder, self.plan = folder, json.loads((folder / "plan.json").read_text())
        self.batch = json.loads((folder / "training.json").read_text())["batch"]

    def shape(self):
        """Replicas of each stage."""
        return "-".join(str(stage["replicas"]) for stage in self.plan["stages"])

    def does_as(self, other):
        """Whether it has the stages and the schedule of another program of the same network."""
        return all(self.plan[key] == other.plan[key] for key in ("stages", "schedule", "microbatches"))

    def predicted_ms(self, bytes_per_s, slower):
        """By the simulator, in the steady state, with these links, where everything takes `slower` times as long as in the profile."""
        plan = with_link(self.plan, bytes_per_s)
        for stage in plan["stages"]:
            for cost in (*COMPUTING, "update_ms", "all_reduce_core_ms"):
                stage[cost] = slower * stage.get(cost, 0)
        return simulated(plan, self.folder / "predicted.json")["time_per_minibatch_ms"]

    def minibatches(self, seconds):
        """As many as take about so long, enough for a steady state, a multiple of the replicas and of an update's microbatches."""
        replicas, warmup = self.plan["stages"][0]["replicas"], self.plan["stages"][0]["warmup"]
        least = 4 * replicas if replicas > 1 else 6 + 2 * warmup
        count = min(300, max(least, round(1e3 * seconds / self.plan["time_ms"])))
        return count + -count % (2 * replicas * self.plan["microbatches"])

    def alone_ms(self, hosts, seconds):
        """Forward and backward of a minibatch on one host while the others compute the same: the mean. Of a program for one host."""
        words = [self.folder / "out/pipeline", "--threads", "--dir", self.folder, *self._noise(self.minibatches(seconds))]
        files = [self.folder / f"alone-{host}.json" for host, _ in enumerate(hosts.names)]
        logs = [file.with_suffix(".log") for file in files]
        runs = [hosts.start(host, [*words, "--trace", file], log) for host, (file, log) in enumerate(zip(files, logs))]
        for code, log in [(run.wait(), log) for run, log in zip(runs, logs)]:
            if code:
                sys.exit(f"{' '.join(map(str, words))} failed:\n{log.read_text()[-3000:]}")
        own = [with_times_of(self.plan, trace, steady_window(self.plan, trace)[0])["stages"]
               for trace in (json.loads(file.read_text())["traceEvents"] for file in files)]
        return sum(stage[cost] for stages in own for stage in stages for cost in COMPUTING) / len(own)

    def core_s_per_byte(self, hosts):
        """What a byte that a host sends or receives over the link takes from its core: `pipeline --link`."""
        file = self.folder / "link.json"
        self._start(hosts, [0, 1], ["--link", file], "link.log")
        return json.loads(file.read_text())["core_s_per_byte"]

    def launch(self, hosts, more, log="run.log"):
        """Runs it with these flags; returns what it said."""
        return self._start(hosts, range(len(self.plan["ranks"])), ["--dir", self.folder, *more], log)

    def _start(self, hosts, ranks, flags, log):
        words = [*hosts.mpirun(ranks, ["OMP_NUM_THREADS"]), self.folder / "out/pipeline", *flags]
        result = hosts.run(0, words, text=True, capture_output=True, stdin=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"})
        (self.folder / log).write_text(result.stdout + result.stderr)
        if result.returncode:
            sys.exit(f"{' '.join(map(str, words))} failed:\n{result.stdout[-3000:]}{result.stderr[-3000:]}")
        return result.stdout + result.stderr

    def run(self, hosts, minibatches, bytes_per_s):
        """Trains so many minibatches of noise over links with this rate."""
        trace_file, before, time_before = self.folder / "trace.json", hosts.bytes_sent(), processor_time()
        text = self.launch(hosts, [*self._noise(minibatches), "--trace", trace_file])
        sent = sum(b - a for a, b in zip(before, hosts.bytes_sent()))
        taken, all_time = (b - a for a, b in zip(time_before, processor_time()))
        trace = json.loads(trace_file.read_text())["traceEvents"]
        own = with_times_of(with_link(self.plan, bytes_per_s), trace, steady_window(self.plan, trace)[0])
        told = simulated(own, self.folder / "own.json", ["--compare", trace_file])
        part = {name: value["measured"] for name, value in told["comparison"]["time_fractions"].items()}
        return Measured(minibatches=minibatches, ms=steady_ms(self.plan, trace), own_ms=told["time_per_minibatch_ms"],
                        compute_ms=sum(stage[cost] for stage in own["stages"] for cost in COMPUTING), sent_by_transport=self._sent(text) / minibatches,
                        sent_by_interface=sent / minibatches, exposed=part["exposed_transfers"] + part["exposed_all_reduce"],
                        waiting=part["waiting"], other=part["other"], busiest=busiest(self.plan, trace), stolen=taken / max(1, all_time))

    def _noise(self, minibatches):
        """The flags for so many minibatches (microbatches) of noise."""
        return ["--data", "synthetic", "--samples", 4 * self.batch, "--steps", minibatches // self.plan["microbatches"]]

    def formula_bytes(self):
        return bytes_per_minibatch(self.plan)

    def _sent(self, text):
        """Bytes that the ranks say they have sent: the last column of the summary, in MiB."""
        lines = text.splitlines()
        first = next(i for i, line in enumerate(lines) if line.split()[:2] == ["stage", "rank"]) + 1
        return sum(float(line.split()[-1]) for line in lines[first:first + len(self.plan["ranks"])]) * 2**20
