"""experts_of_transformers.py BUILD FOLDER: small mixtures of experts of transformers, whose experts are one parameter of which matrices
are gathered for each token (batched_mm, the form in which PyTorch exports them), against PyTorch: loss and all gradients."""
import pathlib
import subprocess
import sys
import warnings

import numpy
import torch
import transformers
from safetensors.numpy import load_file

WORDS, TIME, BATCH, ALLOWED = 60, 8, 4, 1e-4
COMMON = dict(vocab_size=WORDS, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, num_experts_per_tok=2,
              max_position_embeddings=16)
MODELS = {
    "Mixtral": lambda: transformers.MixtralForCausalLM(transformers.MixtralConfig(intermediate_size=48, num_local_experts=4, **COMMON)),
    "Qwen2-MoE": lambda: transformers.Qwen2MoeForCausalLM(transformers.Qwen2MoeConfig(
        intermediate_size=48, moe_intermediate_size=40, shared_expert_intermediate_size=24, num_experts=4, **COMMON)),
}


class Logits(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids):
        return self.model(input_ids, use_cache=False).logits


def run(*command):
    return subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE, text=True).stdout


def check(name, tools, folder):
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(1)
    module = MODELS[name]()
    module.set_experts_implementation("batched_mm")
    module = Logits(module).train()
    ids, label = (torch.randint(0, WORDS, (BATCH, TIME)) for _ in range(2))
    torch.onnx.export(module, (ids,), str(folder / "model.onnx"), dynamo=True, optimize=False, verbose=False, input_names=["input_ids"],
                      output_names=["logits"])
    loss = torch.nn.functional.cross_entropy(module(ids).flatten(0, 1), label.flatten())
    loss.backward()
    for entry, values in (("input_ids", ids), ("label", label)):
        numpy.save(folder / f"{entry}.npy", values.numpy())
    flags = [folder / "model.onnx", f"--batch={BATCH}", "--loss=softmax-cross-entropy"]
    text = run(tools / "bin/pdc", *flags, "--profile=analytic", "--emit=ir")
    moved = [sum(f" = {op} " in line for line in text.splitlines()) for op in ("dispatch", "combine")]
    run(tools / "bin/pdc-eval", *flags, "--inputs", folder, "--outputs", folder / "out", "--gradients", "--engine=interpreter")
    found = {key: value for path in sorted((folder / "out").rglob("*.safetensors")) for key, value in load_file(path).items()}
    expected = {key: value.grad.numpy() for key, value in module.named_parameters() if value.grad is not None}
    differences = {key: numpy.linalg.norm(found[key].astype(float) - value) / numpy.linalg.norm(value) for key, value in expected.items() if key in found}
    worst = max(differences, key=differences.get)
    near = abs(float(numpy.load(folder / "out" / "loss.npy")) - loss.item()) <= ALLOWED and differences[worst] <= ALLOWED
    missing = sorted(expected.keys() - found.keys())
    print(f"{name}: dispatch and combine: {moved}, {len(differences)} of {len(expected)} gradients and the loss are {'' if near else 'NOT '}PyTorch's to {ALLOWED}"
          f"{'' if near else f' ({worst}: {differences[worst]})'}{'; without: ' + ', '.join(missing) if missing else ''}", flush=True)


def main():
    warnings.filterwarnings("ignore")
    for name in MODELS:
        check(name, pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]) / name)


main()
