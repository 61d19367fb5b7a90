#!/usr/bin/env python3
"""quick_targets.py SOURCE BUILD: what the build preset `quick` builds in BUILD, against utils/quickstart."""
import json
import pathlib
import re
import subprocess
import sys

source, build = map(pathlib.Path, sys.argv[1:])
presets = json.loads((source / "CMakePresets.json").read_text())["buildPresets"]
targets = next(preset["targets"] for preset in presets if preset["name"] == "quick")
quickstart = (source / "utils/quickstart").read_text()
of_release = re.search(r"--target ([\w -]+)\)", quickstart)[1].split()
print("the same targets:" if targets == of_release else "other targets:", *targets)
if missing := {name for name in re.findall(r'"\$bin/([\w-]+)"', quickstart)} - set(targets):
    sys.exit(f"the quickstart calls what it does not build: {missing}")

commands = subprocess.run(["ninja", "-C", build, "-t", "commands", *targets], text=True, stdout=subprocess.PIPE, check=True).stdout.splitlines()
print("executables:", *sorted({found[1] for line in commands if (found := re.search(r" -o bin/([\w-]+) ", line))}))
print("compiles pdcPublished" if any("pdcPublished" in line for line in commands) else "nothing of pdcPublished")


def flags(target):
    lines = [line for line in commands if f"/{target}.dir/" in line and " -c " in line]
    return {re.findall(r" (-O\S+)", line)[-1] for line in lines}


what = {target: flags(target) for target in ("pdcrt_kernels", "pdcrt_base", "pdcrt_run")}
print("kernels and the runtime as in a release" if what == {"pdcrt_kernels": {"-O3"}, "pdcrt_base": {"-O2"}, "pdcrt_run": {"-O2"}} else what)
