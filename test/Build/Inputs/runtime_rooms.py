"""runtime_rooms.py SOURCE: which room of runtime/src includes which, and the lines of the reading path.

Rooms may include rooms on their left: base files schedule machine transport collectives data exec checkpoint measure watch run.
"""
import pathlib
import re
import sys

source = pathlib.Path(sys.argv[1])
runtime = source / "runtime"
order = "base files schedule machine transport collectives data exec checkpoint measure watch run".split()
rooms = runtime / "src"
found = {path.relative_to(rooms).parts[0] for path in rooms.rglob("*.cpp")}
assert found == set(order), f"rooms without a place in the order: {sorted(found ^ set(order))}"

against = set()
for path in sorted(rooms.rglob("*")):
    if path.suffix not in (".h", ".cpp"):
        continue
    room = path.relative_to(rooms).parts[0]
    for name in re.findall(r'^#include "([^"]+)"', path.read_text(), re.M):
        if name.startswith("pdcrt/"):
            continue
        there = name.split("/")[0] if (rooms / name).exists() else room
        if order.index(there) > order.index(room):
            against.add(f"{path.relative_to(source)} includes {name}")
print("\n".join(sorted(against)) or "no include against the arrows")

page = (source / "docs/RuntimeInternals.md").read_text().split("## Reading path")[1].split("\nThe rest")[0]
files = re.findall(r"`([\w/]+\.(?:h|cpp))`", page)
assert files, "docs/RuntimeInternals.md names no reading path"
lines = sum(len((runtime / name).read_text().splitlines()) for name in files)
print("the reading path has", "at most 1800 lines" if lines <= 1800 else f"{lines} lines")
