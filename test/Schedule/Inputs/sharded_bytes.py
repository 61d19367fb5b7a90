"""sharded_bytes.py STEM UPDATES: compares what pdc-sim predicts of STEM.none, .optimizer and .weights."""
import json
import sys

stem, updates = sys.argv[1], int(sys.argv[2])
plans, sims = ({shard: json.load(open(f"{stem}.{shard}.{kind}")) for shard in ("none", "optimizer", "weights")} for kind in ("json", "sim"))
cuts = [[stage["nodes"] for stage in plan["stages"]] for plan in plans.values()]
assert cuts[0] == cuts[1] == cuts[2], "the plans cut elsewhere"
first = plans["weights"]["stages"][0]["parameter_bytes"]
sent = {shard: sim["bytes_sent"] for shard, sim in sims.items()}
assert sent["optimizer"] == sent["none"], (sent["optimizer"], sent["none"])
print("optimizer: as many bytes as whole replicas")
more = [a - b for a, b in zip(sent["weights"], sent["none"])]
assert all(abs(extra - updates * first / 2) <= 1 for extra in more), (more, first)
print(f"weights: more by half of the first stage's parameters for each of {updates} updates")
