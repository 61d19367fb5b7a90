"""fastest_split.py AUTO PLAN…: whether a plan that chose its split is the fastest of the others, and how many splits it tells of."""
import json
import sys

auto, *others = (json.load(open(path)) for path in sys.argv[1:])
fastest = min(plan["time_ms"] for plan in others)
same = [plan for plan in others if plan["time_ms"] == auto["time_ms"] and plan["stages"][0].get("split") == auto["stages"][0].get("split")]
print(f"the fastest of {len(others)}" if auto["time_ms"] == fastest and same else f"{auto['time_ms']}, but the fastest takes {fastest}")
print(sum(other["name"].startswith("--split=") for other in auto["alternatives"]), "others are told")
