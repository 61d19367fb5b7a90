"""Mixtures of experts with static capacity: Switch (one expert per token) and GShard's top-2, written to be read."""
import math

import torch
from torch import nn
from torch.nn import functional

from attention import merge_heads, split_heads


class Experts(nn.Module):
    """Each token goes to its `chosen` best experts; one that has its `capacity` of tokens takes no more. Also returns the
    loss that balances the experts' loads. `from_last`: slots are filled from the last one on. Nothing else differs, but
    pdc does not know such masks, and multiplies with them."""

    def __init__(self, width, hidden, experts, chosen, capacity, from_last=False):
        super().__init__()
        self.experts, self.chosen, self.capacity, self.from_last = experts, chosen, capacity, from_last
        self.router = nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, width, hidden) / math.sqrt(width))
        self.down = nn.Parameter(torch.randn(experts, hidden, width) / math.sqrt(hidden))

    def forward(self, tokens):
        """tokens: [token, width]"""
        probabilities = self.router(tokens).softmax(-1)
        gates, best = probabilities.topk(self.chosen, dim=-1)
        if self.chosen > 1:
            gates = gates / gates.sum(-1, keepdim=True)
        combine, taken = 0, 0
        for k in range(self.chosen):
            choice = functional.one_hot(best[:, k], self.experts).to(tokens.dtype)
            place = ((choice.cumsum(0) - 1 + taken) * choice).sum(-1)
            taken = taken + choice.sum(0, keepdim=True)
            fits = (place < self.capacity).to(tokens.dtype)
            slot = self.slot_of(place.long().clamp(max=self.capacity - 1)).to(tokens.dtype)
            combine = combine + torch.einsum("t,te,tc->tec", gates[:, k] * fits, choice, slot)
            if k == 0:
                balance = self.experts * (choice.mean(0) * probabilities.mean(0)).sum()
        dispatch = (combine > 0).to(tokens.dtype)
        inputs = torch.einsum("tec,td->ecd", dispatch, tokens)
        outputs = torch.relu(inputs @ self.up) @ self.down
        return torch.einsum("tec,ecd->td", combine, outputs), balance

    def slot_of(self, place):
        """[token, slot]: whether it is the token's."""
        if self.from_last:
            return place[:, None] == torch.arange(self.capacity - 1, -1, -1)
        return functional.one_hot(place, self.capacity)


class ExpertsBlock(nn.Module):
    def __init__(self, width, heads, **experts):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.experts = Experts(width, **experts)

    def forward(self, x):
        query, key, value = (split_heads(part, self.heads) for part in self.attention(self.ln_1(x)).chunk(3, dim=2))
        mask = torch.triu(torch.full((x.shape[1], x.shape[1]), -1e4), 1).to(x.dtype)
        scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1]) + mask
        x = x + self.projection(merge_heads(scores.softmax(-1) @ value))
        y, balance = self.experts(self.ln_2(x).reshape(-1, x.shape[2]))
        return x + y.view(x.shape), balance


class ExpertsLm(nn.Module):
    """A language model whose blocks have experts in place of the feed-forward layer: (logits, balancing loss)."""

    def __init__(self, words, width, layers, heads, **experts):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(ExpertsBlock(width, heads, **experts) for _ in range(layers))
        self.norm, self.classifier = nn.LayerNorm(width), nn.Linear(width, words)

    def forward(self, input_ids):
        x, total = self.embedding(input_ids), 0
        for block in self.blocks:
            x, balance = block(x)
            total = total + balance
        return self.classifier(self.norm(x)), total
