"""tokens_with_pytorch.py BUILD FOLDER: a small GPT-2 is trained on the bytes of a licence by pdc and by PyTorch.

The text is a raw .bin file, which pdc reads with --data and PyTorch as numpy.memmap does: windows of 32 tokens one after the other,
labels are the next tokens. The losses of ten steps, of 1 and of 3 stages with 1f1b-flush, may differ by 1e-4, relative to PyTorch's.
"""
import json
import os
import pathlib
import subprocess
import sys

import numpy
import torch

build, folder = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "utils/models"))
from export import export  # noqa: E402
from networks import build as build_network  # noqa: E402

STEPS, BATCH, MICROBATCHES, RATE, ALLOWED = 10, 4, 2, 0.1, 1e-4


def run(*words):
    result = subprocess.run([str(word) for word in words], capture_output=True, text=True,
                            env={**os.environ, "OMP_NUM_THREADS": "1"})
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}\n{result.stdout[-2000:]}{result.stderr[-3000:]}")


def with_pytorch(shift):
    network, module = build_network("gpt2", "text", dropout=False)
    (length,) = network.label.shape
    tokens = torch.from_numpy(numpy.memmap(folder / "train.bin", numpy.uint16, "r").astype(numpy.int64))
    optimizer = torch.optim.SGD(module.parameters(), lr=RATE)
    losses, window = [], 0
    for _ in range(STEPS):
        optimizer.zero_grad()
        total = 0.0
        for _ in range(MICROBATCHES):
            starts = [length * (window + i) for i in range(BATCH)]
            window += BATCH
            inputs = torch.stack([tokens[start:start + length] for start in starts])
            labels = torch.stack([tokens[start + shift:start + shift + length] for start in starts])
            loss = torch.nn.functional.cross_entropy(module(inputs).flatten(0, 1), labels.flatten()) / MICROBATCHES
            loss.backward()
            total += loss.item()
        losses.append(total)
        optimizer.step()
    return numpy.array(losses)


def with_pdc(stages):
    out = folder / f"stages{stages}"
    run(build / "bin/pdc", folder / "gpt2.onnx", "-o", out, f"--batch={BATCH}", "--loss=softmax-cross-entropy:logits",
        f"--optimizer=sgd,lr={RATE}", f"--replicas={','.join(['1'] * stages)}", "--schedule=1f1b-flush",
        f"--microbatches={MICROBATCHES}", "--profile=analytic")
    metrics = out / "run.jsonl"
    run(build / "bin/pdc-run", out, "--threads", "--data", folder / "train.bin", "--shuffle=off", "--steps", STEPS,
        "--metrics", metrics)
    return numpy.array([json.loads(line)["loss"] for line in metrics.read_text().splitlines()])


folder.mkdir(parents=True)
text = numpy.fromfile("/usr/share/common-licenses/GPL-3", numpy.uint8)
text.astype(numpy.uint16).tofile(folder / "train.bin")
export("gpt2", folder / "gpt2.onnx", size="text", dropout=False)
expected, unshifted = with_pytorch(1), with_pytorch(0)
failed = False
for stages in (1, 3):
    losses = with_pdc(stages)
    worst = float(numpy.max(numpy.abs(losses - expected) / expected))
    failed |= not worst <= ALLOWED or len(losses) != STEPS
    print(f"{stages} {'stage' if stages == 1 else 'stages'}: the losses of {len(losses)} steps, from {losses[0]:.4f} to "
          f"{losses[-1]:.4f}, are {'' if worst <= ALLOWED else 'NOT '}PyTorch's to {ALLOWED:g} (worst {worst:.1e})")
noticed = float(numpy.max(numpy.abs(losses - unshifted) / unshifted)) > ALLOWED
print(f"labels that are not shifted are {'' if noticed else 'NOT '}noticed")
sys.exit(failed or not noticed)
