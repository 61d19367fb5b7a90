"""rooms.py PAGE ROOT: the tables of PAGE name every folder with sources below ROOT/lib and ROOT/runtime, and no other."""
import pathlib
import re
import sys

page, root = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
named = re.findall(r"^\| `((?:lib|runtime)/[\w/]+)` \|", page.read_text(encoding="utf-8"), re.M)
there = {str(path.relative_to(root)) for top in ("lib", "runtime") for path in (root / top).rglob("*")
         if path.is_dir() and any(child.suffix in (".cpp", ".h", ".cu") for child in path.iterdir())}
there = {room for room in there if not room.startswith("runtime/include")}
problems = [f"{page.name} does not name {room}" for room in sorted(there - set(named))]
problems += [f"{page.name} names {room}, which is no folder with sources" for room in sorted(set(named) - there)
             if not (root / room).is_dir()]
problems += [f"{page.name} names {room} twice" for room in sorted(set(named)) if named.count(room) > 1]
print("\n".join(problems) if problems else f"{len(named)} rooms")
sys.exit(bool(problems))
