#!/usr/bin/env python3
"""torchvision's ResNet-18 trained by pdc, and its weights back in the module. Needs pdc and pdc-run in the PATH.

    resnet18.py [newer|older]    which of PyTorch's exporters (newer)
"""
import pathlib
import subprocess
import sys

import numpy
import torch
import torchvision
from safetensors.torch import load_file

EXPORTERS = {
    "newer": dict(dynamo=True, optimize=False, dynamic_shapes=({0: "batch"},)),
    "older": dict(dynamo=False, dynamic_axes={"images": {0: "batch"}}, training=torch.onnx.TrainingMode.TRAINING,
                  do_constant_folding=False),
}
exporter = EXPORTERS[sys.argv[1] if len(sys.argv) > 1 else "newer"]

model = torchvision.models.resnet18(num_classes=10).train()
images, labels = torch.randn(40, 3, 64, 64), torch.randint(10, (40,))
pathlib.Path("data").mkdir(exist_ok=True)
numpy.save("data/images.npy", images.numpy())
numpy.save("data/label.npy", labels.numpy())

torch.onnx.export(model, (images[:8],), "resnet18.onnx", input_names=["images"], output_names=["logits"],
                  **exporter)
subprocess.run("pdc resnet18.onnx -o run --batch=8 --profile=analytic --bn=pytorch --loss=softmax-cross-entropy "
               "--optimizer=momentum,lr=0.01,momentum=0.9", shell=True, check=True)
subprocess.run("pdc-run run --data=data --shuffle=off --steps=5 --export-state-dict=trained.safetensors",
               shell=True, check=True)
model.load_state_dict(load_file("trained.safetensors"))
