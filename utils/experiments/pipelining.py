"""pdc's pipelines against PyTorch's own: two stages with the same cut on two hosts, in turns. PyTorch's are 1F1B with flushes; pdc's are
that, and 1F1B with stashing, which is what it makes without flags.
"""
import dataclasses
import json
import time

from hosts import Hosts
from measured import newer_torch
from peers import torch_pipelining
from throughput import CASES, Throughput

MICROBATCHES, FLUSHING = 4, "1F1B-flush"
SCHEDULES = {FLUSHING: ["--replicas=1,1", "--schedule=1f1b-flush", f"--microbatches={MICROBATCHES}"], "1F1B, stashing": ["--replicas=1,1"]}
# Parts of utils/headline, and the cases of which they are.
PARTS = {f"{name}-pytorch": name for name in CASES if not name.endswith("-25g")}


class Pipelining:
    """The measurement in steps: profile and run want a quiet machine, build does not. `size`: another one of the network's, for tests."""

    def __init__(self, name, work, size=None, seconds=15.0):
        self.name, self.seconds = name, seconds
        self.throughput = Throughput(PARTS[name], work, size, seconds)
        self.case, self.model = self.throughput.case, self.throughput.model

    def profile(self):
        self.throughput.profile()

    def build(self):
        link = json.loads(self.throughput.link_file.read_text())
        for title, flags in SCHEDULES.items():
            self.model.program(f"{self.name}-{title}", link["measured"], flags, link["core_s_per_byte"])

    def run(self, rounds=None, before=None, keep=lambda result: None):
        programs = {title: self.model.built(f"{self.name}-{title}") for title in SCHEDULES}
        result = before or {"kind": "pipelining", "name": self.name, "network": self.case.title, "rho": self.case.rho(), "batch": self.case.batch,
                            "microbatches": MICROBATCHES, "links": [], "pytorch_ms": [], "programs": {title: [] for title in SCHEDULES}}
        result["pytorch"] = newer_torch()
        with Hosts(2) as hosts:
            result["links"].append(self.throughput.set_link(hosts)[1])
            for _ in range(rounds or 2):
                for title, program in programs.items():
                    run = program.run(hosts, program.minibatches(self.seconds), result["links"][-1])
                    result["programs"][title].append(dataclasses.asdict(run))
                updates = max(2, min(10, round(self.seconds * 1e3 / (3 * MICROBATCHES * result["programs"][FLUSHING][-1]["ms"]))))
                result["pytorch_ms"].append(torch_pipelining(hosts, self.case, programs[FLUSHING].plan, updates))
                told = ", ".join(f"{title} {runs[-1]['ms']:.1f} ms" for title, runs in result["programs"].items())
                print(f"{self.name}: {told}, PyTorch {result['pytorch_ms'][-1]:.1f} ms", flush=True)
                result["date"] = time.strftime("%Y-%m-%d")
                keep(result)
        return result
