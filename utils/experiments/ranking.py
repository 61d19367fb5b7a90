"""Whether plans rank in runs as the planner ranks them: every cut of one network into two stages, data parallelism and one host, at three
ratios of communication to computation.

A cut is forced with a profile in which all but the groups beside it are free; what is simulated has the measured times.
"""
import json
import time

from formulas import core_bytes, kendall_tau, link_for
from hosts import Hosts
from pipelines import COMPUTING, Model, simulated, with_link
from traces import steady_ms

NETWORK, SIZE, BATCH, RATIOS = "vgg-digits", "small", 32, (1.0, 4.0, 12.0)


def forcing(profile, cut):
    """The profile with which groups 0 to cut-1 are the first of two stages: those beside the cut take long, all others nothing."""
    profile = json.loads(json.dumps(profile))
    for group in profile["groups"]:
        beside = group["id"] in (cut - 1, cut)
        group.update({cost: 1000.0 if beside else 0.0 for cost in COMPUTING}, update_ms=0.0)
    return profile


def with_profile(plan, profile, bytes_per_s, core_s_per_byte):
    """The plan with the times of a profile, and other links, of which a byte takes so much of a core."""
    plan = with_link(plan, bytes_per_s)
    for stage, (values, gradients, reduced) in zip(plan["stages"], core_bytes(plan), strict=True):
        for cost in (*COMPUTING, "update_ms"):
            stage[cost] = sum(profile["groups"][node][cost] for node in stage["nodes"])
        stage["all_reduce_core_ms"] = 1e3 * core_s_per_byte * reduced
        for cost, moved in (("forward_ms", values), ("input_gradient_ms", gradients), ("update_ms", reduced)):
            stage[cost] += 1e3 * core_s_per_byte * moved
    return plan


class Ranking:
    def __init__(self, work):
        self.work, self.model = work, Model(NETWORK, SIZE, BATCH, work)
        self.profile_file = self.model.profile_file

    def profile(self):
        self.model.measure()

    def cuts(self):
        return range(1, len(json.loads(self.profile_file.read_text())["groups"]))

    def build(self):
        self.model.program("rank one host", 1e12, ["--devices=1"])
        self.model.program("rank data parallel", 1e12, ["--replicas=2"])
        measured = json.loads(self.profile_file.read_text())
        for cut in self.cuts():
            self.model.profile_file = self.model.work / "forced.json"
            self.model.profile_file.write_text(json.dumps(forcing(measured, cut)))
            program = self.model.program(f"rank cut {cut}", 1e12, ["--replicas=1,1"])
            if program.plan["stages"][0]["nodes"] != list(range(cut)):
                raise SystemExit(f"the plan for a cut behind group {cut - 1} has groups {program.plan['stages'][0]['nodes']} first")
        self.model.profile_file = self.profile_file

    def run(self, rounds=2, before=None, keep=None):
        """Rounds over all plans at all ratios: a machine that is faster for some minutes is so for all plans of a round, and their spread tells."""
        rounds = max(rounds or 2, 2)
        profile = json.loads(self.profile_file.read_text())
        programs = {"data parallel": self.model.built("rank data parallel"), **{f"cut {cut}": self.model.built(f"rank cut {cut}") for cut in self.cuts()},
                    "one host": self.model.built("rank one host")}
        plans, limits = [], {}
        with Hosts(2) as hosts:
            for ratio in RATIOS:
                limits[ratio], link = hosts.calibrate(link_for(ratio, 2, self.model.parameter_bytes(), self.model.compute_ms() / 1e3))
                core = programs["one host"].core_s_per_byte(hosts)
                for title, program in programs.items():
                    if title == "one host" and ratio != RATIOS[0]:
                        continue
                    told = simulated(with_profile(program.plan, profile, link, core), program.folder / "ranked.json")
                    plans.append({"plan": title, "rho": ratio, "link": link, "core_s_per_byte": core, "predicted_ms": told["time_per_minibatch_ms"], "ms": []})
            for _ in range(rounds):
                for plan in plans:
                    hosts.limit(limits[plan["rho"]])
                    plan["ms"].append(self._run(hosts, programs[plan["plan"]], plan["predicted_ms"]))
        for plan in plans:
            print(f"ranking: rho {plan['rho']:g}, {plan['plan']}: predicted {plan['predicted_ms']:.2f} ms, measured "
                  f"{', '.join(f'{ms:.2f}' for ms in plan['ms'])}", flush=True)
        tau, pairs = kendall_tau([plan["predicted_ms"] for plan in plans], [plan["ms"] for plan in plans])
        print(f"ranking: tau {tau:.3f} of {pairs} pairs", flush=True)
        return {"kind": "ranking", "name": "ranking", "plans": plans, "tau": tau, "pairs": pairs, "date": time.strftime("%Y-%m-%d")}

    def _run(self, hosts, program, predicted_ms):
        count = max(24, min(200, round(1500 / predicted_ms)))
        trace = program.folder / "trace.json"
        program.launch(hosts, ["--data", "synthetic", "--samples", 4 * BATCH, "--steps", count + count % 2, "--trace", trace])
        return steady_ms(program.plan, json.loads(trace.read_text())["traceEvents"])
