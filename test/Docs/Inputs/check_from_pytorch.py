"""check_from_pytorch.py PAGE EXAMPLE…: the page's lines of Python are those of the examples; its shell commands
(lines with $, and what follows a backslash) are run, in this folder."""
import pathlib
import subprocess
import sys

page, *examples = (pathlib.Path(path).read_text() for path in sys.argv[1:])
python, commands = [], []
for before, line in zip([""] + page.splitlines(), page.splitlines()):
    if line.startswith("    $ "):
        commands.append(line[6:])
    elif line.startswith("    ") and before.endswith("\\"):
        commands[-1] += "\n" + line
    elif line.startswith("    "):
        python.append(line[4:])
known = {line for example in examples for line in example.splitlines()}
for line in python:
    if line not in known:
        sys.exit(f"FAILED: no example has {line!r}")
for command in commands:
    subprocess.run(command, shell=True, check=True, stdout=subprocess.DEVNULL)
print(f"{len(python)} lines of Python, {len(commands)} commands")
