"""Four processes on two hosts: what --split=auto chooses for a network and a link, and what every plan made by hand takes."""
import hashlib
import json
import shutil
import statistics
import subprocess
import sys

from pipelines import PYTHON, build, call, root

MICROBATCHES, PER_HOST, HOSTS = 4, 2, 2
DEVICES = PER_HOST * HOSTS
TITLES = {"gpt2": "GPT-2-like", "llama": "Llama-like", "switch": "Switch", "vgg16": "VGG-16"}
BATCHES = {"gpt2": 1, "llama": 1, "switch": 2, "vgg16": 2}
SPLITS = {"gpt2": ["tp:2", "tps:2", "sp:2", "tp:4"], "llama": ["tp:2", "tps:2", "sp:2", "tp:4"], "switch": ["tp:2", "tps:2", "sp:2", "ep:2"],
          "vgg16": ["tp:2"]}
LINKS = {"250 Mbit/s": 0.25e9 / 8, "1 Gbit/s": 1e9 / 8, "10 Gbit/s": 10e9 / 8}
# Undivided: every cut into 1, 2 or 4 stages with equally many replicas, and those with unequal ones. Teams of two: the same over two teams.
SHAPES = {1: ["1", "2", "4", "1,1", "2,2", "1,1,1,1", "1,2,1", "2,1,1", "1,1,2", "3,1", "1,3"], 2: ["1", "2", "1,1"], 4: ["1"]}


def flags_of(name, microbatches=MICROBATCHES):
    auxiliary = ["--loss=output:balance_loss,weight=0.64"] if name == "switch" else []
    return [f"--batch={BATCHES[name]}", "--loss=softmax-cross-entropy:logits", *auxiliary, "--optimizer=adam,lr=0.001", "--schedule=1f1b-flush",
            f"--microbatches={microbatches}", "--target=cpu", "--recompute=none"]


def machines(link=None, cores=1):
    """A cluster file's text: two hosts with `cores` each, joined by a link as measured, or by a fast one."""
    link = link or {"host": {"latency_s": 1e-5, "bandwidth_bytes_per_s": 1e10}, "network": {"latency_s": 1e-5, "bandwidth_bytes_per_s": 1e10}}
    return json.dumps({"levels": [{"name": "host", "count": PER_HOST, **link["host"]}, {"name": "network", "count": HOSTS, **link["network"]}],
                       "device": {"name": "cpu", "memory_bytes": 8e9, "cores": cores, "core_s_per_byte": link.get("core_s_per_byte", 0)}}, indent=1)


def larger(link, hosts):
    """So many hosts with the same link between them, whose devices have a core each."""
    host = {key: link["host"][key] for key in ("latency_s", "bandwidth_bytes_per_s")}
    return json.dumps({"levels": [{"name": "host", "count": PER_HOST, **host}, {"name": "network", "count": hosts, **link["network"]}],
                       "device": {"name": "cpu", "memory_bytes": 8e9, "cores": PER_HOST, "core_s_per_byte": link["core_s_per_byte"]}}, indent=1)


def flat(link):
    """The same as one machine, so that teams of four have room: all have the link."""
    return json.dumps({"levels": [{"name": "network", "count": DEVICES, **link["network"], **link["four"]}],
                       "device": {"name": "cpu", "memory_bytes": 8e9, "cores": HOSTS, "core_s_per_byte": link["core_s_per_byte"]}}, indent=1)


class Network:
    """A network as a file, with profiles of its splits, in a folder that keeps them and programs."""

    def __init__(self, name, work):
        self.name, self.work = name, work / name
        self.file, self.cache = self.work / "model.onnx", self.work / "cache"
        self.work.mkdir(parents=True, exist_ok=True)
        if not self.file.exists():
            call([PYTHON, root / "utils/models/export.py", name, self.file, "--size=hosts", "--no-dropout",
                  *([f"--batch={BATCHES[name]}"] if name == "switch" else [])], self.work / "export.log")

    def splits(self):
        return ["none", *SPLITS[self.name]]

    def pdc(self, *flags, log="pdc.log"):
        return call(["/usr/bin/env", f"XDG_CACHE_HOME={self.cache}", build / "bin/pdc", self.file, *flags_of(self.name), *flags], self.work / log)

    def measure(self, splits=None):
        """Every fusion group of a member of each split, on a core while another core computes the same; pdc keeps it in its cache, from where
        plans take it."""
        cluster = self.work / "both-cores.json"
        cluster.write_text(json.dumps({"levels": [{"name": "machine", "count": DEVICES, "bandwidth_bytes_per_s": 1e10}],
                                       "device": {"name": "cpu", "memory_bytes": 8e9, "cores": HOSTS}}))
        for split in splits or self.splits():
            done = self.cache / f"{split}.done"
            if not done.exists():
                self.pdc(f"--cluster={cluster}", f"--split={split}", "--profile=measure", "--emit=plan", log=f"profile-{split}.log")
                done.touch()
        for file in (self.cache / "pdc").glob("profile-cpu-2-*.json"):  # of hosts with a core each, of which both compute
            shutil.copy(file, file.with_name(file.name.replace("-cpu-2-", "-cpu-1-")))

    def plan(self, cluster, split, *flags, microbatches=MICROBATCHES):
        """None where there is none."""
        file = self.work / "cluster.json"
        file.write_text(cluster)
        words = ["/usr/bin/env", f"XDG_CACHE_HOME={self.cache}", build / "bin/pdc", self.file, *flags_of(self.name, microbatches), f"--cluster={file}",
                 f"--split={split}", "--profile=auto", "--emit=plan", *flags]
        ended = subprocess.run([str(word) for word in words], text=True, capture_output=True, stdin=subprocess.DEVNULL)
        (self.work / "plan.log").write_text(ended.stderr)
        return json.loads(ended.stdout) if ended.returncode == 0 else None

    def program(self, plan):
        """Of a plan, built."""
        folder = self.work / key_of(plan)
        file = folder.with_suffix(".plan.json")
        if not (folder / "out/pipeline").exists():
            file.write_text(json.dumps(plan))
            splits = [stage.get("split", "none") for stage in plan["stages"]]
            same = len(set(splits)) == 1
            self.pdc(f"--plan={file}", *([f"--split={splits[0]}"] if same and splits[0] != "none" else []), "--profile=analytic", "-o", folder,
                     log=f"{folder.name}.log")
            make(folder, self.work)
        return folder


