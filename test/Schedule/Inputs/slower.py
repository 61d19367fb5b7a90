"""A trace as a run would have written it: every time FACTOR times as long, both ends of a transfer posted at different
times, and an evaluation at the end."""
import json
import sys

with open(sys.argv[1]) as file:
    trace = json.load(file)
factor = float(sys.argv[2])
events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
for event in events:
    event["ts"] *= factor
    event["dur"] *= factor
    if event["cat"] == "receive":  # posted long before
        early = min(event["ts"], 100)
        event["ts"] -= early
        event["dur"] += early
events.append({"name": "0E0", "cat": "compute", "ph": "X", "pid": 0, "tid": 0, "ts": 1e7, "dur": 5, "args": {}})
json.dump({"displayTimeUnit": "ms", "traceEvents": events}, sys.stdout)
