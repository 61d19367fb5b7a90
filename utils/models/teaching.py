"""Small networks of common layers, each with something that a compiler could get wrong."""
import torch
from torch import nn


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 48), nn.Tanh(), nn.Linear(48, 10))

    def forward(self, x):
        return self.layers(x)


class LeNet(nn.Module):
    """Flattens by arithmetic on shapes, which the exporter writes as Shape, Gather, Unsqueeze and Concat."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x):
        x = torch.max_pool2d(torch.relu(self.conv1(x)), 2)
        x = torch.max_pool2d(torch.relu(self.conv2(x)), 2)
        x = x.view(x.size(0), -1)
        return self.fc3(torch.relu(self.fc2(torch.relu(self.fc1(x)))))


class VggSmall(nn.Module):
    """VGG's pieces on 32x32 images: stacked convolutions with biases, adaptive pooling, Dropout."""

    def __init__(self, dropout=0.5):
        super().__init__()
        layers, channels = [], 3
        for width, count in ((16, 1), (32, 2), (64, 2)):
            for _ in range(count):
                layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
                channels = width
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.pool = nn.AdaptiveAvgPool2d((2, 2))
        self.classifier = nn.Sequential(nn.Linear(64 * 4, 64), nn.ReLU(), nn.Dropout(dropout), nn.Linear(64, 10))

    def forward(self, x):
        return self.classifier(torch.flatten(self.pool(self.features(x)), 1))


class VggDigits(nn.Module):
    """VGG's shape for 8x8 images: the work is in convolutions, nine tenths of the parameters in large dense layers."""

    def __init__(self, width=1024, dropout=0.3):
        super().__init__()
        layers, channels = [], 1
        for outputs in (64, 128):
            for _ in range(2):
                layers += [nn.Conv2d(channels, outputs, 3, padding=1), nn.ReLU()]
                channels = outputs
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        layers, inputs = [], channels * 4
        for _ in range(3):
            layers += [nn.Linear(inputs, width), nn.ReLU(), nn.Dropout(dropout)]
            inputs = width
        self.classifier = nn.Sequential(*layers, nn.Linear(width, 10))
        for part in self.modules():  # as torchvision's VGG: or nothing is learnt for long
            if isinstance(part, (nn.Conv2d, nn.Linear)):
                nn.init.kaiming_normal_(part.weight, nonlinearity="relu")
                nn.init.zeros_(part.bias)

    def forward(self, x):
        return self.classifier(torch.flatten(self.features(x), 1))


class Cells(nn.Module):
    """Two LSTM layers step by step: of PyTorch's cells, and of what a cell computes."""

    def __init__(self, inputs=8, width=12):
        super().__init__()
        self.width = width
        self.cell = nn.LSTMCell(inputs, width)
        self.input, self.state = nn.Linear(width, 4 * width), nn.Linear(width, 4 * width)
        self.classifier = nn.Linear(width, 10)

    def step(self, x, h, c):
        i, f, g, o = (self.input(x) + self.state(h)).chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c

    def forward(self, x):
        for layer in (lambda x, h, c: self.cell(x, (h, c)), self.step):
            h = c = torch.zeros(x.shape[0], self.width, dtype=x.dtype)
            states = []
            for t in range(x.shape[1]):
                h, c = layer(x[:, t], h, c)
                states.append(h)
            x = torch.stack(states, 1)
        return self.classifier(x.mean(1))


class LongSkip(nn.Module):
    """Blocks in a row, and a skip from the first to the last, which crosses every cut between them."""

    def __init__(self, blocks=4, width=32):
        super().__init__()
        self.first = nn.Linear(20, width)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(blocks))
        self.last = nn.Linear(width, 10)

    def forward(self, x):
        first = torch.relu(self.first(x))
        y = first
        for block in self.blocks:
            y = y + block(y)
        return self.last(y + first)


class NormAndDrop(nn.Module):
    """BatchNorm and Dropout, both before and after the middle: state and random numbers in every stage."""

    def __init__(self):
        super().__init__()

        def block(inputs, outputs):
            return [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(), nn.Dropout(0.3)]

        self.features = nn.Sequential(*block(1, 6), *block(6, 6), nn.MaxPool2d(2), *block(6, 8))
        self.last = nn.Linear(8 * 16, 10)

    def forward(self, x):
        return self.last(torch.flatten(self.features(x), 1))
