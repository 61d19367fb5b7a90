"""The papers' clusters in the simulator, and who wins where: workers against bandwidth.

Links are as fast as the paper's own speedup of data parallelism over one machine says (formulas.rho_of_speedup); times are those of the
profile measured here, or of PipeDream's released profile.
"""
import json
import time

from formulas import link_for, published_profile, rho_of_speedup
from pipelines import Model, build, call, simulated
from published import TABLE_1
from throughput import PROFILES

SWEPT = {"VGG-16": "vgg16", "AlexNet": "alexnet", "ResNet-50": "resnet50", "GNMT-8": "gnmt"}
# The papers' links follow from speedups of data parallelism that hides nothing (rho_of_speedup).
HIDES_NOTHING = "--bucket=1024GiB"
WORKERS, GBITS = (2, 4, 8, 16), (1, 2.5, 5, 10, 25, 50, 100)


class Released:
    """One of PipeDream's profiles, planned by pdc-plan."""

    def __init__(self, name, work):
        self.file, self.work = PROFILES / name / "graph.txt", work
        self.compute_s, self.parameters = published_profile(self.file.read_text())

    def plan(self, bytes_per_s, workers, more=()):
        return json.loads(call([build / "bin/pdc-plan", self.file, f"--devices={workers}", f"--bandwidth={bytes_per_s:.0f}", "--json", *more],
                               self.work / "pdc-plan.log"))

    def times(self, bytes_per_s, workers, more=()):
        """Milliseconds per minibatch of one worker, of data parallelism and of the plan, and the plan's replicas."""
        file = self.work / "released-plan.json"
        plan = self.plan(bytes_per_s, workers, ["-o", file, *more])
        told = simulated(json.loads(file.read_text()), file)
        return 1e3 * self.compute_s, plan["data_parallel_ms"], told["time_per_minibatch_ms"], shape(plan)


class Profiled:
    """A network that was profiled here, planned by pdc."""

    def __init__(self, model):
        self.model, self.compute_s, self.parameters = model, model.compute_ms() / 1e3, model.parameter_bytes()

    def times(self, bytes_per_s, workers, more=()):
        one = self.model.plan(bytes_per_s, ["--devices=1"])
        plans = [self.model.plan(bytes_per_s, [*flags, *more], workers) for flags in ([f"--replicas={workers}"], [])]
        parallel, planned = (simulated(plan, self.model.work / "simulated.json")["time_per_minibatch_ms"] for plan in plans)
        return one["time_ms"], parallel, planned, shape(plans[1])


def shape(plan):
    return "-".join(str(stage["replicas"]) for stage in plan["stages"])


def paper_row(source, row):
    """The paper's cluster with this source of times."""
    link = link_for(rho_of_speedup(row.machines, row.data_parallel), row.machines, source.parameters, source.compute_s)
    one, parallel, planned, replicas = source.times(link, row.machines, [HIDES_NOTHING])
    return {"rho": rho_of_speedup(row.machines, row.data_parallel), "shape": replicas, "data_parallel": one / parallel, "planned": one / planned,
            "over_data_parallel": parallel / planned}


def kind_of(replicas):
    """0: data parallelism; 1: a straight pipeline; 2: stages with replicas."""
    counts = replicas.split("-")
    return 0 if len(counts) == 1 else 1 if set(counts) == {"1"} else 2


def sweep(work):
    """By network, a row per number of workers: [shape of the plan, its throughput over data parallelism's] by bandwidth."""
    found = {}
    for title, name in SWEPT.items():
        released = Released(name, work)
        found[title] = []
        for workers in WORKERS:
            plans = [released.plan(gbits * 1e9 / 8, workers) for gbits in GBITS]
            found[title].append([[shape(plan), plan["data_parallel_ms"] / plan["time_ms"]] for plan in plans])
    return found


class Shapes:
    def __init__(self, work):
        self.work = work

    def profile(self):
        pass

    def build(self):
        pass

    def run(self, rounds=None, before=None, keep=None):
        model = Model("vgg16", "full", 4, self.work)
        sources = {"released": Released("vgg16", self.work)}
        if model.profile_file.exists():
            sources["measured"] = Profiled(model)
        rows = [{"paper": row._asdict(), **{name: paper_row(source, row) for name, source in sources.items()}} for row in TABLE_1]
        for row in rows:
            for name in sources:
                print(f"shapes: {row['paper']['machines']} of cluster {row['paper']['cluster']}, {name} profile: {row[name]['shape']}, "
                      f"{row[name]['over_data_parallel']:.2f} times data parallelism (paper: {row['paper']['over_data_parallel']:.2f})", flush=True)
        return {"kind": "shapes", "name": "shapes", "rows": rows, "sweep": sweep(self.work), "workers": WORKERS, "gbits": GBITS,
                "date": time.strftime("%Y-%m-%d")}
