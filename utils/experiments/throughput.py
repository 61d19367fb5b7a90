"""One network at one ratio of communication to computation: all programs on two hosts, in turns."""
import dataclasses
import json
import statistics
import time

from formulas import link_for, published_profile, rho, spread
from hosts import Hosts
from peers import ddp
from pipelines import Model, root

PROFILES = root.parent / "shared" / "data" / "pipedream-profiles"
PROGRAMS = {"one host": ["--devices=1"], "data parallel": ["--replicas=2"], "straight": ["--replicas=1,1"], "planned": []}


@dataclasses.dataclass
class Case:
    """`ratio`: (where it is from, rho), or (…, name of a profile among PipeDream's, Gb/s between 16 workers)."""
    title: str
    network: str
    size: str
    batch: int
    ratio: tuple
    reduced: str = ""

    def source(self):
        return self.ratio[0]

    def rho(self):
        if len(self.ratio) == 2:
            return self.ratio[1]
        compute_s, parameters = published_profile((PROFILES / self.ratio[1] / "graph.txt").read_text())
        return rho(16, parameters, self.ratio[2] * 1e9 / 8, compute_s)


def _released(profile, gbits):
    return (f"PipeDream's released profile, 16 workers, {gbits} Gb/s", profile, gbits)


_GNMT = "8,000 words, width 256, 20 words per sentence (published: 32,320, 1,024, 50)"
_LM = "10,000 words, untied, width 400, 650 states (AWD-LM: 1,150), 35 words per sample"
CASES = {
    "vgg16": Case("VGG-16", "vgg16", "full", 4, ("arXiv 1806.03377, 8 V100, 10 Gb/s", 5.2)),
    "vgg16-25g": Case("VGG-16", "vgg16", "full", 4, _released("vgg16", 25)),
    "alexnet": Case("AlexNet", "alexnet", "full", 32, _released("alexnet", 10)),
    "alexnet-25g": Case("AlexNet", "alexnet", "full", 32, _released("alexnet", 25)),
    "resnet50": Case("ResNet-50", "resnet50", "full", 8, _released("resnet50", 10)),
    "resnet50-25g": Case("ResNet-50", "resnet50", "full", 8, _released("resnet50", 25)),
    "lstm-lm": Case("LSTM LM", "lstm-lm", "reduced", 16, ("chosen: no profile of it was released", 4.0), _LM),
    "gnmt8": Case("GNMT-8", "gnmt8", "reduced", 16, _released("gnmt", 10), _GNMT),
    "gnmt8-25g": Case("GNMT-8", "gnmt8", "reduced", 16, _released("gnmt", 25), _GNMT),
}


