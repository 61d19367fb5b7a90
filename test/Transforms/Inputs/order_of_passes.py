"""Compares what pdc prints with --print-ir-after=all with the order that docs/Passes.md states.

order_of_passes.py Passes.md OUTPUT...: the passes of every output must come in the order of the page, and every pass of
the page must have run in one of the outputs.
"""
import itertools
import re
import sys

page = open(sys.argv[1]).read().split("\n## ")[0]
items = re.findall(r"^- .*?: ((?:`[a-z-]+`,?\s*)+)$", page, re.MULTILINE)
stated = [name for item in items for name in re.findall(r"`([a-z-]+)`", item)]
assert len(stated) > 15, stated

missing = set(stated)
for path in sys.argv[2:]:
    ran = [name for name, _ in itertools.groupby(re.findall(r"^// after (\S+)$", open(path).read(), re.MULTILINE))]
    position = 0
    for name in ran:
        if name not in stated[position:]:
            sys.exit(f"{path}: '{name}' ran after {ran[:ran.index(name)]}, the page states {stated}")
        position = stated.index(name, position) + 1
    missing -= set(ran)
if missing:
    sys.exit(f"the page states passes that never ran: {sorted(missing)}")
print(f"{len(stated)} passes in order")
