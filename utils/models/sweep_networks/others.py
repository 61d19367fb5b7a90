"""Attention, experts, graphs, tables, and multilayer perceptrons."""
import torch
from torch import nn

from .case import Case, images, network


@network("Transformer encoder of PyTorch")
def transformer_encoder():
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    return Case(nn.Sequential(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(16, 5)),
                {"x": torch.randn(4, 6, 16)}, training=True)


@network("Transformer encoder of PyTorch, before norms, fresh")
def transformer_encoder_fresh():
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True, norm_first=True, activation="gelu")
    return Case(nn.Sequential(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(16, 5)),
                {"x": torch.randn(4, 6, 16)}, training=True, fresh=True)


@network("Transformer of PyTorch, encoder and decoder")
def transformer():
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Transformer(16, 2, 1, 1, 32, dropout=0.0, batch_first=True)
            self.head = nn.Linear(16, 5)

        def forward(self, source, target):
            mask = nn.Transformer.generate_square_subsequent_mask(6)
            return self.head(self.net(source, target, tgt_mask=mask))
    return Case(Both(), {"source": torch.randn(4, 8, 16), "goal": torch.randn(4, 6, 16)}, training=True)


@network("Attention with a learned scale, rotary positions")
def learned_scale():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out, self.head = nn.Linear(16, 48), nn.Linear(16, 16), nn.Linear(16, 5)
            self.log_scale = nn.Parameter(torch.tensor(-0.7))
            angles = torch.arange(6)[:, None] / 100 ** (torch.arange(4) / 4)
            self.register_buffer("cos", torch.cat([angles, angles], -1).cos())
            self.register_buffer("sin", torch.cat([angles, angles], -1).sin())

        def turned(self, x):
            return x * self.cos + torch.cat([-x[..., 4:], x[..., :4]], -1) * self.sin

        def forward(self, x):
            q, k, v = self.qkv(x).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)
            scores = self.turned(q) @ self.turned(k).transpose(-1, -2) * self.log_scale.exp()
            return self.head(self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2)))
    return Case(Attention(), {"x": torch.randn(4, 6, 16)})


@network("Causal attention, mask as a buffer, fixed positions")
def causal():
    class Causal(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.attention = nn.Embedding(32, 16), nn.MultiheadAttention(16, 2, batch_first=True)
            self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 32)
            self.register_buffer("mask", torch.full((6, 6), float("-inf")).triu(1))
            self.register_buffer("positions", torch.randn(6, 16))

        def forward(self, x):
            x = self.words(x) + self.positions
            y = self.norm(x)
            return self.head(x + self.attention(y, y, y, attn_mask=self.mask, need_weights=False)[0])
    return Case(Causal(), {"x": torch.randint(0, 32, (4, 6))})


@network("Mixture of experts, all computed")
def experts():
    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate = nn.Linear(8, 3)
            self.up, self.down = nn.Parameter(torch.randn(3, 8, 16) / 4), nn.Parameter(torch.randn(3, 16, 8) / 4)
            self.head = nn.Linear(8, 5)

        def forward(self, x):
            weight, choice = self.gate(x).softmax(-1).topk(2)
            share = torch.zeros_like(self.gate(x)).scatter(1, choice, weight)
            each = torch.relu(torch.einsum("bi,eij->bej", x, self.up))
            return self.head(torch.einsum("bej,ejk,be->bk", each, self.down, share))
    return Case(Experts(), {"x": torch.randn(4, 8)})


