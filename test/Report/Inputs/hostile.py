"""A plan whose names try to get out of the page: hostile.py PLAN."""
import json
import sys

with open(sys.argv[1]) as file:
    plan = json.load(file)
attack = "</li></style><script>alert(1)</script>\" onload='x' & \u0001 \u202e"
plan["model"] = attack
plan["model_hash"] = attack
plan["cost_source"] = attack
for stage in plan["stages"]:
    stage["node_names"] = [attack + "node"]
    stage["device"] = attack
for tensor in plan["tensors"]:
    tensor["name"] = attack + tensor["name"]
plan["cluster"]["device"]["name"] = attack
plan["alternatives"] = [{"name": attack, "time_ms": 5, "reason": attack}]
json.dump(plan, sys.stdout)
