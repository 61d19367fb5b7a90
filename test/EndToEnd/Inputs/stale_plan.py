"""stale_plan.py PLAN.json OUT.json barrier|2bw|vertical-sync: the same plan, otherwise run."""
import json
import sys

plan = json.load(open(sys.argv[1]))
stages = plan["stages"]
if sys.argv[3] == "2bw":
    for stage in stages:
        stage["sync_delay"] = 0
    # One more than the least, which is what a stage has in flight.
    plan.update(schedule="2bw", microbatches=max((s["warmup"] + 1) * s["replicas"] for s in stages) + 1)
elif sys.argv[3] == "barrier":
    for stage in stages:
        stage["sync_delay"] = 0
    plan.update(sync="barrier")
else:
    ahead = max((s["warmup"] + s["sync_delay"]) * s["replicas"] for s in stages)
    first = stages[0]
    first["warmup"] = max(first["warmup"], -(-ahead // first["replicas"]) - first["sync_delay"])
    plan.update(weights="vertical-sync")
json.dump(plan, open(sys.argv[2], "w"))
