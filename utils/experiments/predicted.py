"""Predicted times of a minibatch against those of runs: what utils/bench-predicted-shards and utils/bench-predicted-splits have in common."""
import argparse
import importlib.machinery
import importlib.util
import json
import pathlib
import statistics
import sys

import measured

root = pathlib.Path(__file__).resolve().parent.parent.parent
loader = importlib.machinery.SourceFileLoader("schedules", str(root / "utils/bench-schedules"))
schedules = importlib.util.module_from_spec(importlib.util.spec_from_loader("schedules", loader))
loader.exec_module(schedules)

WORST, MEAN = 10, 5
HEADER = ["predicted, ms", "measured, ms", "error", "runs, ms"]


def line_of(title, predicted, runs):
    """A line of the table, and the error in percent; `predicted`: milliseconds by each profile, of which the fastest counts."""
    least, taken, means = min(predicted), schedules.undisturbed(runs), [one["mean"] for one in runs]
    error = 100 * (least / taken - 1)
    return [*title, f"{least:.2f}", f"{taken:.2f}", f"{error:+.1f} %", f"{statistics.median(means):.2f} ({min(means):.2f} to {max(means):.2f})"], error


def main(description, programs, lines_of, kept):
    """`lines_of`: (program, number of runs) -> results of line_of; `kept`: what the page says: part, script, title, name of the rows,
    text (of the number of runs) and the first columns."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--runs", type=int, default=4, help="of each program")
    parser.add_argument("--programs", type=lambda text: [int(number) for number in text.split(",")])
    parser.add_argument("--dry", action="store_true", help="keep nothing")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    schedules.work.mkdir(parents=True, exist_ok=True)
    lines, errors, complete = [], [], True
    for number, program in enumerate(programs, 1):
        file = schedules.work / f"{kept['part']}-{number}.json"
        if not options.programs or number in options.programs:
            file.write_text(json.dumps(list(lines_of(program, options.runs))))
        if not file.exists():
            complete = False
            continue
        for line, error in json.loads(file.read_text()):
            print(*line, sep="  ", flush=True)
            lines.append(line)
            errors.append(abs(error))
    worst, mean = max(errors), statistics.mean(errors)
    name = f"simulator, {len(errors)} {kept['name']}"
    rows = [{"name": f"{name}: worst error", "value": worst, "unit": "%", "goal": f"<= {WORST}", "holds": worst <= WORST},
            {"name": f"{name}: mean error", "value": mean, "unit": "%", "goal": f"<= {MEAN}", "holds": mean <= MEAN}]
    print(f"worst {worst:.1f} %, mean {mean:.1f} %")
    if not options.dry and complete:
        text = f"{kept['text'](options.runs)}\n\nThe worst error is {worst:.1f} % (≤ {WORST}), the mean {mean:.1f} % (≤ {MEAN})."
        columns = len(kept["columns"])
        measured.keep(kept["part"], kept["script"], kept["title"], text, [*kept["columns"], *HEADER],
                      [{"key": ", ".join(line[:columns]), "cells": line, "rows": rows if number == 0 else [], "machine": measured.machine(),
                        "versions": measured.versions("libdnnl-dev", "libopenmpi-dev")} for number, line in enumerate(lines)],
                      [", ".join(line[:columns]) for line in lines])
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    sys.exit(any(row["holds"] is False for row in rows))
