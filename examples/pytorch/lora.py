#!/usr/bin/env python3
"""Adapters for a small GPT-2 of transformers, trained by pdc and loaded by PEFT.

    lora.py export   writes gpt2.onnx, data and the module's own weights, base
    lora.py load     loads the module and the adapters in `adapter`, and compares them with merged.onnx
"""
import pathlib
import sys

import numpy
import torch
import transformers


class Logits(torch.nn.Module):
    """The logits alone."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids):
        return self.model(input_ids, attention_mask=torch.ones_like(input_ids)).logits


def export():
    config = transformers.GPT2Config(n_layer=2, n_head=2, n_embd=32, n_positions=32, vocab_size=64, use_cache=False,
                                     bos_token_id=0, eos_token_id=0, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    model = transformers.GPT2LMHeadModel(config)
    model.save_pretrained("base")
    tokens = torch.randint(64, (160, 17))
    pathlib.Path("data").mkdir(exist_ok=True)
    numpy.save("data/input_ids.npy", numpy.ascontiguousarray(tokens[:, :-1]))
    numpy.save("data/label.npy", numpy.ascontiguousarray(tokens[:, 1:]))
    torch.onnx.export(Logits(model).train(), (tokens[:8, :-1],), "gpt2.onnx", input_names=["input_ids"],
                      output_names=["logits"], dynamo=True, optimize=False, dynamic_shapes=({0: "batch"},))


def load():
    import onnxruntime
    from peft import PeftModel

    model = PeftModel.from_pretrained(transformers.GPT2LMHeadModel.from_pretrained("base"), "adapter").eval()
    ids = numpy.load("data/input_ids.npy")
    with torch.no_grad():
        own = model(torch.from_numpy(ids)).logits.numpy()
    merged = onnxruntime.InferenceSession("merged.onnx").run(None, {"input_ids": ids})[0]
    difference = numpy.abs(own - merged).max()
    print(f"PEFT and merged.onnx: logits differ by at most {difference:.0e}")
    sys.exit(not difference < 1e-4)


{"export": export, "load": load}[sys.argv[1]]()
