"""Networks of LSTM layers, written to be read."""
import torch
from torch import nn


class AwdLm(nn.Module):
    """A language model like AWD-LSTM: three LSTM layers, the classifier is the embedding (tied)."""

    def __init__(self, words, width, hidden, dropout=0.4):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        sizes = [width, hidden, hidden, width]
        self.layers = nn.ModuleList(nn.LSTM(i, o, batch_first=True) for i, o in zip(sizes, sizes[1:]))
        self.dropout = nn.Dropout(dropout)
        self.decoder = nn.Linear(width, words)
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)
        self.decoder.weight = self.embedding.weight

    def forward(self, input_ids):
        x = self.dropout(self.embedding(input_ids))
        for layer in self.layers:
            x = self.dropout(layer(x)[0])
        return self.decoder(x)


class LstmLm(AwdLm):
    """The same layers, with a classifier that shares no weights with the embedding."""

    def __init__(self, words, width, hidden, dropout=0.2):
        super().__init__(words, width, hidden, dropout)
        self.decoder = nn.Linear(width, words)


class Attention(nn.Module):
    """Bahdanau's, normalised: the score of a pair is a direction, `scale` long, times tanh(query + key)."""

    def __init__(self, width):
        super().__init__()
        self.query, self.key = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.direction = nn.Parameter(torch.empty(width).uniform_(-0.1, 0.1))
        self.bias, self.scale = nn.Parameter(torch.zeros(width)), nn.Parameter(torch.tensor([width ** -0.5]))

    def forward(self, queries, encoded):
        pairs = torch.tanh(self.query(queries)[:, :, None] + self.key(encoded)[:, None] + self.bias)
        direction = self.direction * (self.scale / self.direction.norm())
        return torch.softmax(pairs @ direction, dim=-1) @ encoded


class Gnmt(nn.Module):
    """Google's translation network: `layers` LSTM layers, half of them in the encoder, whose first reads both ways; the
    decoder attends with the output of its first layer; layers from the third on (encoder) and the second (decoder) add
    their input to their output.
    """

    def __init__(self, words, width, layers, dropout=0.2):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.source, self.target = nn.Embedding(words, width), nn.Embedding(words, width)
        encoder = [nn.LSTM(width, width, batch_first=True, bidirectional=True), nn.LSTM(2 * width, width, batch_first=True)]
        encoder += [nn.LSTM(width, width, batch_first=True) for _ in range(layers // 2 - 2)]
        self.encoder = nn.ModuleList(encoder)
        self.attention = Attention(width)
        decoder = [nn.LSTM(width, width, batch_first=True)]
        decoder += [nn.LSTM(2 * width, width, batch_first=True) for _ in range(layers // 2 - 1)]
        self.decoder = nn.ModuleList(decoder)
        self.classifier = nn.Linear(width, words)

    def forward(self, source, target):
        x = self.dropout(self.source(source))
        for i, layer in enumerate(self.encoder):
            y = layer(self.dropout(x))[0]
            x = x + y if i >= 2 else y
        encoded, x = x, self.decoder[0](self.dropout(self.target(target)))[0]
        context = self.attention(x, encoded)
        for i, layer in enumerate(self.decoder[1:]):
            y = layer(self.dropout(torch.cat((x, context), dim=2)))[0]
            x = x + y if i >= 1 else y
        return self.classifier(x)


class S2vt(nn.Module):
    """Sequence to sequence, video to text: one LSTM layer reads features of frames, then zeros; the next reads its output
    beside zeros, then beside the words so far. The words follow the frames in time.
    """

    def __init__(self, features, words, width, hidden, dropout=0.5):
        super().__init__()
        self.project, self.embedding = nn.Linear(features, width), nn.Embedding(words, width)
        self.video = nn.LSTM(width, hidden, batch_first=True)
        self.caption = nn.LSTM(hidden + width, hidden, batch_first=True)
        self.classifier = nn.Linear(hidden, words)
        self.dropout = nn.Dropout(dropout)

    def forward(self, frames, captions):
        video, text = self.dropout(self.project(frames)), self.dropout(self.embedding(captions))
        y = self.video(torch.cat((video, torch.zeros_like(text)), dim=1))[0]
        y = self.caption(torch.cat((y, torch.cat((torch.zeros_like(video), text), dim=1)), dim=2))[0]
        return self.classifier(self.dropout(y[:, frames.shape[1]:]))