def make(folder, logs):
    call(["cmake", "-S", folder, "-B", folder / "out", "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={build}"], logs / "cmake.log")
    call(["nice", "cmake", "--build", folder / "out", "--target", "pipeline"], logs / "build.log")


def is_undivided(plan):
    return all(stage.get("split", "none") == "none" for stage in plan["stages"])


def key_of(plan):
    """The same for plans that run as the same programs."""
    what = [[stage["nodes"], stage.get("split"), stage["replicas"], stage["warmup"]] for stage in plan["stages"]] + [hosts_of(plan)]
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:12]


def shape_of(plan):
    """ "tp:2 × 2, none": split and replicas of each stage."""
    return ", ".join(stage.get("split", "none") + (f" × {stage['replicas']}" if stage["replicas"] > 1 else "") for stage in plan["stages"])


def hosts_of(plan):
    """The host of each process; those of a machine without levels are put on hosts in turn, PER_HOST on each."""
    return [device // PER_HOST for rank in plan["ranks"] for device in rank["devices"]]


def linked(hosts, folder, places, *flags):
    """What `pipeline --link` says of processes on these hosts."""
    file = folder / "link.json"
    hosts.run_ranks([folder / "out/pipeline", "--dir", folder, "--link", file, *flags], places=places)
    return json.loads(file.read_text())


def best_link(hosts, folder, places):
    """The fastest of some measurements, because what else a machine does only adds; but the median of what bytes take from a core, a
    difference of times, to which it may add or not."""
    found = [linked(hosts, folder, places) for _ in range(3)]
    return {**min(found, key=lambda link: link["latency_s"]), "core_s_per_byte": statistics.median(link["core_s_per_byte"] for link in found)}


def best_team(hosts, folder, places):
    found = [linked(hosts, folder, places, "--team", len(places)) for _ in range(2)]
    return {f"{kind}s": [{"members": len(places), **min((each[kind] for each in found), key=lambda times: times["latency_s"])}]
            for kind in ("team_sum", "team_exchange")}


def without_core(found):
    return {key: found[key] for key in ("latency_s", "bandwidth_bytes_per_s")}


def measured_host(hosts, folder):
    """What is the same whatever the link between hosts."""
    return {**without_core(best_link(hosts, folder, [0, 0])), **best_team(hosts, folder, [0, 0])}


def measured_links(hosts, folder, host):
    """Of these hosts, for `machines` and `flat`."""
    between = best_link(hosts, folder, [0, 1])
    return {"host": host, "network": without_core(between), "core_s_per_byte": between["core_s_per_byte"], "four": best_team(hosts, folder, [0, 0, 1, 1])}


def trained(hosts, folder, plan, updates):
    """Milliseconds of an update: the median of those in the middle; and whether every arena is what the plan says."""
    metrics = folder / "metrics.jsonl"
    samples = 2 * MICROBATCHES * json.loads((folder / "training.json").read_text())["batch"]
    said = hosts.run_ranks([folder / "out/pipeline", "--dir", folder, "--data", "synthetic", "--samples", samples, "--steps", updates + 3,
                            "--metrics", metrics], places=hosts_of(plan))
    times = [json.loads(line)["step_ms"] for line in metrics.read_text().splitlines() if '"step_ms"' in line]
    return statistics.median(times[2:-1]), said[0]


def candidates(network, link):
    """{title: plan} of every plan by hand that fits."""
    plans = {}
    for split in network.splits():
        members = int(split.partition(":")[2] or 1)
        for shape in SHAPES[members]:
            plan = network.plan(flat(link) if members == DEVICES else machines(link), split, f"--replicas={shape}")
            if plan:
                plans[shape_of(plan)] = plan
    return plans
