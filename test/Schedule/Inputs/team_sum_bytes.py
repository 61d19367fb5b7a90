"""team_sum_bytes.py STEM REPLICAS MINIBATCHES UPDATES: compares what pdc-sim predicts that a member of two sends, who computes so many
minibatches, with the formula: 2 (n - 1) / n of the bytes of which n processes have terms."""
import json
import sys

stem, replicas, minibatches, updates = sys.argv[1], *map(int, sys.argv[2:])
plan, sim = (json.load(open(f"{stem}.{kind}")) for kind in ("json", "sim"))
(stage,) = plan["stages"]
divided, whole = stage["divided_bytes"], stage["parameter_bytes"] - stage["divided_bytes"]
assert divided > 0 < whole
summed = 2 * (2 * replicas - 1) / (2 * replicas) * whole + 2 * (replicas - 1) / replicas * divided
expected = minibatches * stage["team_bytes"] + updates * summed
assert all(abs(sent - expected) <= 1 for sent in sim["bytes_sent"]), (sim["bytes_sent"], expected)
print("sends what its team needs, and its sums")
