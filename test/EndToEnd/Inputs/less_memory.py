"""less_memory.py KEEP AGAIN: no stage of the plan in AGAIN takes more memory than in KEEP, and all together take less."""
import json
import pathlib
import sys

keep, again = ([stage["memory_bytes"] for stage in json.loads((pathlib.Path(folder) / "plan.json").read_text())["stages"]]
               for folder in sys.argv[1:3])
if any(a > k for a, k in zip(again, keep, strict=True)) or sum(again) >= sum(keep):
    sys.exit(f"{again} bytes, where all is kept {keep}")
