"""sinks.py METRICS: how the last loss of a run compares with its first."""
import json
import math
import sys

losses = [entry["loss"] for entry in map(json.loads, open(sys.argv[1])) if "loss" in entry]
sinks = all(map(math.isfinite, losses)) and losses[-1] < losses[0] / 2
print(f"{len(losses)} losses, the last is {'below half of the first' if sinks else f'{losses[-1]}, the first {losses[0]}'}")
