"""check_tour.py PAGE.md OUT [--root=DIR] [--any-numbers]: runs every '$' command of an indented block and compares its output with the lines below it.

A line that begins with '>' goes on with the command. Lines must come in this order and be equal; '…' stands for any number of lines. $OUT is the folder
OUT. Commands run in DIR (default: the source tree). --any-numbers: a line may have other numbers than
the page's, and what goes to standard error counts, as on a terminal.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys

parser = argparse.ArgumentParser()
parser.add_argument("page", type=pathlib.Path)
parser.add_argument("out")
parser.add_argument("--root", type=pathlib.Path)
parser.add_argument("--any-numbers", action="store_true")
options = parser.parse_args()
root = options.root or options.page.resolve().parent.parent
examples, command = [], None
for line in options.page.read_text().splitlines():
    text = line[4:] if line.startswith("    ") else None
    if text is None:
        command = command if line == "" else None
    elif text.startswith("$ "):
        command = [text[2:], []]
        examples.append(command)
    elif command and text.startswith("> ") and not command[1]:
        command[0] += "\n" + text[2:]
    elif command:
        command[1].append(text)


def comparable(lines):
    """Lines as they are compared: with --any-numbers every number is '#', whatever its width."""
    return [re.sub(r" +", " ", re.sub(r"\d[\d.:]*", "#", line)) for line in lines] if options.any_numbers else lines


def differs(expected, actual):
    """The first expected line that is not found where it should be, or None."""
    pattern = ""
    for line in expected:
        pattern += r"(?:.*\n)*?" if line == "…" else re.escape(line) + r"\n"
        if line != "…" and not re.match(pattern, "".join(f"{line}\n" for line in actual)):
            return line
    rest = "".join(f"{line}\n" for line in actual)
    return None if re.fullmatch(pattern, rest) else "the end; it ends with: " + (actual or [""])[-1]


failed = not examples
for words, expected in examples:
    result = subprocess.run(words, shell=True, cwd=root, env={**os.environ, "OUT": options.out}, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT if options.any_numbers else subprocess.PIPE)
    missing = differs(comparable(expected), comparable([line.rstrip() for line in result.stdout.splitlines()]))
    if result.returncode or missing is not None:
        failed = True
        print(f"$ {words}\nexit {result.returncode}, not found: {missing}\n{result.stderr or ''}{result.stdout[:3000]}")
print(f"{len(examples)} commands of {options.page.name} checked")
sys.exit(failed)