@network("EmbeddingBag")
def embedding_bag():
    class Bag(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.head = nn.EmbeddingBag(32, 8, mode="mean"), nn.Linear(8, 5)

        def forward(self, x):
            return self.head(self.words(x))
    return Case(Bag(), {"x": torch.randint(0, 32, (4, 6))})


@network("Factorisation of users and items")
def factorisation():
    class Factors(nn.Module):
        def __init__(self):
            super().__init__()
            self.users, self.items = nn.Embedding(16, 8), nn.Embedding(16, 8)
            self.bias = nn.Embedding(16, 1)

        def forward(self, user, item):
            return (self.users(user) * self.items(item)).sum(-1, keepdim=True) + self.bias(item)
    return Case(Factors(), {"user": torch.randint(0, 16, (4,)), "item": torch.randint(0, 16, (4,))}, "mse")


@network("Click prediction (DLRM)")
def dlrm():
    class Dlrm(nn.Module):
        def __init__(self):
            super().__init__()
            self.tables = nn.ModuleList(nn.Embedding(16, 8) for _ in range(3))
            self.bottom, self.top = nn.Sequential(nn.Linear(4, 8), nn.ReLU()), nn.Linear(14, 2)
            self.register_buffer("pairs", torch.triu_indices(4, 4, 1))

        def forward(self, dense, sparse):
            x = self.bottom(dense)
            rows = torch.stack([x, *[table(sparse[:, i]) for i, table in enumerate(self.tables)]], 1)
            products = rows @ rows.transpose(1, 2)
            return self.top(torch.cat([x, products[:, self.pairs[0], self.pairs[1]]], 1))
    return Case(Dlrm(), {"dense": torch.randn(4, 4), "sparse": torch.randint(0, 16, (4, 3))})


@network("Points (PointNet)")
def pointnet():
    class PointNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.each = nn.Sequential(nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16), nn.ReLU(), nn.Conv1d(16, 16, 1))
            self.head = nn.Linear(16, 5)

        def forward(self, x):
            return self.head(self.each(x).max(-1).values)
    return Case(PointNet(), {"x": torch.randn(4, 3, 16)}, training=True)


@network("Graph convolution, dense adjacency")
def graph_dense():
    class Graph(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(4, 16), nn.Linear(16, 5)

        def forward(self, x, adjacency):
            x = torch.relu(adjacency @ self.first(x))
            return self.second(adjacency @ x)
    return Case(Graph(), {"x": torch.randn(4, 6, 4), "adjacency": torch.rand(4, 6, 6).softmax(-1)})


@network("Graph attention, edges gathered and scattered")
def graph_edges():
    class Graph(nn.Module):
        def __init__(self):
            super().__init__()
            self.message, self.head = nn.Linear(8, 16), nn.Linear(16, 5)
            self.register_buffer("source", torch.tensor([0, 1, 2, 3, 4, 5, 0]))
            self.register_buffer("goal", torch.tensor([1, 2, 3, 4, 5, 0, 3]))

        def forward(self, x):
            messages = torch.relu(self.message(torch.cat([x[:, self.source], x[:, self.goal]], -1)))
            summed = torch.zeros(x.shape[0], 6, 16).index_add(1, self.goal, messages)
            return self.head(summed)
    return Case(Graph(), {"x": torch.randn(4, 6, 4)})


@network("MLP, mixed activations")
def mlp():
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.SELU(), nn.Linear(16, 16), nn.GLU(), nn.LayerNorm(8),
                          nn.Linear(8, 16), nn.CELU(), nn.RMSNorm(16), nn.Linear(16, 16), nn.Softsign(), nn.Linear(16, 5))
    return Case(model, {"x": torch.randn(4, 8)})


@network("MLP that ends in LogSoftmax")
def log_softmax():
    return Case(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 5), nn.LogSoftmax(-1)), {"x": torch.randn(4, 8)})


@network("Bilinear and cosine features")
def bilinear():
    class Features(nn.Module):
        def __init__(self):
            super().__init__()
            self.pair, self.waves, self.head = nn.Bilinear(8, 8, 16), nn.Linear(16, 16), nn.Linear(32, 5)

        def forward(self, a, b):
            waves = self.waves(self.pair(a, b))
            return self.head(torch.cat([waves.cos(), waves.sin()], -1))
    return Case(Features(), {"a": torch.randn(4, 8), "b": torch.randn(4, 8)})


@network("MLP-Mixer")
def mixer():
    class Mixer(nn.Module):
        def __init__(self):
            super().__init__()
            self.patches = nn.Conv2d(3, 16, 8, 8)
            self.n1, self.n2, self.n3 = nn.LayerNorm(16), nn.LayerNorm(16), nn.LayerNorm(16)
            self.across = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
            self.within = nn.Sequential(nn.Linear(16, 32), nn.GELU(approximate="tanh"), nn.Linear(32, 16))
            self.head = nn.Linear(16, 5)

        def forward(self, x):
            x = self.patches(x).flatten(2).transpose(1, 2)
            x = x + self.across(self.n1(x).transpose(1, 2)).transpose(1, 2)
            x = x + self.within(self.n2(x))
            return self.head(self.n3(x).mean(1))
    return Case(Mixer(), images())


@network("Frozen backbone (requires_grad=False)")
def frozen_backbone():
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 5))
    model[0].requires_grad_(False)
    return Case(model, {"x": torch.randn(4, 8)}, flags=("--freeze=^0[.]",))
