"""compile_with_include.py BUILD SOURCE: compiles files of the tree with one include more, with the flags of the build."""
import json
import pathlib
import shlex
import subprocess
import sys

build, source = map(pathlib.Path, sys.argv[1:])
commands = {entry["file"]: entry for entry in json.loads((build / "compile_commands.json").read_text())}
for file, header in [("lib/Planner/Planner.cpp", "pdc/Plan/Plan.h"), ("lib/Planner/Planner.cpp", "pdc/IR/Graph.h"),
                     ("lib/IR/Graph.cpp", "pdc/Support/Diagnostics.h"), ("lib/IR/Graph.cpp", "pdc/Ops/AllOps.h"),
                     ("lib/Support/Diagnostics.cpp", "pdc/IR/Graph.h"), ("runtime/src/exec/Executor.cpp", "pdcrt/Stage.h"),
                     ("runtime/src/exec/Executor.cpp", "pdc/Plan/Plan.h")]:
    entry = commands[str(source / file)]
    words = shlex.split(entry["command"])
    words = words[:words.index("-o")] + ["-fsyntax-only", "-include", header, entry["file"]]
    result = subprocess.run(words, cwd=entry["directory"], text=True, capture_output=True)
    errors = [line for line in result.stderr.splitlines() if "error: " in line]
    said = errors[0].split("error: ", 1)[1] if errors else result.stderr
    print(f"{file} with {header}:", "compiles" if result.returncode == 0 else said)
