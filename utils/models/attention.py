"""BERT, GPT-2 and a decoder like Llama, written to be read."""
import math

import torch
from torch import nn
from torch.nn import functional


def split_heads(x, heads):
    """[batch, time, width] to [batch, head, time, width / heads]."""
    return x.view(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)


def merge_heads(x):
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1)


class BertLayer(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.output = nn.Linear(width, width)
        self.attention_norm, self.norm = nn.LayerNorm(width, 1e-12), nn.LayerNorm(width, 1e-12)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, mask):
        query, key, value = (split_heads(part(x), self.heads) for part in (self.query, self.key, self.value))
        scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1]) + mask
        context = merge_heads(self.dropout(scores.softmax(-1)) @ value)
        x = self.attention_norm(x + self.dropout(self.output(context)))
        return self.norm(x + self.dropout(self.down(functional.gelu(self.up(x)))))


class Bert(nn.Module):
    """A masked language model: every token is predicted; the decoder is the embedding (tied) with a bias of its own.

    `attention_mask` is 1 for tokens and 0 for padding.
    """

    def __init__(self, words, width, layers, heads, positions, dropout=0.1):
        super().__init__()
        self.register_buffer("position_ids", torch.arange(positions)[None])
        self.word = nn.Embedding(words, width)
        self.position = nn.Embedding(positions, width)
        self.token_type = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, 1e-12)
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(BertLayer(width, heads, dropout) for _ in range(layers))
        self.transform, self.transform_norm = nn.Linear(width, width), nn.LayerNorm(width, 1e-12)
        self.decoder = nn.Linear(width, words)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)
        self.decoder.weight = self.word.weight

    def forward(self, input_ids, attention_mask):
        positions = self.position_ids[:, :input_ids.shape[1]]
        x = self.word(input_ids) + self.position(positions) + self.token_type(torch.zeros_like(input_ids))
        x = self.dropout(self.norm(x))
        mask = (1.0 - attention_mask[:, None, None, :].to(x.dtype)) * -10000.0
        for layer in self.layers:
            x = layer(x, mask)
        return self.decoder(self.transform_norm(functional.gelu(self.transform(x))))


class GptBlock(nn.Module):
    def __init__(self, width, heads, positions, dropout):
        super().__init__()
        self.heads = heads
        self.register_buffer("mask", torch.tril(torch.ones(positions, positions, dtype=torch.bool)))
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        time = x.shape[1]
        query, key, value = (split_heads(part, self.heads) for part in self.attention(self.ln_1(x)).chunk(3, dim=2))
        scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
        scores = scores.masked_fill(~self.mask[:time, :time], torch.finfo(scores.dtype).min)
        x = x + self.dropout(self.projection(merge_heads(self.dropout(scores.softmax(-1)) @ value)))
        return x + self.dropout(self.down(functional.gelu(self.up(self.ln_2(x)), approximate="tanh")))


class Gpt2(nn.Module):
    """Predicts the next token at every place; the classifier is the embedding (tied)."""

    def __init__(self, words, width, layers, heads, positions, dropout=0.1):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(words, width), nn.Embedding(positions, width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(GptBlock(width, heads, positions, dropout) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)
        self.head.weight = self.wte.weight

    def forward(self, input_ids):
        x = self.dropout(self.wte(input_ids) + self.wpe(torch.arange(input_ids.shape[1], device=input_ids.device)))
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln_f(x))


class RmsNorm(nn.Module):
    def __init__(self, width, epsilon=1e-5):
        super().__init__()
        self.weight, self.epsilon = nn.Parameter(torch.ones(width)), epsilon

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.epsilon) * self.weight


def rotate(x, cos, sin):
    """Rotary embedding of [batch, head, time, width]: pairs are a half of the width apart."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class LlamaBlock(nn.Module):
    """Grouped-query attention: `heads / groups` queries share a key and a value. SwiGLU after it."""

    def __init__(self, width, heads, groups, hidden):
        super().__init__()
        self.heads, self.groups, head = heads, groups, width // heads
        self.attention_norm, self.ffn_norm = RmsNorm(width), RmsNorm(width)
        self.wq, self.wo = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.wk, self.wv = (nn.Linear(width, groups * head, bias=False) for _ in range(2))
        self.w1, self.w3 = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.w2 = nn.Linear(hidden, width, bias=False)

    def forward(self, x, cos, sin, mask):
        y = self.attention_norm(x)
        query = rotate(split_heads(self.wq(y), self.heads), cos, sin)
        key, value = rotate(split_heads(self.wk(y), self.groups), cos, sin), split_heads(self.wv(y), self.groups)
        key, value = self.shared(key), self.shared(value)
        scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1]) + mask
        x = x + self.wo(merge_heads(scores.softmax(-1) @ value))
        y = self.ffn_norm(x)
        return x + self.w2(functional.silu(self.w1(y)) * self.w3(y))

    def shared(self, x):
        """One copy of each key or value per query of its group."""
        batch, groups, time, width = x.shape
        x = x[:, :, None].expand(batch, groups, self.heads // groups, time, width)
        return x.reshape(batch, self.heads, time, width)


class Llama(nn.Module):
    def __init__(self, words, width, layers, heads, groups, hidden, positions):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.layers = nn.ModuleList(LlamaBlock(width, heads, groups, hidden) for _ in range(layers))
        self.norm, self.output = RmsNorm(width), nn.Linear(width, words, bias=False)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)
        half = width // heads // 2
        angles = torch.outer(torch.arange(positions), 10000.0 ** (-torch.arange(half) / half)).repeat(1, 2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())
        self.register_buffer("mask", torch.full((positions, positions), float("-inf")).triu(1))

    def forward(self, input_ids):
        time = input_ids.shape[1]
        x = self.embedding(input_ids)
        for layer in self.layers:
            x = layer(x, self.cos[:time], self.sin[:time], self.mask[:time, :time])
        return self.output(self.norm(x))
