"""Mixtures of experts with static capacity, written to be read: Switch (one expert per token), GShard's top-2 of all tokens and in
groups, ST-MoE, DeepSeekMoE."""
import math

import torch
from torch import nn
from torch.nn import functional

from attention import merge_heads, split_heads


class Experts(nn.Module):
    """Each token goes to its `chosen` best experts; one that has its `capacity` of tokens takes no more. Also returns
    losses of the router. `from_last`: slots are filled from the last one on. Nothing else differs, but pdc does not know
    such masks, and multiplies with them."""

    def __init__(self, width, hidden, experts, chosen, capacity, from_last=False):
        super().__init__()
        self.experts, self.chosen, self.capacity, self.from_last = experts, chosen, capacity, from_last
        self.router = nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, width, hidden) / math.sqrt(width))
        self.down = nn.Parameter(torch.randn(experts, hidden, width) / math.sqrt(hidden))

    def forward(self, tokens):
        """tokens: [token, width]"""
        logits = self.router(tokens)
        probabilities = logits.softmax(-1)
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
                losses = self.losses(logits, probabilities, choice)
        dispatch = (combine > 0).to(tokens.dtype)
        inputs = torch.einsum("tec,td->ecd", dispatch, tokens)
        outputs = torch.relu(inputs @ self.up) @ self.down
        return torch.einsum("tec,ecd->td", combine, outputs), losses

    def losses(self, logits, probabilities, first):
        """What balances the experts' loads: of each expert the share of tokens that like it best, times the mean of its
        probabilities (Fedus et al. 2021, Switch Transformers)."""
        return [self.experts * (first.mean(0) * probabilities.mean(0)).sum()]

    def slot_of(self, place):
        """[token, slot]: whether it is the token's."""
        if self.from_last:
            return place[:, None] == torch.arange(self.capacity - 1, -1, -1)
        return functional.one_hot(place, self.capacity)


class StableExperts(Experts):
    """ST-MoE: a second loss keeps the router's logits small (Zoph et al. 2022)."""

    def losses(self, logits, probabilities, first):
        return [*super().losses(logits, probabilities, first), logits.logsumexp(-1).square().mean()]


class GroupedExperts(nn.Module):
    """GShard: tokens are routed in `groups`. In each of them an expert has `capacity` slots of its own, so that groups may lie on
    different devices. (GShard leaves out second experts at random; these are always taken.) `chosen`: experts of a token, 1 as in Switch."""

    def __init__(self, width, hidden, experts, capacity, groups, chosen=2):
        super().__init__()
        self.experts, self.capacity, self.groups, self.chosen = experts, capacity, groups, chosen
        self.router = nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, width, hidden) / math.sqrt(width))
        self.down = nn.Parameter(torch.randn(experts, hidden, width) / math.sqrt(hidden))

    def forward(self, tokens):
        """tokens: [token, width]"""
        grouped = tokens.view(self.groups, -1, tokens.shape[-1])
        probabilities = self.router(grouped).softmax(-1)
        gates, best = probabilities.topk(self.chosen, dim=-1)
        if self.chosen > 1:
            gates = gates / gates.sum(-1, keepdim=True)
        choices = [functional.one_hot(best[..., k], self.experts).to(tokens.dtype) for k in range(self.chosen)]
        balance = (choices[0].mean(1) * probabilities.mean(1)).mean()  # over experts, and over groups
        combine, taken = 0, 0
        for k, choice in enumerate(choices):
            place = ((choice.cumsum(1) - 1 + taken) * choice).sum(-1)
            taken = taken + choice.sum(1, keepdim=True) if k else choice.sum(1, keepdim=True)
            fits = (place < self.capacity).to(tokens.dtype)
            slot = functional.one_hot(place.long().clamp(max=self.capacity - 1), self.capacity).to(tokens.dtype)
            combine = combine + torch.einsum("gs,gse,gsc->gsec", gates[..., k] * fits, choice, slot)
        dispatch = (combine > 0).to(tokens.dtype)
        inputs = torch.einsum("gsec,gsm->egcm", dispatch, grouped)
        outputs = torch.relu(inputs.reshape(self.experts, -1, tokens.shape[-1]) @ self.up) @ self.down
        outputs = outputs.view(self.experts, self.groups, self.capacity, -1)
        return torch.einsum("gsec,egcm->gsm", combine, outputs).reshape(tokens.shape), [balance]


