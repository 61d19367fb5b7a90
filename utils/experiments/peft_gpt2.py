"""GPT-2 of transformers with PEFT's adapters on all layers of its blocks: the peer of `pdc --lora`.

    peft_gpt2.py export OUT.onnx [--size=small|medium]                                     the module without adapters
    peft_gpt2.py train [--size=…] [--batch=4] [--time=128] [--threads=1] [--compile] [--int8]

`train` answers every line on standard input, a number of steps, with {"ms": […], "loss": …}. A step is forward, backward and an update by
AdamW. --int8: the layers of the blocks are bitsandbytes' Linear8bitLt (LLM.int8, threshold 6), without which it ends with 77.
"""
import argparse
import json
import sys
import time

import peft
import torch
import transformers

WORDS, RANK, ALPHA = 50257, 8, 16
SIZES = {"small": dict(n_layer=12, n_head=12, n_embd=768), "medium": dict(n_layer=24, n_head=16, n_embd=1024)}
LAYERS = ["c_attn", "c_proj", "c_fc"]


class Logits(torch.nn.Module):
    """The logits alone."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids):
        return self.model(input_ids, attention_mask=torch.ones_like(input_ids)).logits


def network(size):
    torch.manual_seed(0)
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(
        **SIZES[size], use_cache=False, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, attn_implementation="sdpa"))


def export(arguments):
    tokens = torch.randint(WORDS, (2, arguments.time))
    torch.onnx.export(Logits(network(arguments.size)), (tokens,), arguments.output, input_names=["input_ids"], output_names=["logits"],
                      dynamo=True, optimize=False, dynamic_shapes=({0: "batch"},))


def eight_bits(model):
    """Its blocks' layers, as Linear8bitLt."""
    try:
        import bitsandbytes
    except ImportError:
        sys.exit(77)
    for block in model.transformer.h:
        for parent in (block.attn, block.mlp):
            for name in LAYERS:
                if layer := getattr(parent, name, None):
                    inputs, outputs = layer.weight.shape
                    own = bitsandbytes.nn.Linear8bitLt(inputs, outputs, has_fp16_weights=False, threshold=6.0)
                    own.weight = bitsandbytes.nn.Int8Params(layer.weight.data.T.contiguous(), requires_grad=False, has_fp16_weights=False)
                    own.bias = layer.bias
                    setattr(parent, name, own.to("cpu"))
    return model


def train(arguments):
    torch.set_num_threads(arguments.threads)
    model = network(arguments.size)
    if arguments.int8:
        eight_bits(model)
    lora = peft.LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=LAYERS, lora_dropout=0.0, fan_in_fan_out=not arguments.int8)
    model = peft.get_peft_model(model, lora).train()
    optimizer = torch.optim.AdamW([parameter for parameter in model.parameters() if parameter.requires_grad], lr=1e-3)
    tokens = torch.randint(WORDS, (arguments.batch, arguments.time + 1), generator=torch.Generator().manual_seed(1))
    forward = torch.compile(model) if arguments.compile else model
    print("ready", flush=True)
    for line in sys.stdin:
        times = []
        for _ in range(int(line)):
            begin = time.perf_counter()
            optimizer.zero_grad(set_to_none=True)
            logits = forward(tokens[:, :-1]).logits
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, -2), tokens[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            times.append(1e3 * (time.perf_counter() - begin))
        print(json.dumps({"ms": times, "loss": loss.item()}), flush=True)


parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("what", choices=["export", "train"])
parser.add_argument("output", nargs="?")
parser.add_argument("--size", choices=sorted(SIZES), default="small")
for flag, default in (("batch", 4), ("time", 128), ("threads", 1)):
    parser.add_argument(f"--{flag}", type=int, default=default)
for flag in ("compile", "int8"):
    parser.add_argument(f"--{flag}", action="store_true")
options = parser.parse_args()
{"export": export, "train": train}[options.what](options)
