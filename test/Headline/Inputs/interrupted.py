"""interrupted.py SCRIPT WORK: what an interrupted utils/headline leaves behind."""
import os
import pathlib
import signal
import subprocess
import sys
import time

script, work = sys.argv[1:]


def namespaces(maker):
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout
    return [line for line in listed.splitlines() if line.startswith(f"pdc-host{maker}-")]


def ranks():
    """Processes of the programs in WORK."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            # In a chroot, a process of another mount namespace has a path that begins outside of it.
            if entry.name.isdigit() and work in os.readlink(entry / "exe") and "State:\tZ" not in (entry / "status").read_text():
                found.append(int(entry.name))
        except OSError:
            pass
    return found


def wait_for(condition, what, process):
    for _ in range(5400):
        if condition():
            return
        if process.poll() is not None:
            sys.exit(f"ended with {process.returncode} before {what}")
        time.sleep(0.05)
    sys.exit(f"no {what}")


steps = ["--steps", "profile,build"]
command = [script, "--only", "vgg16", "--size", "small", "--state", work, "--work", work, "--rounds", "1"]
subprocess.run([*command, *steps], check=True, stdout=subprocess.DEVNULL)
for number in (signal.SIGTERM, signal.SIGINT):
    # Who runs tests may ignore SIGINT.
    process = subprocess.Popen([*command, "--steps", "run", "--seconds", "100"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
    wait_for(lambda: len(ranks()) >= 1 and namespaces(process.pid), "rank", process)
    process.send_signal(number)
    code = process.wait(120)
    code = 128 - code if code < 0 else code
    for _ in range(200):
        if not ranks():
            break
        time.sleep(0.05)
    print(f"{number.name} while it runs: ended with {code}, {len(namespaces(process.pid))} namespaces, {len(ranks())} processes")
