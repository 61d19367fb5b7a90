"""with_memory.py PLAN.json BYTES: the plan on devices that have so many bytes more than the largest arena."""
import json
import sys

plan = json.load(open(sys.argv[1]))
plan["cluster"]["device"]["memory_bytes"] = max(stage["memory_bytes"] for stage in plan["stages"]) + int(sys.argv[2])
plan["cluster"]["device"]["reserved_bytes"] = 0
json.dump(plan, sys.stdout)
