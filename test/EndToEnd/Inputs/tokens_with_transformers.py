"""tokens_with_transformers.py BUILD FOLDER: a small GPT-2 of transformers, exported by PyTorch's own exporter, trained on a token stream.

Its attention mask is bound when compiling. Exported with logits, and with its own loss, which shifts the labels itself
(--label-shift=0): the losses of ten steps may differ by 1e-4 from PyTorch's on the same windows, relative to them.
"""
import copy
import json
import os
import pathlib
import subprocess
import sys
import warnings

import numpy
import torch
from transformers import GPT2Config, GPT2LMHeadModel

build, folder = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
STEPS, BATCH, LENGTH, RATE, ALLOWED = 10, 4, 32, 0.1, 1e-4


class WithLogits(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask):
        return self.model(input_ids=input_ids, attention_mask=attention_mask).logits


class WithLoss(WithLogits):
    def forward(self, input_ids, attention_mask, labels):
        return self.model(input_ids=input_ids, attention_mask=attention_mask, labels=labels).loss


def run(*words):
    result = subprocess.run([str(word) for word in words], capture_output=True, text=True,
                            env={**os.environ, "OMP_NUM_THREADS": "1"})
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}\n{result.stdout[-2000:]}{result.stderr[-3000:]}")


def with_pytorch(model, tokens, own_loss):
    model = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    losses = []
    for step in range(STEPS):
        starts = range(step * BATCH * LENGTH, (step + 1) * BATCH * LENGTH, LENGTH)
        inputs, following = (torch.stack([tokens[start + shift:start + shift + LENGTH] for start in starts])
                             for shift in (0, 1))
        if own_loss:
            loss = model(input_ids=inputs, labels=inputs).loss
        else:
            loss = torch.nn.functional.cross_entropy(model(input_ids=inputs).logits.flatten(0, 1), following.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return numpy.array(losses)


def with_pdc(name, module, inputs, outputs, loss, *flags):
    arguments = [torch.zeros(BATCH, LENGTH, dtype=torch.int64) + i for i in range(len(inputs))]
    torch.onnx.export(module, tuple(arguments), folder / f"{name}.onnx", input_names=inputs, output_names=outputs,
                      dynamo=True, optimize=False)
    run(build / "bin/pdc", folder / f"{name}.onnx", "-o", folder / name, f"--batch={BATCH}", f"--loss={loss}",
        f"--optimizer=sgd,lr={RATE}", "--profile=analytic", "--devices=1", "--bind", "attention_mask=1")
    run(build / "bin/pdc-run", folder / name, "--data", folder / "train.bin", "--shuffle=off", "--steps", STEPS,
        "--metrics", folder / f"{name}.jsonl", *flags)
    return numpy.array([json.loads(line)["loss"] for line in (folder / f"{name}.jsonl").read_text().splitlines()])


warnings.filterwarnings("ignore")
folder.mkdir(parents=True)
text = numpy.fromfile("/usr/share/common-licenses/GPL-3", numpy.uint8)
text.astype(numpy.uint16).tofile(folder / "train.bin")
torch.manual_seed(0)
network = GPT2LMHeadModel(GPT2Config(vocab_size=256, n_positions=LENGTH, n_embd=32, n_layer=2, n_head=4, resid_pdrop=0,
                                     embd_pdrop=0, attn_pdrop=0, use_cache=False)).train()
failed = False
for title, own, losses in (
        ("logits", False, with_pdc("logits", WithLogits(network), ["input_ids", "attention_mask"], ["logits"],
                                   "softmax-cross-entropy:logits")),
        ("its own loss", True, with_pdc("loss", WithLoss(network), ["input_ids", "attention_mask", "labels"], ["loss"],
                                        "output:loss", "--label-shift=0"))):
    expected = with_pytorch(network, torch.from_numpy(text.astype(numpy.int64)), own)
    worst = float(numpy.max(numpy.abs(losses - expected) / expected)) if len(losses) == STEPS else numpy.inf
    failed |= not worst <= ALLOWED
    print(f"with {title}: the losses of {len(losses)} steps, from {losses[0]:.4f} to {losses[-1]:.4f}, are "
          f"{'' if worst <= ALLOWED else 'NOT '}PyTorch's to {ALLOWED:g} (worst {worst:.1e})")
sys.exit(failed)
