"""cut_plan.py PLAN.json OUT.json ENDS SCHEDULE MICROBATCHES [recompute] [replicas=1,2]: the uncut PLAN.json in
stages, straight unless replicas are given, each on a rank, or on the ranks that SCHEDULE puts them on.

ENDS names the first group of each stage but the first: 2,5 makes three stages. Times stay those of nobody: they order nothing.
"""
import json
import sys

source, target, ends, schedule, microbatches = sys.argv[1:6]
plan = json.load(open(source))
groups = len(plan["stages"][0]["nodes"])
borders = [0, *map(int, ends.split(",")), groups] if ends != "-" else [0, groups]
stages = len(borders) - 1
split = plan["stages"][0].get("split")  # of all stages
members = int(split.split(":")[1].split(",")[0]) if split else 1
times = dict.fromkeys(("forward_ms", "input_gradient_ms", "weight_gradient_ms"), 0.0)
replicas = [int(n) for text in sys.argv[6:] if text.startswith("replicas=") for n in text[9:].split(",")] or [1] * stages
plan["stages"] = [
    {"nodes": list(range(borders[s], borders[s + 1])), "replicas": replicas[s], "warmup": min(stages - 1 - s, int(microbatches) - 1),
     "sync_delay": 0, "recompute": "recompute" in sys.argv[6:], **({"split": split} if split else {}), **times}
    for s in range(stages)]
plan.update(schedule=schedule, microbatches=int(microbatches), tensors=[], time_ms=0.0, lower_bound_ms=0.0, optimal=False)
if sum(replicas) > stages:
    hosts = [[{"stage": s, "replica": r}] for s in range(stages) for r in range(replicas[s])]
    plan["ranks"] = [{"rank": r, "devices": list(range(r * members, (r + 1) * members)), "hosts": host} for r, host in enumerate(hosts)]
    plan["cluster"]["levels"][0]["count"] = len(hosts) * members
    json.dump(plan, open(target, "w"))
    sys.exit()
ranks = stages // 2 if schedule in ("interleaved:2", "zb-v", "bfs:2") else stages
rank_of = [s if s < ranks else 2 * ranks - 1 - s if schedule == "zb-v" else s - ranks for s in range(stages)]
plan["ranks"] = [{"rank": r, "devices": list(range(r * members, (r + 1) * members)),
                  "hosts": [{"stage": s, "replica": 0} for s in range(stages) if rank_of[s] == r]} for r in range(ranks)]
plan["cluster"]["levels"][0]["count"] = ranks * members
json.dump(plan, open(target, "w"))
