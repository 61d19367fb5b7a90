"""readme_status.py README.md: the schedules and targets in the table of README's status are those that pdc takes."""
import pathlib
import re
import subprocess
import sys

page = pathlib.Path(sys.argv[1]).read_text()
status = page.split("## Status\n", 1)[1]
rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in status.splitlines() if line.startswith("|")]


def named(column):
    return [found[1] for row in rows[2:] if (found := re.fullmatch(r"`(.*)`", row[column]))]


def answer(flag):
    """What pdc says when the flag has a value that it does not know."""
    return subprocess.run(["pdc", "model.onnx", f"{flag}=nonsense"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout


taken = {"--schedule": re.search(r"type one of (.*), or a file", answer("--schedule"))[1].split(", "),
         "--target": re.search(r"\{(.*?)\}", answer("--target"))[1].split(",")}
for flag in taken:
    column = rows[0].index(f"`{flag}=`")
    if sorted(named(column)) != sorted(taken[flag]):
        sys.exit(f"README's table has {flag}={named(column)}, pdc takes {taken[flag]}")
    print(f"{flag}: {', '.join(named(column))}")
