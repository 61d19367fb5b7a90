"""Writes a plan whose last stage has one replica: fewer_replicas.py PLAN.json OUT.json"""
import json
import sys

plan = json.load(open(sys.argv[1]))
last = len(plan["stages"]) - 1
plan["stages"][last].update(replicas=1, all_reduce_ms=0)
for rank in plan["ranks"]:
    rank["hosts"] = [host for host in rank["hosts"] if host["stage"] != last or host["replica"] == 0]
json.dump(plan, open(sys.argv[2], "w"))
