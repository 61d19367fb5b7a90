"""The matrix of docs/Results.md from numbers that nobody has measured."""
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "utils"))
import measured

base = pathlib.Path(sys.argv[1])
(base / measured.KEPT / "gpu").mkdir(parents=True, exist_ok=True)
(base / measured.PAGE).write_text("# Results\n\n<!-- matrix: written by utils/measured.py -->\nold\n<!-- end of matrix -->\n")


def keep(key, machine, versions, date, *rows):
    rows = [{"name": f"{key}: {name}", "value": value, "unit": "", "goal": "", "holds": None} for name, value in rows]
    entry = {"key": key, "machine": machine, "versions": versions, "date": date, "cells": [key], "rows": rows}
    measured.keep("bench", "utils/bench", "Steps", "Of two.", ["network"], [entry], base=base)


keep("vgg16, 1", "old one", "g++, PyTorch 1.13.0", "2026-01-01", ("step, over PyTorch", 0.5), ("peak memory over PyTorch", 0.9))
keep("vgg16, 1", "new one", "g++, PyTorch 1.13.0, newer PyTorch 2.15.0", "2026-01-02", ("step, over PyTorch", 0.25), ("step, over newer PyTorch", 0.75),
     ("peak memory over PyTorch", 0.625))
keep("vgg16, 2", "new one", "g++, PyTorch 1.13.0, newer PyTorch 2.15.0", "2026-01-02", ("step, over PyTorch", 0.3), ("step, over newer PyTorch", 0.7))
(base / measured.KEPT / "gpu/numbers.json").write_text(json.dumps(
    {"gpu": "a GPU, 1.2", "torch": "2.11.0+cu130", "networks": {"gnmt8": {"pdc_ms": 3, "pytorch": {"eager": {"ms": 5}, "compiled": {"ms": 4}}}}}))
print(measured.page_of(base))
