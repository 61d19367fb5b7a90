"""experts_learn.py BUILD FOLDER: mixtures of experts learn over teams that divide samples and experts what they learn in one process.

A sample has a word three times that tells its class, and three words at random; a quarter of the labels is at random. The mean loss of the
last 500 steps may differ by 1 %, and must be below what not knowing the sample gives.
"""
import json
import math
import os
import pathlib
import subprocess
import sys

import numpy

build, folder = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
root = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(root / "utils/models"))
from hand_made import CLASSES, TOKENS, WORDS  # noqa: E402

WAYS = {"one process": ["--devices=1"], "ep:2": ["--devices=2", "--split=ep:2"], "ep:4": ["--devices=4", "--split=ep:4"],
        "two stages of ep:2": ["--devices=4", "--replicas=1,1", "--split=ep:2"]}
STEPS, LAST, ALLOWED = 3000, 500, 0.01


def run(*words):
    result = subprocess.run([str(word) for word in words], capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}\n{result.stdout[-2000:]}{result.stderr[-3000:]}")


def samples(count):
    drawn = numpy.random.default_rng(1)
    classes = drawn.integers(0, CLASSES, count)
    words = drawn.integers(0, WORDS, (count, TOKENS))
    words[:, :3] = 2 * classes[:, None]
    labels = numpy.where(drawn.random(count) < 0.25, drawn.integers(0, CLASSES, count), classes)
    (folder / "data").mkdir()
    numpy.save(folder / "data/input.npy", drawn.permuted(words, axis=1).astype(numpy.int64))
    numpy.save(folder / "data/label.npy", labels.astype(numpy.int64))


def losses(name):
    found = {}
    run(sys.executable, root / "utils/models/hand_made.py", name, folder / name)
    for way, devices in WAYS.items():
        out = folder / f"{name}-{way.replace(' ', '-').replace(':', '')}"
        run(build / "bin/pdc", folder / name / "model.onnx", "-o", out, "--schedule=1f1b-flush", "--microbatches=4", "--profile=analytic",
            "--optimizer=adam,lr=0.003", *devices)
        run(build / "bin/pdc-run", out, "--seed", "5", "--data", folder / "data", "--steps", STEPS, "--metrics", out / "metrics.jsonl")
        told = [json.loads(line) for line in open(out / "metrics.jsonl")]
        of_steps = [line["loss"] for line in told if "loss" in line]
        found[way] = sum(of_steps[-LAST:]) / LAST
    one = found.pop("one process")
    good = all(abs(loss / one - 1) <= ALLOWED for loss in found.values()) and one < 0.8 * math.log(CLASSES)
    print(f"{name}: loss {one:.4f} in one process, {', '.join(f'{loss:.4f} over {way}' for way, loss in found.items())}: "
          f"{'as well' if good else 'NOT as well'}", flush=True)
    return good


folder.mkdir(parents=True)
samples(4096)
good = [losses(name) for name in ("experts", "shared-expert")]
sys.exit(not all(good))
