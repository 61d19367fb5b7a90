"""branches.py PLAN: fails unless a stage of the plan has a node of the model behind one of a later stage."""
import json
import sys

stages = json.load(open(sys.argv[1]))["stages"]
firsts, lasts = ([f(stage["nodes"]) for stage in stages] for f in (min, max))
sys.exit(all(last < first for last, first in zip(lasts, firsts[1:])) and "stages are in the order of the model")
