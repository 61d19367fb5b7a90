"""splits_learn.py BUILD FOLDER: networks learn over four processes, two stages of teams of two, as well as in one.

The example's network learns ten patterns with noise, a small GPT-2 a licence, byte by byte. The accuracies on what they have not seen
may differ by 0.01, and must be far above chance.
"""
import os
import pathlib
import re
import subprocess
import sys

import numpy

build, folder = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
root = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(root / "utils/models"))
from export import export  # noqa: E402

WAYS = {"one process": ["--devices=1"], "four": ["--devices=4", "--replicas=1,1", "--split=tp:2"]}
ALLOWED = 0.01


def run(*words):
    result = subprocess.run([str(word) for word in words], capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}\n{result.stdout[-2000:]}{result.stderr[-3000:]}")
    return result.stdout


def accuracies(name, model, flags, training, least):
    found = {}
    for way, devices in WAYS.items():
        out = folder / f"{name}-{way.replace(' ', '-')}"
        run(build / "bin/pdc", model, "-o", out, "--schedule=1f1b-flush", "--microbatches=2", "--profile=analytic", *flags, *devices)
        said = run(build / "bin/pdc-run", out, "--seed", "5", *training)
        found[way] = float(re.search(r"^test accuracy ([0-9.]+)$", said, re.MULTILINE)[1])
    one, four = found.values()
    good = abs(one - four) <= ALLOWED and min(one, four) > least
    print(f"{name}: accuracy {one:.4f} in one process, {four:.4f} in four: {'as well' if good else 'NOT as well'}", flush=True)
    return good


def patterns(part, samples, engine, of):
    (folder / part).mkdir()
    labels = engine.integers(0, len(of), samples)
    images = of[labels] + 0.4 * engine.standard_normal((samples, 1, 8, 8))
    numpy.save(folder / part / "input.npy", images.astype(numpy.float32))
    numpy.save(folder / part / "label.npy", labels.astype(numpy.int64))
    return folder / part


folder.mkdir(parents=True)
drawn = numpy.random.default_rng(1)
ten = drawn.random((10, 1, 8, 8))
train, test = patterns("train", 1280, drawn, ten), patterns("test", 640, drawn, ten)
good = accuracies("digits", root / "examples/digits/digits.onnx", ["--batch=16", "--loss=softmax-cross-entropy", "--optimizer=momentum,lr=0.05,momentum=0.5"],
                  ["--data", train, "--eval", test, "--epochs", "6"], 0.9)

text = numpy.fromfile("/usr/share/common-licenses/GPL-3", numpy.uint8).astype(numpy.uint16)
text[:30000].tofile(folder / "train.bin")
text[30000:].tofile(folder / "val.bin")
export("gpt2", folder / "gpt2.onnx", size="text", dropout=False)
good = accuracies("gpt2", folder / "gpt2.onnx", ["--batch=8", "--loss=softmax-cross-entropy:logits", "--optimizer=adam,lr=0.002"],
                  ["--data", folder / "train.bin", "--eval", folder / "val.bin", "--steps", "1500"], 0.33) and good
sys.exit(not good)
