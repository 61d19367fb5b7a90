"""frozen_once.py FOLDER WEIGHTS: of a run of 1f1b with one replica per stage and Adam, in the program in FOLDER, which has exported
WEIGHTS: the arena of each stage is the frozen parameters that it uses, once, and what its formula gives for everything else.
Prints what each stage has, and fails where the sum is not what pdc has predicted and what the run (WEIGHTS.log) has allocated."""
import json
import pathlib
import re
import sys

folder, weights = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])


def padded(size):
    return -(-size // 64) * 64


def header(path):
    data = path.read_bytes()
    return json.loads(data[8:8 + int.from_bytes(data[:8], "little")])


def allocated(log):
    """Stage -> bytes, of the table that a run prints: stage, rank, two times, arena predicted and allocated, …"""
    rows = [line.split() for line in log.splitlines()]
    return {int(row[0]): int(row[5]) for row in rows if len(row) == 8 and row[0].isdigit() and row[1].isdigit()}


schedule = (folder / "schedule.txt").read_text()
rings = {(int(a), int(b)): tuple(int(depth or 0) for depth in depths) for a, b, *depths in re.findall(
    r"^edge (\d+)>(\d+) forward send \d+ receive (\d+)(?: backward send (\d+) receive (\d+))?$", schedule, re.M)}
stages = re.findall(r"^stage (\d+) replicas 1 warmup \d+ sync-delay 0 slots (\d+) versions (\d+)$", schedule, re.M)
plan = json.loads((folder / "plan.json").read_text())["stages"]
has = allocated(pathlib.Path(f"{weights}.log").read_text())
assert len(stages) == len(plan) == len(has), "a table is not what it was"
wrong = False
for number, slots, versions in (map(int, stage) for stage in stages):
    source = (folder / f"stage{number}.cpp").read_text()
    block = {name: int(size) for name, size in
             re.findall(r"\.(\w+) = (\d+)", re.search(r"\.bytes = \{(.*?)\}", source, re.S)[1])}
    rows = {name: trained == "true" for name, trained in
            re.findall(r'^    \{"([^"]+)", Element::\w+, \{[\d, ]*\}, \d+, \d+, (true|false)', source, re.M)}
    tensors = header(weights / f"stage{number}.safetensors")
    size = {name: padded(tensors[name]["data_offsets"][1] - tensors[name]["data_offsets"][0]) for name in rows}
    frozen = sum(size[name] for name in rows if not rows[name])
    trained = sum(size[name] for name in rows if rows[name])
    arena = (frozen + trained * (versions + 2 + 1)  # Adam's two moments, and a gradient of each use: here there is one
             + padded(block["slot"]) * slots + padded(block["handover"]) + padded(block["scratch"]) + padded(block["workspace"]))
    for way, sender, receiver, size in re.findall(r"\{pdcrt::Direction::(\w+), (\d+), (\d+), (\d+)\}", source):
        sender, receiver, size = int(sender), int(receiver), padded(int(size))
        received, sent_back, received_back = rings[min(sender, receiver), max(sender, receiver)]
        if way == "forward":
            arena += size * received if receiver == number else 0  # what a stage sends lies in its slots
        else:
            arena += size * (sent_back if sender == number else received_back)
    print(f"stage {number}: {frozen} bytes are frozen, {trained} are trained, with {versions} versions")
    if len({arena, plan[number]["memory_bytes"], has[number]}) > 1:
        print(f"stage {number}: {arena} bytes by the formula, {plan[number]['memory_bytes']} predicted, {has[number]} allocated")
        wrong = True
sys.exit(wrong)
