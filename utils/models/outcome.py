"""How pdc's tools end, what they say, and how a page lists it."""
import os
import re
import subprocess


class Refused(Exception):
    """By pdc, in its own words."""


def run(folder, *command):
    """Runs a tool in the folder of a model, whose path then is in no message, and returns what it says."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True, env=environment, cwd=folder,
                            check=False)
    if result.returncode in (1, 2, 3):
        raise Refused(result.stderr)
    if result.returncode != 0:
        raise RuntimeError(f"exit {result.returncode}: {result.stderr[-1000:]}")
    return result.stderr


def diagnostics(text, kind):
    """[(message, [help…])] of what pdc has said, without the places."""
    found = []
    for line in text.splitlines():
        if match := re.search(r"\b(error|warning|remark): (.*)", line):
            found.append((match[1], match[2], []))
        elif found and (match := re.search(r"\bhelp: (.*)", line)):
            found[-1][2].append(match[1])
        elif found and (match := re.search(r"\bnote: (.*)", line)):
            found[-1][2].append(match[1])
    return [(message, more) for severity, message, more in found if severity == kind]


def plain(text):
    """One line for a table or a list, without what differs from case to case."""
    return re.sub(r"\d+", "N", re.sub(r"'[^']*'", "'…'", text))


def grouped(entries):
    """[(example, [case…])] of [(message, case)], messages that differ in names and numbers only taken together."""
    found = {}
    for text, case in entries:
        found.setdefault(plain(text), (text, []))[1].append(case)
    return [(example, list(dict.fromkeys(cases))) for example, cases in found.values()]


def listed(title, text, entries):
    if not entries:
        return []
    lines = ["", f"### {title}", "", text, ""]
    for example, cases in grouped(entries):
        message, *helps = example.split("\n")
        lines.append(f"- {message}" + "".join(f" *{entry}*" for entry in helps) + f" ({len(cases)}: {', '.join(cases)})")
    return lines
