"""lora_with_peft.py MODULE EXPORTER [--slices] [--head] [--negative]: trains adapters of a small language model with pdc and with
PEFT, in this folder, from the same first values and on the same minibatches.

    MODULE     gpt2: of transformers, whose layers are Conv1D, weights [inputs, outputs]; linear: of nn.Linear
    EXPORTER   newer, default (today's, which transposes and renames weights), older, folding (the older one, likewise)
    --slices   adapters for queries and values of the packed layer, from pdc's own first values: there is no run of PEFT
    --head     the layer that computes the logits trains in full
    --negative as if PEFT had another alpha: must fail

Compared are the losses of 20 steps, the logits of the adapter that PEFT loads, and those of the merged model in ONNX Runtime.
"""
import argparse
import copy
import json
import pathlib
import re
import subprocess
import sys

import numpy
import onnxruntime
import peft
import torch
import transformers

STEPS, BATCH, LENGTH, WORDS, WIDTH, ALLOWED = 20, 8, 12, 64, 32, 1e-4

parser = argparse.ArgumentParser()
parser.add_argument("module", choices=["gpt2", "linear"])
parser.add_argument("exporter", choices=["newer", "default", "older", "folding"])
for flag in ("--slices", "--head", "--negative"):
    parser.add_argument(flag, action="store_true")
