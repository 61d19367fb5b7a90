#!/usr/bin/env python3
"""A small GPT-2 of transformers trained by pdc, and its weights back in the module. Needs pdc and pdc-run in the PATH.

    gpt2.py [newer|older]    which of PyTorch's exporters (newer)
"""
import pathlib
import subprocess
import sys

import numpy
import torch
import transformers
from safetensors.torch import load_file

EXPORTERS = {
    "newer": dict(dynamo=True, optimize=False, dynamic_shapes=({0: "batch"},)),
    "older": dict(dynamo=False, dynamic_axes={"input_ids": {0: "batch"}}, training=torch.onnx.TrainingMode.TRAINING,
                  do_constant_folding=False),
}
exporter = EXPORTERS[sys.argv[1] if len(sys.argv) > 1 else "newer"]


class Logits(torch.nn.Module):
    """The logits alone. The older exporter cannot export GPT-2 without an attention mask (aten::diff)."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids):
        return self.model(input_ids, attention_mask=torch.ones_like(input_ids)).logits


config = transformers.GPT2Config(n_layer=2, n_head=2, n_embd=32, n_positions=32, vocab_size=64, use_cache=False,
                                 bos_token_id=0, eos_token_id=0, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
model = Logits(transformers.GPT2LMHeadModel(config)).train()
tokens = torch.randint(64, (40, 17))
pathlib.Path("data").mkdir(exist_ok=True)
numpy.save("data/input_ids.npy", numpy.ascontiguousarray(tokens[:, :-1]))
numpy.save("data/label.npy", numpy.ascontiguousarray(tokens[:, 1:]))

torch.onnx.export(model, (tokens[:8, :-1],), "gpt2.onnx", input_names=["input_ids"], output_names=["logits"],
                  **exporter)
subprocess.run("pdc gpt2.onnx -o run --batch=8 --profile=analytic --loss=softmax-cross-entropy "
               "--optimizer=momentum,lr=0.1,momentum=0.9", shell=True, check=True)
subprocess.run("pdc-run run --data=data --shuffle=off --steps=5 --export-state-dict=trained.safetensors",
               shell=True, check=True)
model.load_state_dict(load_file("trained.safetensors"))
