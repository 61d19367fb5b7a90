"""Recurrent networks."""
import torch
from torch import nn

from .case import Case, network


class Recurrent(nn.Module):
    def __init__(self, layer, features=16, time_axis=1):
        super().__init__()
        self.rnn, self.head, self.time_axis = layer, nn.Linear(features, 5), time_axis

    def forward(self, x):
        return self.head(self.rnn(x)[0].select(self.time_axis, -1))


def recurrent(layer, features=16, time_major=False, **more):
    x = torch.randn(*((6, 4) if time_major else (4, 6)), 8)
    flags = ("--batch-axis=x:1",) if time_major else ()
    return Case(Recurrent(layer, features, 0 if time_major else 1), {"x": x}, flags=flags, **more)


@network("LSTM")
def lstm():
    return recurrent(nn.LSTM(8, 16, batch_first=True))


@network("LSTM, time first")
def lstm_time_major():
    return recurrent(nn.LSTM(8, 16), time_major=True)


@network("LSTM, symbolic batch")
def lstm_dynamic():
    return recurrent(nn.LSTM(8, 16, batch_first=True), dynamic=True)


@network("LSTM, two layers, both directions")
def lstm_bidirectional():
    return recurrent(nn.LSTM(8, 8, 2, batch_first=True, bidirectional=True))


@network("LSTM with projection")
def lstm_projection():
    return recurrent(nn.LSTM(8, 16, batch_first=True, proj_size=4), features=4)


@network("GRU")
def gru():
    return recurrent(nn.GRU(8, 16, batch_first=True))


@network("GRU, two layers, time first")
def gru_time_major():
    return recurrent(nn.GRU(8, 16, 2), time_major=True)


@network("RNN, tanh")
def rnn():
    return recurrent(nn.RNN(8, 16, batch_first=True))


@network("RNN, ReLU, time first")
def rnn_relu():
    return recurrent(nn.RNN(8, 16, nonlinearity="relu"), time_major=True)


@network("LSTM with its state as an input")
def lstm_state():
    class Stateful(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.head = nn.LSTM(8, 16, batch_first=True), nn.Linear(16, 5)

        def forward(self, x, h, c):
            return self.head(self.rnn(x, (h, c))[0][:, -1])
    inputs = {"x": torch.randn(4, 6, 8), "h": torch.randn(1, 4, 16), "c": torch.randn(1, 4, 16)}
    return Case(Stateful(), inputs, flags=("--batch-axis=h:1", "--batch-axis=c:1"))


@network("LSTM cells in a loop of Python, a learned first state")
def lstm_cells():
    class Cells(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.head = nn.LSTMCell(8, 16), nn.Linear(16, 5)
            self.h, self.c = nn.Parameter(torch.randn(1, 16)), nn.Parameter(torch.randn(1, 16))

        def forward(self, x):
            h, c = self.h.expand(x.shape[0], -1), self.c.expand(x.shape[0], -1)
            for step in range(4):
                h, c = self.cell(x[:, step], (h, c))
            return self.head(h)
    return Case(Cells(), {"x": torch.randn(4, 4, 8)})


@network("Words through embedding, LSTM, tied classifier")
def tied_lstm():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.rnn = nn.Embedding(32, 16), nn.LSTM(16, 16, batch_first=True)
            self.head = nn.Linear(16, 32)
            self.head.weight = self.words.weight

        def forward(self, x):
            return self.head(self.rnn(self.words(x))[0])
    return Case(Tied(), {"x": torch.randint(0, 32, (4, 6))})


@network("CRNN (convolutions, then a GRU)")
def crnn():
    class Crnn(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2))
            self.rnn, self.head = nn.GRU(32, 8, bidirectional=True, batch_first=True), nn.Linear(16, 5)

        def forward(self, x):
            x = self.conv(x).permute(0, 3, 1, 2).flatten(2)
            return self.head(self.rnn(x)[0])
    return Case(Crnn(), {"x": torch.randn(4, 1, 8, 12)}, training=True)
