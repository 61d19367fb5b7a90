"""Keeps measurements in a folder of its own, and says how its page changes."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "utils"))
import measured

base = pathlib.Path(sys.argv[1])
(base / "docs").mkdir(parents=True, exist_ok=True)
page = base / measured.PAGE
page.write_text("# Results\n\n<!-- bench: written by utils/bench -->\nold\n<!-- end of bench -->\n\nby hand\n")


def keep(key, value, machine="here", holds=True):
    row = {"name": f"{key}: ratio", "value": value, "unit": "", "goal": "<= 1", "holds": holds}
    measured.keep("bench", "utils/bench", "Steps", "Of two.", ["network", "ratio"],
                  [{"key": key, "machine": machine, "versions": "none", "date": "today", "cells": [key, str(value)], "rows": [row]}], ["a", "b"], base)


keep("b", 2.0, holds=False)
keep("a", 0.4)
keep("a", 0.5)
keep("a", 0.7, machine="here" + measured.WITHOUT_AVX512)
keep("c", 0.6, machine="elsewhere")
measured.keep("curves", "utils/curves", "Curves", "Of one.", ["network"],
              [{"key": key, "machine": "here", "versions": "none", "date": "today", "cells": [key], "rows": [], "curves": [[(0, 2.0), (10, low)]]}
               for key, low in (("a", 1.0), ("b", 0.5))], ["a", "b"], base, {"file": "curves.svg", "title": "Loss", "axis": "steps"})
print(page.read_text())
print(measured.table(["network", "ratio", "added later"], [["a", "0.5"], ["b", "2.0", "1"]]))