class FineGrainedExperts(nn.Module):
    """DeepSeekMoE (Dai et al. 2024): many small experts, of which each token has its `chosen` best, and `shared` ones that all tokens
    have, or none. One loss balances experts, the other one `devices`, which have neighbouring experts."""

    def __init__(self, width, hidden, experts, chosen, capacity, shared, devices):
        super().__init__()
        self.experts, self.chosen, self.capacity, self.shared, self.devices = experts, chosen, capacity, shared, devices
        self.router = nn.Linear(width, experts, bias=False)
        self.gate = nn.Parameter(torch.randn(experts, width, hidden) / math.sqrt(width))
        self.up = nn.Parameter(torch.randn(experts, width, hidden) / math.sqrt(width))
        self.down = nn.Parameter(torch.randn(experts, hidden, width) / math.sqrt(hidden))
        if shared:  # side by side, they are one layer
            self.shared_gate, self.shared_up = (nn.Linear(width, shared * hidden, bias=False) for _ in range(2))
            self.shared_down = nn.Linear(shared * hidden, width, bias=False)

    def forward(self, tokens):
        """tokens: [token, width]"""
        affinities = self.router(tokens).softmax(-1)
        gates, best = affinities.topk(self.chosen, dim=-1)
        choice = functional.one_hot(best, self.experts).to(tokens.dtype)  # [token, choice, expert]
        ranked = choice.transpose(0, 1).reshape(-1, self.experts)  # all best ones, then all second best ones, …
        place = ((ranked.cumsum(0) - 1) * ranked).sum(-1).view(self.chosen, -1).t()
        fits = (place < self.capacity).to(tokens.dtype)
        slot = functional.one_hot(place.long().clamp(max=self.capacity - 1), self.capacity).to(tokens.dtype)
        combine = torch.einsum("tk,tke,tkc->tec", gates * fits, choice, slot)
        inputs = torch.einsum("tec,td->ecd", (combine > 0).to(tokens.dtype), tokens)
        outputs = (functional.silu(inputs @ self.gate) * (inputs @ self.up)) @ self.down
        y = torch.einsum("tec,ecd->td", combine, outputs)
        if self.shared:
            y = self.shared_down(functional.silu(self.shared_gate(tokens)) * self.shared_up(tokens)) + y
        return y, self.losses(choice, affinities)

    def losses(self, choice, affinities):
        loads = choice.mean(0).sum(0) * (self.experts / self.chosen)  # of each expert; 1 if all are equal
        affinity = affinities.mean(0)
        of_devices = loads.view(self.devices, -1).mean(1) * affinity.view(self.devices, -1).sum(1)
        return [(loads * affinity).sum(), of_devices.sum()]


class Dense(nn.Module):
    """One feed-forward layer for all tokens, as large as what a token meets of its experts: what a mixture is compared with."""

    def __init__(self, width, hidden):
        super().__init__()
        self.up = nn.Parameter(torch.randn(width, hidden) / math.sqrt(width))
        self.down = nn.Parameter(torch.randn(hidden, width) / math.sqrt(hidden))

    def forward(self, tokens):
        """tokens: [token, width]"""
        return torch.relu(tokens @ self.up) @ self.down, []


class ExpertsBlock(nn.Module):
    def __init__(self, width, heads, layer, **experts):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.experts = layer(width, **experts)

    def forward(self, x):
        query, key, value = (split_heads(part, self.heads) for part in self.attention(self.ln_1(x)).chunk(3, dim=2))
        mask = torch.triu(torch.full((x.shape[1], x.shape[1]), -1e4), 1).to(x.dtype)
        scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1]) + mask
        x = x + self.projection(merge_heads(scores.softmax(-1) @ value))
        y, losses = self.experts(self.ln_2(x).reshape(-1, x.shape[2]))
        return x + y.view(x.shape), losses


class ExpertsLm(nn.Module):
    """A language model whose blocks have experts, a `layer`, in place of the feed-forward layer: its logits, and each loss of the
    routers, summed over the blocks."""

    def __init__(self, words, width, layers, heads, layer=Experts, **experts):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(ExpertsBlock(width, heads, layer, **experts) for _ in range(layers))
        self.norm, self.classifier = nn.LayerNorm(width), nn.Linear(width, words)

    def forward(self, input_ids):
        x, of_blocks = self.embedding(input_ids), []
        for block in self.blocks:
            x, losses = block(x)
            of_blocks.append(losses)
        return self.classifier(self.norm(x)), *(sum(losses) for losses in zip(*of_blocks))
