"""Compares what the tools print for man and for bash with what they print for --help."""
import re
import shutil
import subprocess

TOOLS = ["pdc", "pdc-run", "pdc-ckpt", "pdc-eval", "pdc-opt", "pdc-plan", "pdc-profile", "pdc-sim"]


def run(*words, **more):
    return subprocess.run(words, capture_output=True, text=True, check=True, **more).stdout


def complete(tool, *words):
    """What bash offers after `words`, the last of which is not complete."""
    script = run(tool, "--print-completion")
    line = " ".join(f"'{word}'" for word in (tool, *words))
    script += f"\nCOMP_WORDS=({line}); COMP_CWORD={len(words)}; _{tool.replace('-', '_')}; echo ${{COMPREPLY[*]}}"
    return run("bash", "--norc", "-c", script).split()


lacks_page, lacks_completion, warnings = [], [], []
for tool in TOOLS:
    flags = set(re.findall(r"^\s+(?:-\w,)?(--[\w-]+)", run(tool, "--help"), re.MULTILINE))
    assert len(flags) >= 2, (tool, flags)
    page = run(tool, "--print-man-page")
    plain = page.replace("\\-", "-")
    lacks_page += [f"{tool} {flag}" for flag in flags if flag not in plain]
    offered = complete(tool, "--")
    lacks_completion += [f"{tool} {flag}" for flag in flags if flag not in offered]
    if shutil.which("man"):
        done = subprocess.run(["man", "--warnings", "-l", "-"], input=page, capture_output=True, text=True)
        warnings += done.stderr.splitlines()
print(len(TOOLS), "tools")
print("every flag of --help is in its man page" if not lacks_page else f"not in a man page: {lacks_page}")
print("every flag of --help is completed" if not lacks_completion else f"not completed: {lacks_completion}")
print("man finds nothing to warn of" if not warnings else warnings)
print("completes --schedule=1f1b-f to", *complete("pdc", "--schedule", "=", "1f1b-f"))
print("completes pdc-ckpt ver to", *complete("pdc-ckpt", "ver"))