options = parser.parse_args()
torch.manual_seed(0)
torch.set_num_threads(1)


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            setattr(self, name, torch.nn.Linear(WIDTH, WIDTH, bias=False))
        self.norm1, self.norm2 = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
        self.up_proj, self.down_proj = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        y = self.norm1(x)
        q, k, v = (layer(y).view(*y.shape[:2], 2, WIDTH // 2).transpose(1, 2) for layer in (self.q_proj, self.k_proj, self.v_proj))
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o_proj(y.transpose(1, 2).reshape(x.shape))
        return x + self.down_proj(torch.nn.functional.gelu(self.up_proj(self.norm2(x))))


class Linear(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(WORDS, WIDTH)
        self.layers = torch.nn.ModuleList(Block() for _ in range(2))
        self.lm_head = torch.nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, input_ids):
        x = self.embed(input_ids)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(x)


class Logits(torch.nn.Module):
    """The logits alone."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids):
        return self.model(input_ids, attention_mask=torch.ones_like(input_ids)).logits


if options.module == "gpt2":
    config = transformers.GPT2Config(n_layer=2, n_head=2, n_embd=WIDTH, n_positions=LENGTH, vocab_size=WORDS, use_cache=False,
                                     bos_token_id=0, eos_token_id=0, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    base = transformers.GPT2LMHeadModel(config)
    wrapped, strip = Logits(base), "model."
    layers = ["c_attn", "c_proj", "c_fc"]
else:
    base = wrapped = Linear()
    strip = ""
    layers = ["q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "down_proj"]
with torch.no_grad():
    for parameter in base.parameters():
        parameter += 0.05 * torch.randn_like(parameter)
fresh = copy.deepcopy(base)

tokens = torch.randint(WORDS, (STEPS * BATCH, LENGTH + 1))
inputs, labels = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
pathlib.Path("data").mkdir()
numpy.save("data/input_ids.npy", inputs.numpy())
numpy.save("data/label.npy", labels.numpy())
exporter = {
    "newer": dict(dynamo=True, optimize=False, dynamic_shapes=({0: "batch"},)),
    "default": dict(dynamo=True, dynamic_shapes=({0: "batch"},)),
    "older": dict(dynamo=False, dynamic_axes={"input_ids": {0: "batch"}}, training=torch.onnx.TrainingMode.TRAINING,
                  do_constant_folding=False),
    "folding": dict(dynamo=False, dynamic_axes={"input_ids": {0: "batch"}}),
}[options.exporter]
torch.onnx.export(wrapped, (inputs[:BATCH],), "model.onnx", input_names=["input_ids"], output_names=["logits"], **exporter)


def run(command):
    print("$", command)
    subprocess.run(command, shell=True, check=True)


# PEFT's run.
rank, alpha = 4, 6
lora = peft.LoraConfig(r=rank, lora_alpha=alpha, target_modules=layers, lora_dropout=0.0, fan_in_fan_out=options.module == "gpt2",
                       modules_to_save=["lm_head"] if options.head else None)
tuned = peft.get_peft_model(copy.deepcopy(base), lora)
with torch.no_grad():  # adapters that change something
    for name, parameter in tuned.named_parameters():
        if "lora_B" in name:
            parameter += 0.02 * torch.randn_like(parameter)
tuned.save_pretrained("first")
if options.negative:
    for module in tuned.modules():
        if hasattr(module, "scaling"):
            module.scaling["default"] *= 1.01
logits_of = lambda module, ids: getattr(out := module(ids), "logits", out)
losses, optimizer = [], torch.optim.SGD([p for p in tuned.parameters() if p.requires_grad], lr=0.2, momentum=0.9)
for step in range(STEPS):
    part = slice(step * BATCH, (step + 1) * BATCH)
    loss = torch.nn.functional.cross_entropy(logits_of(tuned, inputs[part]).flatten(0, -2), labels[part].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

# pdc's.
flags = f"--lora=rank={rank},alpha={alpha},targets=all-linear --init-from=first" + (f",add={strip}" if strip else "")
if options.slices:
    flags = f"'--lora=rank={rank},alpha={alpha},targets=c_attn,slices=0/2 of 3'"
if options.head:
    flags += " --train=lm_head" if options.exporter != "default" else " --train='^lm_head|^val_[0-9]+$'"
run(f"pdc model.onnx -o run --batch={BATCH} --profile=analytic --loss=softmax-cross-entropy --optimizer=momentum,lr=0.2,momentum=0.9 "
    f"{flags} >compiled")
run("pdc-run run --data=data --shuffle=off --steps=20 --metrics=metrics.jsonl --export=merged.onnx --eval=data "
    f"--export-adapter=adapter{',strip=' + strip if strip else ''} --export-weights=weights >ran")
own = [float(text) for text in re.findall(r'"loss": ([^,}]*)', pathlib.Path("metrics.jsonl").read_text())][:STEPS]
failed = []


def compare(what, a, b):
    difference = numpy.abs(numpy.asarray(a) - numpy.asarray(b)).max()
    if not difference <= ALLOWED:
        failed.append(f"{what} differ by {difference:.1e}")
    print(f"{what} differ by at most {ALLOWED:.0e}" if difference <= ALLOWED else f"NOT: {what} differ by {difference:.1e}")


if not options.slices:
    compare("the losses of 20 steps", losses, own)
loaded = peft.PeftModel.from_pretrained(fresh, "adapter").eval()
merged = onnxruntime.InferenceSession("merged.onnx").run(None, {"input_ids": inputs.numpy()})[0]
with torch.no_grad():
    of_loaded = logits_of(loaded, inputs).numpy()
    compare("the logits of the adapter in PEFT and of the merged model in ONNX Runtime", of_loaded, merged)
    if not options.slices:
        compare("the logits of the adapters of pdc and of PEFT", of_loaded, logits_of(tuned, inputs).numpy())
    plain = logits_of(base, inputs).numpy()
    if numpy.abs(plain - merged).max() < 0.01:
        failed.append("the adapters change nothing")
evaluated = float(re.search(r"test loss ([0-9.e-]+)", pathlib.Path("ran").read_text())[1])
of_merged = torch.nn.functional.cross_entropy(torch.from_numpy(merged).flatten(0, -2), labels.flatten()).item()
compare("pdc's evaluation and the loss of the merged model", [evaluated], [of_merged])
run("pdc-ckpt to-adapter weights --model model.onnx -o again" + (f" --strip={strip}" if strip else ""))
for name in ("adapter_model.safetensors", "adapter_config.json"):
    if pathlib.Path("again", name).read_bytes() != pathlib.Path("adapter", name).read_bytes():
        failed.append(f"pdc-ckpt writes another {name}")
print(json.loads(pathlib.Path("adapter/adapter_config.json").read_text())["target_modules"][0])
sys.exit("FAILED: " + "; ".join(failed) if failed else 0)
