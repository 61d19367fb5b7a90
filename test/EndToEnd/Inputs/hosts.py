"""hosts.py SOURCE: hosts of utils/experiments are joined, counted and removed; also when their maker is killed."""
import os
import pathlib
import signal
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(sys.argv[1], "utils/experiments")))
import hosts as module


def mine(maker):
    return [line for line in module.ip("netns", "list").splitlines() if line.startswith(f"{module.PREFIX}{maker}-")]


if len(sys.argv) > 2:  # the maker that is killed
    signal.signal(signal.SIGINT, signal.default_int_handler)  # who runs tests may ignore it
    with module.Hosts(2):
        print("made", flush=True)
        signal.pause()

with module.Hosts(3) as hosts:
    print(len(mine(os.getpid())), "namespaces for 3 hosts")
    hosts.limit(50e6)
    limit, rate = hosts.calibrate(50e6)
    print("calibrated" if 0 < limit <= 55e6 and rate > 0 else f"calibrated to {limit}, {rate}")
    before = hosts.bytes_sent()
    print("measured a rate" if hosts.measure(seconds=0.2, repetitions=1) > 0 else "measured nothing")
    after = hosts.bytes_sent()
    sent = [b - a > 1 << 20 for a, b in zip(before, after)]
    print("counted what host 0 sent" if sent == [True, False, False] else f"counted {before} {after}")
    environment = {**os.environ, "PDC_TEST": "handed on"}
    words = [*hosts.mpirun([2, 0], ["PDC_TEST"]), "sh", "-c", "echo $(ip -4 -o address show eth0 | cut -d' ' -f7) $PDC_TEST"]
    result = hosts.run(2, words, capture_output=True, text=True, env=environment, stdin=subprocess.DEVNULL)
    print(*sorted(result.stdout.splitlines()), result.stderr, sep="\n")
print(len(mine(os.getpid())), "namespaces afterwards")

for number in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL):
    maker = subprocess.Popen([sys.executable, __file__, sys.argv[1], "maker"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    maker.stdout.readline()
    made = len(mine(maker.pid))
    maker.send_signal(number)
    maker.wait()
    if number == signal.SIGKILL:
        module.remove_leftovers()
    print(f"{number.name}: {made} namespaces, then {len(mine(maker.pid))}")
