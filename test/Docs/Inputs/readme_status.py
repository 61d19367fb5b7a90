"""readme_status.py README.md: the schedules and targets in the table of README's status are those that pdc takes."""
import pathlib
import re
import subprocess
import sys

page = pathlib.Path(sys.argv[1]).read_text()
status = page.split("## Status\n", 1)[1]
tables = [[line.strip("|").split("|")[0].strip() for line in table.splitlines()] for table in re.findall(r"(?:^\|.*\n)+", status, re.M)]


def named(flag):
    """Names in code in the first column of the table whose first column is headed by the flag."""
    first = next(table for table in tables if table[0] == f"`{flag}=`")
    return [name for cell in first[2:] for name in re.findall(r"`(.*?)`", cell)]


def answer(flag):
    """What pdc says when the flag has a value that it does not know."""
    return subprocess.run(["pdc", "model.onnx", f"{flag}=nonsense"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout


taken = {"--schedule": re.search(r"type one of (.*), or a file", answer("--schedule"))[1].split(", "),
         "--target": re.search(r"\{(.*?)\}", answer("--target"))[1].split(",")}
for flag in taken:
    if sorted(named(flag)) != sorted(taken[flag]):
        sys.exit(f"README's table has {flag}={named(flag)}, pdc takes {taken[flag]}")
    print(f"{flag}: {', '.join(named(flag))}")
