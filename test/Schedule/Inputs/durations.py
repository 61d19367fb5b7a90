"""Prints the mean milliseconds of each kind of computation in a trace: durations.py TRACE.json"""
import collections
import json
import re
import statistics
import sys

durations = collections.defaultdict(list)
for event in json.load(open(sys.argv[1]))["traceEvents"]:
    if match := re.fullmatch(r"(\d+[FBIWU])\d+", event.get("name", "")):
        durations[match.group(1)].append(event["dur"] / 1e3)
for kind in sorted(durations):
    print(f"{kind} {statistics.mean(durations[kind]):.3f}")
