"""init_network.py export OUT.onnx | compare FOLDER: parameters that pdc --init drew, beside PyTorch's own.

`export` writes a network without its weights; `compare` holds the files of FOLDER/weights to the distributions with which
PyTorch makes the same modules.
"""
import json
import math
import pathlib
import sys

import torch


class Network(torch.nn.Module):
    """Sizes differ, so that a tensor tells by its number of elements which parameter it is."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(6, 20, 3, groups=2)
        self.norm = torch.nn.BatchNorm2d(20)
        self.up = torch.nn.ConvTranspose2d(20, 7, 2)
        self.words = torch.nn.Embedding(301, 24)
        self.lstm = torch.nn.LSTM(24, 40)
        self.gru = torch.nn.GRU(40, 36)
        self.rnn = torch.nn.RNN(36, 28)
        self.layer = torch.nn.LayerNorm(28)
        self.mixed = torch.nn.Linear(28, 44)  # of three axes: a transposed matrix product, an addition
        self.head = torch.nn.Linear(51, 10)

    def forward(self, image, tokens):
        x = self.up(self.norm(self.conv(image))).mean((2, 3))
        y = self.rnn(self.gru(self.lstm(self.words(tokens))[0])[0])[0]
        y = self.mixed(self.layer(y)).mean(0)
        return self.head(torch.cat([x, y], 1))


def drawn(folder):
    for path in sorted(pathlib.Path(folder, "weights").glob("*.safetensors")):
        data = path.read_bytes()
        begin = 8 + int.from_bytes(data[:8], "little")
        for name, entry in json.loads(data[8:begin]).items():
            if name != "__metadata__":
                first, last = entry["data_offsets"]
                yield name, torch.frombuffer(bytearray(data[begin + first:begin + last]), dtype=torch.float32)


def compare(folder):
    torch.manual_seed(0)
    networks = [Network().state_dict() for _ in range(20)]
    made = {}  # by elements, and by name
    for name in networks[0]:
        values = torch.cat([network[name].flatten().float() for network in networks])
        made[name] = values
        made.setdefault(networks[0][name].numel(), values)
        if "bias_ih" in name:  # stored with bias_hh, as one
            made.setdefault(2 * networks[0][name].numel(), values)
    count = 0
    for name, values in drawn(folder):
        expected = made[name] if name in made else made[values.numel()]
        deviation, bound = expected.std(unbiased=False).item(), expected.abs().max().item()
        mean, largest, n = expected.mean().item(), values.abs().max().item(), values.numel()
        kurtosis = ((expected - mean) ** 4).mean().item() / deviation ** 4 if deviation > 1e-6 else 1
        # Five standard errors.
        error = 5 * deviation * math.sqrt((kurtosis - 1) / (4 * n)) + 1e-6
        assert abs(values.std(unbiased=False).item() - deviation) <= error, (name, values.std(), deviation)
        assert abs(values.mean().item() - mean) <= 5 * deviation / math.sqrt(n) + 1e-6, (name, values.mean(), mean)
        if kurtosis < 2:  # uniform: the bounds are reached up to some 5 / n
            assert bound * (1 - 7 / n) <= largest <= bound * (1.01 + 0.5 / n), (name, largest, bound)
        count += 1
    print(f"{count} parameters as PyTorch makes them")


if sys.argv[1] == "export":
    torch.onnx.export(Network(), (torch.zeros(2, 6, 8, 8), torch.zeros(5, 2, dtype=torch.long)), sys.argv[2],
                      export_params=False, training=torch.onnx.TrainingMode.TRAINING, opset_version=14,
                      input_names=["image", "tokens"], output_names=["scores"])
else:
    compare(sys.argv[2])
