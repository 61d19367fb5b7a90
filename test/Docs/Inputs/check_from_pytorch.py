"""check_from_pytorch.py PAGE EXAMPLE…: the page's lines of Python are those of the examples, in their order; its shell
commands (lines with $) are run, in this folder."""
import pathlib
import subprocess
import sys

page, *examples = (pathlib.Path(path).read_text().splitlines() for path in sys.argv[1:])
python, commands, blocks = 0, 0, []
for before, line in zip([""] + page, page):
    if line.startswith("    $ "):
        commands += 1
        subprocess.run(line[6:], shell=True, check=True, stdout=subprocess.DEVNULL)
    elif line.startswith("    "):
        if not before.startswith("    ") and before:
            sys.exit(f"FAILED: no empty line before {line!r}")
        if not before and (not blocks or not blocks[-1][-1:] == [""]):
            blocks.append([])
        blocks[-1].append(line[4:])
    elif not line and blocks and blocks[-1] and blocks[-1][-1]:
        blocks[-1].append("")
for line in (line for block in blocks for line in block if line):
    if not any(line in example for example in examples):
        sys.exit(f"FAILED: no example has {line!r}")
    python += 1
print(f"{python} lines of Python, {commands} commands")
