#!/usr/bin/env python3
"""An LSTM that tags words, trained by pdc, and its weights back in the module. Needs pdc and pdc-run in the PATH.

    lstm.py [newer|default|older|folding]    which of PyTorch's exporters (newer); default: with its optimizer, which
                                             transposes and packs weights; folding: the older one, which does so, too
"""
import pathlib
import subprocess
import sys

import numpy
import torch
from safetensors.torch import load_file

EXPORTERS = {
    "newer": dict(dynamo=True, optimize=False, dynamic_shapes=({0: "batch"},)),
    "default": dict(dynamo=True, dynamic_shapes=({0: "batch"},)),
    "older": dict(dynamo=False, dynamic_axes={"words": {0: "batch"}}, training=torch.onnx.TrainingMode.TRAINING,
                  do_constant_folding=False),
    "folding": dict(dynamo=False, dynamic_axes={"words": {0: "batch"}}),
}
exporter = EXPORTERS[sys.argv[1] if len(sys.argv) > 1 else "newer"]


class Tagger(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(50, 16)
        self.lstm = torch.nn.LSTM(16, 12, num_layers=2, bidirectional=True, batch_first=True)
        self.hidden = torch.nn.Linear(24, 24)
        self.tags = torch.nn.Linear(24, 5)

    def forward(self, words):
        states, _ = self.lstm(self.embedding(words))
        return self.tags(torch.tanh(self.hidden(states)))


model = Tagger().train()
words, labels = torch.randint(50, (40, 9)), torch.randint(5, (40, 9))
pathlib.Path("data").mkdir(exist_ok=True)
numpy.save("data/words.npy", words.numpy())
numpy.save("data/label.npy", labels.numpy())

torch.onnx.export(model, (words[:8],), "lstm.onnx", input_names=["words"], output_names=["logits"], **exporter)
subprocess.run("pdc lstm.onnx -o run --batch=8 --profile=analytic --loss=softmax-cross-entropy "
               "--optimizer=momentum,lr=0.1,momentum=0.9", shell=True, check=True)
subprocess.run("pdc-run run --data=data --shuffle=off --steps=5 --export-state-dict=trained.safetensors",
               shell=True, check=True)
model.load_state_dict(load_file("trained.safetensors"))
