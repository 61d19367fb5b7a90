"""check_commands.py PAGE.md OUT [OLD=>NEW]…: runs every command of an indented block that begins with 'pdc ' or 'pdc-run '.

The page's commands name files and choices of the reader's: every OLD is replaced by NEW first. They run in the folder OUT, with
estimated costs, and ranks as threads. Prints the commands that fail, and how many ran.
"""
import pathlib
import subprocess
import sys

page, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
replacements = [pair.split("=>") for pair in sys.argv[3:]]
commands, failed = [], False
for line in page.read_text().replace("\\\n", " ").splitlines():
    if line.startswith(("    pdc ", "    pdc-run ")):
        commands.append(line.strip())
for command in commands:
    words = command
    for old, new in replacements:
        words = words.replace(old, new)
    result = subprocess.run(words + (" --threads" if words.startswith("pdc-run") else " --profile=analytic"), shell=True, cwd=out, text=True, capture_output=True)
    if result.returncode:
        failed = True
        print(f"$ {command}\nran: {words}\nexit {result.returncode}\n{result.stderr}")
print(f"{len(commands)} commands ran")
sys.exit(failed or not commands)