class Throughput:
    """The measurement of a case, in steps: profile and run want a quiet machine, build does not. `size`: another one of the network's,
    for tests. A network that has several ratios is profiled once.
    """
    profiled = set()

    def __init__(self, name, work, size=None, seconds=15.0):
        self.name, self.seconds = name, seconds
        self.case = dataclasses.replace(CASES[name], **({"size": size} if size else {}))
        self.work = work
        self.model = Model(self.case.network, self.case.size, self.case.batch, work)
        self.link_file = self.model.work / f"link-{name}.json"

    def profile(self):
        if self.model.profile_file not in self.profiled:
            self.model.measure()
            self.profiled.add(self.model.profile_file)
        nominal = link_for(self.case.rho(), 2, self.model.parameter_bytes(), self.model.compute_ms() / 1e3)
        alone = self.model.program(f"{self.name}-one host", nominal, PROGRAMS["one host"])
        with Hosts(2) as hosts:
            limit, measured = hosts.calibrate(nominal)
            core = alone.core_s_per_byte(hosts)
        self.link_file.write_text(json.dumps({"nominal": limit, "measured": measured, "core_s_per_byte": core}))

    def build(self):
        link = json.loads(self.link_file.read_text())
        for title, flags in PROGRAMS.items():
            if title != "one host":  # which measured the link
                self.model.program(f"{self.name}-{title}", link["measured"], flags, link["core_s_per_byte"])

    def run(self, rounds=None, before=None, keep=lambda result: None):
        """A result for page.py, which `keep` gets after each round; `before`: one of the same programs, whose rounds are kept."""
        programs = {title: self.model.built(f"{self.name}-{title}") for title in PROGRAMS}
        result = before or {"kind": "throughput", "name": self.name, "network": self.case.title, "source": self.case.source(),
                            "reduced": self.case.reduced if self.case.size != "full" else "", "rho": self.case.rho(), "batch": self.case.batch,
                            "core_s_per_byte": json.loads(self.link_file.read_text())["core_s_per_byte"],
                            "profiled_ms": self.model.compute_ms(), "parameter_bytes": self.model.parameter_bytes(), "compute_ms": [], "bound_ms": [],
                            "links": [], "ddp_ms": [],
                            "programs": {title: {"shape": program.shape(), "formula_bytes": program.formula_bytes(), "runs": [], "predicted_ms": []}
                                         for title, program in programs.items()}}
        with Hosts(2) as hosts:
            self._calibrate(hosts, programs, result)
            for _ in range(rounds or 2):
                for title, program in programs.items():
                    same = [other for other in ("straight", "data parallel") if title == "planned" and program.does_as(programs[other])]
                    if same:
                        result["programs"][title]["runs"].append(result["programs"][same[0]]["runs"][-1])
                        print(f"{self.name}: planned {program.shape()}: the same program", flush=True)
                        continue
                    run = program.run(hosts, program.minibatches(self.seconds), result["links"][-1])
                    result["programs"][title]["runs"].append(dataclasses.asdict(run))
                    print(f"{self.name}: {title} {program.shape()}: {run.ms:.1f} ms, predicted {result['programs'][title]['predicted_ms'][-1]:.1f}, "
                          f"with its own times {run.own_ms:.1f}, exposed {100 * run.exposed:.2f} %, waiting {100 * run.waiting:.2f} %, "
                          f"neither {100 * run.other:.2f} %, the host took {100 * run.stolen:.1f} %", flush=True)
                reference = min(run["ms"] for run in result["programs"]["data parallel"]["runs"])
                result["ddp_ms"].append(ddp(hosts, self.case, max(2, min(20, round(self.seconds * 1e3 / reference / 2)))))
                print(f"{self.name}: DistributedDataParallel: {result['ddp_ms'][-1]:.1f} ms", flush=True)
                result["date"] = time.strftime("%Y-%m-%d")
                keep(result)
        return result

    def set_link(self, hosts):
        """Makes the links as fast as the ratio says: (what computations take now, on both hosts at once and without communication; the link)."""
        compute_ms = self.model.built(f"{self.name}-one host").alone_ms(hosts, 5)
        return compute_ms, hosts.calibrate(link_for(self.case.rho(), 2, self.model.parameter_bytes(), compute_ms / 1e3))[1]

    def _calibrate(self, hosts, programs, result):
        """The machine is shared, and not always as fast as when it was profiled. So the link is that of the ratio to what computations
        take now, and the profile is scaled alike.
        """
        compute_ms, link = self.set_link(hosts)
        slower = compute_ms / self.model.compute_ms()
        result["compute_ms"].append(compute_ms)
        result["links"].append(link)
        result["bound_ms"].append(slower * programs["planned"].plan["lower_bound_ms"])
        for title, program in programs.items():
            result["programs"][title]["predicted_ms"].append(program.predicted_ms(link, slower))
        print(f"{self.name}: F + B {compute_ms:.1f} ms, {slower:.2f} times the profile's; link {link * 8 / 1e6:.0f} Mbit/s", flush=True)


def median(result, title, key="ms"):
    return statistics.median(run[key] for run in result["programs"][title]["runs"])


def worst_spread(result, title):
    return spread([run["ms"] for run in result["programs"][title]["runs"]])
