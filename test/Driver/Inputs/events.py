"""events.py FOLDER METRICS.jsonl [FIRST]: reads the event files of a folder by the formats' definitions, not by pdc's code.

The newest file has a point for every step of METRICS.jsonl from FIRST on, with the same numbers, and points of memory and of the
evaluation. Every checksum is right. With TensorBoard installed, its reader finds the same points in the whole folder.
"""
import json
import math
import pathlib
import struct
import sys

folder, metrics = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
first = int(sys.argv[3]) if sys.argv[3:] else 0


def crc32c(data):
    """Bit by bit, as RFC 3720 defines it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 * (crc & 1))
    return crc ^ 0xFFFFFFFF


assert crc32c(b"123456789") == 0xE3069283


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(data):
    while data:
        length, check = struct.unpack("<QI", data[:12])
        assert check == masked(data[:8]), "checksum of a length"
        message, rest = data[12:12 + length], data[12 + length:]
        assert struct.unpack("<I", rest[:4])[0] == masked(message), "checksum of a message"
        yield message
        data = rest[4:]


def fields(message):
    """{number: [values]} of a message in Protocol Buffers' wire format."""
    found, at = {}, 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value
    while at < len(message):
        key = varint()
        kind, size = key & 7, {1: 8, 5: 4}
        if kind == 0:
            value = varint()
        else:
            count = varint() if kind == 2 else size[kind]
            value, at = message[at:at + count], at + count
            assert len(value) == count
        found.setdefault(key >> 3, []).append(value)
    return found


def points(path):
    curves, log, version = {}, [], None
    for message in records(path.read_bytes()):
        event = fields(message)
        step = event.get(2, [0])[0]
        assert 1.7e9 < struct.unpack("<d", event[1][0])[0] < 1e11, "a time in seconds"
        for summary in event.get(5, []):
            for value in fields(summary)[1]:
                value = fields(value)
                curves.setdefault(value[1][0].decode(), []).append((step, struct.unpack("<f", value[2][0])[0]))
        log += [(step, fields(session)) for session in event.get(7, [])]
        version = event.get(3, [version])[0]
    assert version == b"brain.Event:2"
    assert log == [(first, {1: [1]})], log  # START: points of other files from here on do not count
    return curves


def same(a, b):
    return len(a) == len(b) and all(s == t and math.isclose(x, y, rel_tol=1e-5) for (s, x), (t, y) in zip(a, b))


files = sorted(folder.glob("events.out.tfevents.*"))
curves = points(files[-1])
lines = [json.loads(line) for line in metrics.read_text().splitlines()]
steps = [line for line in lines if "loss" in line and line["step"] >= first]
# Evaluations are counted by the steps before them; TensorBoard has them at the last of these.
tests = [{**line, "step": line["step"] - 1} for line in lines if "test_loss" in line and line["step"] > first]
for tag, key, source in (("loss/train", "loss", steps), ("learning_rate", "lr", steps), ("time/step_ms", "step_ms", steps),
                         ("time/samples_per_s", "samples_per_s", steps), ("loss/test", "test_loss", tests),
                         ("accuracy/test", "accuracy", tests)):
    expected = [(line["step"], line[key]) for line in source]
    assert expected and same(curves.get(tag, []), expected), (tag, curves.get(tag), expected)
memory = sorted(tag for tag in curves if tag.startswith("memory/"))
assert all(value > 0 for tag in memory for _, value in curves[tag])
print(f"{len(files)} files, {len(steps)} steps from {first}, {len(tests)} evaluations as in the metrics")
print(*memory)

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ModuleNotFoundError:
    sys.exit()
accumulator = EventAccumulator(str(folder), size_guidance={"scalars": 0})
accumulator.Reload()
assert set(curves) <= set(accumulator.Tags()["scalars"])
for tag, expected in curves.items():
    found = [(point.step, point.value) for point in accumulator.Scalars(tag)]
    assert same([point for point in found if point[0] >= first], expected), (tag, found, expected)
losses = [point.step for point in accumulator.Scalars("loss/train")]
assert losses == list(range(steps[-1]["step"] + 1)), losses  # those of the run before, too, once each
print("TensorBoard reads the same")
