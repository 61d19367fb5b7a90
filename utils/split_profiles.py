"""Transformers in several splits, as cost graphs, and the clusters that they are planned for: what utils/bench-planner plans.

    python3 utils/split_profiles.py FOLDER       writes all of them as FOLDER/NAME.json

Nobody measured these times. They follow from the sizes of a model (hidden size h, sequences of s tokens, one sequence per
minibatch, two bytes per number) and of a device:

- Operations of a layer's forward: 6·s·h² for queries, keys and values, 4·s²·h + 2·s·h² for attention and its projection,
  8·s·h² for each half of the feed-forward part. Gradients of inputs and of weights take as many each.
- Bytes that a layer saves, per number of a [s, h] activation: 10 whole and 24 in parts (Korthikanti et al., arXiv:2205.05198,
  without attention's own matrices, as in fused kernels).
- A byte of parameters has one of gradients and six of the optimizer's state: 16 bytes per parameter in all.
- Members of a team tell each other (t-1)/t of an activation, each way, at the speed of a device's link: twice per sum, and
  under sp for each of queries, keys, values and results.
- Products on smaller parts run at a smaller share of the peak: 2 % less for each halving.

Each time is off by up to 3 %, as measured ones are, the same on every machine.
"""
import json
import pathlib
import sys

from wide_profiles import Random

flops_per_ms, link_bytes_per_ms = 150e9, 300e6  # what large products reach on a device; a device's link

kinds = ["qkv", "attention", "up", "down"]


def layer(kind, h, s):
    """Operations forward, parameters, bytes saved whole and in parts per minibatch, numbers that leave (their part?)."""
    activation = s * h
    return {"qkv": (6 * s * h * h, 3 * h * h, 4 * activation, 6 * activation, 3 * activation),
            "attention": (4 * s * s * h + 2 * s * h * h, h * h, activation, 2 * activation, activation),
            "up": (8 * s * h * h, 4 * h * h, 4 * activation, 8 * activation, 4 * activation),
            "down": (8 * s * h * h, 4 * h * h, activation, 8 * activation, activation)}[kind]


def parse(split):
    family, _, members = split.partition("#")[0].partition(":")
    return family, int(members or 1)


def team_ms(family, t, kind, h, s):
    """What members wait for each other in a node's forward, and in its backward."""
    share_ms = (t - 1) / t * 2 * s * h / link_bytes_per_ms  # of one activation
    if family in ("tp", "tps"):
        return 2 * share_ms if kind in ("attention", "down") else 0
    if family == "sp":  # parts go from positions to heads and back
        return (3 if kind == "qkv" else 1 if kind == "attention" else 0) * share_ms / t
    return 0


def node(name, kind, split, h, s, noise):
    family, t = split
    operations, parameters, whole, parts, _ = layer(kind, h, s)
    halvings = t.bit_length() - 1
    ms = noise * operations / flops_per_ms / t * (1 + 0.02 * halvings)
    waits = noise * team_ms(family, t, kind, h, s)
    own = 2 * parameters // (t if family in ("tp", "tps") else 1)
    # Every member has a term of the gradients of what is whole; the optimizer reads and writes 16 bytes per parameter.
    update = own * 8 / 1.5e9 + (2 * (t - 1) / t * own / link_bytes_per_ms if family == "sp" else 0)
    return {"name": name, "forward_ms": ms + waits, "input_gradient_ms": ms + waits, "weight_gradient_ms": ms, "update_ms": update,
            "parameter_bytes": own, "saved_bytes": parts // t + (whole // t if family in ("sp", "tps") else whole),
            "forward_team_ms": waits, "backward_team_ms": waits}


def graph(layers, h, s, split, seed=1):
    """A member's graph: four nodes a layer, residuals around the first two and the last two."""
    random, family = Random(seed), parse(split)
    noises = [0.97 + 0.06 * random.next() for _ in range(4 * layers)]
    nodes, tensors, count = [], [], 4 * layers
    for i in range(count):
        kind = kinds[i % 4]
        nodes.append(node(f"layer{i // 4}.{kind}", kind, family, h, s, noises[i]))
        if i + 1 == count:
            break
        in_parts = family[0] in ("sp", "tps") or (family[0] == "tp" and kind in ("qkv", "up"))
        sent = 2 * layer(kind, h, s)[4]
        tensor = {"name": f"{nodes[i]['name']}.out", "from": i, "to": [i + 1] + ([i + 2] if i % 2 and i + 2 < count else []),
                  "bytes": sent // family[1] if in_parts else sent, "has_gradient": True}
        tensors.append({**tensor, **({"part": True} if in_parts else {})})
    return {"model": f"transformer-{layers}x{h}", "cost_source": "generated", **({} if split == "none" else {"split": split}),
            "nodes": nodes, "tensors": tensors}


def joined(layers, h, s, splits):
    """The graph of the first split with those of the others."""
    first, *others = [graph(layers, h, s, split) for split in splits]
    return {**first, **({"divided": others} if others else {})}


def cluster(counts, bandwidths, memory):
    levels = [{"name": f"level{k + 1}", "count": count, "bandwidth_bytes_per_s": bandwidth, "latency_s": 5e-6}
              for k, (count, bandwidth) in enumerate(zip(counts, bandwidths))]
    return {"levels": levels, "device": {"name": "device", "memory_bytes": memory}}


gpt3_splits = ["none", "tp:2", "tp:4", "tp:8", "sp:2", "sp:4", "sp:8", "tps:8"]
small_splits = ["none", "tp:2", "tp:4", "tp:8", "sp:2", "sp:4"]


def gpt3(splits=gpt3_splits):
    """GPT-3 of 175 billion parameters: 96 layers, h = 12,288, sequences of 2,048."""
    return joined(96, 12288, 2048, splits)


def small(splits=small_splits):
    """25 layers, h = 4,096: 5 billion parameters in 100 nodes."""
    return joined(25, 4096, 2048, splits)


def clusters():
    """Name and cluster. Devices have links of 300 GB/s, machines of eight 200 Gbit/s, racks of 16 machines a half of those."""
    gib = 1 << 30
    for memory in (80, 16, 8):
        yield f"flat-{memory}", cluster([64], [25e9], memory * gib)
        yield f"machines-{memory}", cluster([8, 8], [300e9, 200e9], memory * gib)
    yield "racks-80", cluster([8, 16, 8], [300e9, 200e9, 1.6e12], 80 * gib)


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, made in [("gpt3", gpt3()), ("gpt3-whole", gpt3(["none"])), ("small", small()), ("small-whole", small(["none"])), *clusters()]:
        (folder / f"{name}.json").write_text(json.dumps(made))
