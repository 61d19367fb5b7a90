"""Adds up what pdc-sim --json says of time and memory."""
import json
import sys

with open(sys.argv[1]) as file:
    told = json.load(file)
print("fractions add up to %.6f" % sum(told["time_fractions"].values()))
good = [abs(sum(parts.values()) - told["finish_ms"]) < 1e-6 for parts in told["time_ms_by_rank"]]
print(sum(good), "ranks add up to the run")
splits = told["memory_by_rank"]
print(sum(sum(split.values()) == peak for split, peak in zip(splits, told["peak_memory_bytes"])), "arenas add up to the peak")
course = told["memory_over_time"]
fits = True
for used, split in zip(course["ranks"], splits):
    length = course["interval_ms"] * len(used["stash"])
    fits = fits and length + course["interval_ms"] > told["finish_ms"]
    for part, bytes_ in split.items():
        fits = fits and max(used[part]) <= bytes_
    fits = fits and used["peak_bytes"] == max(map(sum, zip(*(used[part] for part in split))))
print("in use is at most the arena" if fits else "in use exceeds the arena: " + str(course))
