"""How pdc's tools end, what they say, and how a page lists it."""
import os
import re
import subprocess
import textwrap


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
    """What messages of one kind have in common: neither names nor numbers, nor how many there are."""
    text = re.sub(r"\d+", "N", re.sub(r"'[^']*'", "'…'", text))
    text = re.sub(r"'…'(( is| is made of|,| and) ('…'|…|N more))+", "'…'", text)
    return re.sub(r"\b(N \w+( \w+)?)s\b", r"\1", text)


def grouped(entries):
    """[(example, [case…])] of [(message with its help in further lines, case)], by the kind of the message."""
    found = {}
    for text, case in entries:
        found.setdefault(plain(text.split("\n")[0]), (text, []))[1].append(case)
    return [(example, list(dict.fromkeys(cases))) for example, cases in found.values()]


def listed(title, text, entries, most=6):
    """A part of a page: an item for each kind of message, with an example, the help that ends it, and the first cases."""
    if not entries:
        return []
    lines = ["", f"### {title}", "", text, ""]
    for example, cases in grouped(entries):
        message, *helps = example.split("\n")
        more = f" and {len(cases) - most} more" if len(cases) > most else ""
        item = f"- {message}" + "".join(f" *{entry}*" for entry in helps[-1:]) + f" ({len(cases)}: {', '.join(cases[:most])}{more})"
        lines += textwrap.wrap(item, 120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return lines
