"""check_tour.py TOUR.md OUT: runs every '$' command of an indented block and compares its output with the lines below it.

A line that begins with '>' goes on with the command. Lines must come in this order and be equal; '…' stands for any number of lines. $OUT is the folder OUT.
"""
import os
import pathlib
import re
import subprocess
import sys

tour, out = pathlib.Path(sys.argv[1]), sys.argv[2]
root = tour.resolve().parent.parent
examples, command = [], None
for line in tour.read_text().splitlines():
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


def differs(expected, actual):
    """The first expected line that is not found where it should be, or None."""
    place, anywhere = 0, False
    for line in expected:
        if line == "…":
            anywhere = True
            continue
        if anywhere:
            while place < len(actual) and actual[place] != line:
                place += 1
        if place >= len(actual) or actual[place] != line:
            return line
        place, anywhere = place + 1, False
    return None if anywhere or place == len(actual) else "the end; it goes on with: " + actual[place]


failed = not examples
for words, expected in examples:
    result = subprocess.run(words, shell=True, cwd=root, env={**os.environ, "OUT": out}, text=True, capture_output=True)
    missing = differs(expected, [line.rstrip() for line in result.stdout.splitlines()])
    if result.returncode or missing is not None:
        failed = True
        print(f"$ {words}\nexit {result.returncode}, not found: {missing}\n{result.stderr}{result.stdout[:3000]}")
print(f"{len(examples)} commands of the tour checked")
sys.exit(failed)
