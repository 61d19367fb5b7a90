"""Profiles of networks with many layers beside each other, in PipeDream's format: what utils/bench-planner plans.

    python3 utils/wide_profiles.py FOLDER        writes all of them as FOLDER/NAME.txt

Times, parameters and activations are of the sizes that PipeDream's own profiles have. Each number is off by up to 3 %,
as measured ones are, the same on every machine.
"""
import pathlib
import sys


class Random:
    """splitmix64, as numbers in [0, 1): that of test/unit/PlannerScale.h."""

    def __init__(self, seed):
        self.state = seed

    def next(self):
        mask = (1 << 64) - 1
        self.state = (self.state + 0x9E3779B97F4A7C15) & mask
        z = self.state
        z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & mask
        return ((z ^ z >> 31) >> 11) / 9007199254740992.0


class Profile:
    def __init__(self, seed):
        self.random, self.nodes, self.edges = Random(seed), [], []

    def noisy(self, value):
        return value * (0.97 + 0.06 * self.random.next())

    def add(self, name, inputs, forward=0.0, backward=0.0, activation=0, parameters=0):
        """A node; its number is what later nodes take as an input."""
        number = len(self.nodes) + 1
        self.nodes.append(f"node{number} -- {name} -- forward_compute_time={self.noisy(forward):.3f}, "
                          f"backward_compute_time={self.noisy(backward):.3f}, activation_size={float(activation)}, "
                          f"parameter_size={float(parameters)}")
        self.edges += [f"\tnode{i} -- node{number}" for i in inputs]
        return number

    def text(self):
        return "\n".join([*self.nodes, *self.edges]) + "\n"


def gnmt(layers, seed=1):
    """An encoder and a decoder of layers/2 recurrent layers each. Every decoder layer reads the attention's context and its
    own part of the encoder's hidden state, so as many parts as decoder layers lie beside each other."""
    p, each, sequence = Profile(seed), layers // 2, 6291456
    source = p.add("Embedding(32320, 1024)", [], 0.073, 6.949, sequence, 132382720)
    x = p.add("EmuBidirLSTM", [source], 5.247, 8.843, 2 * sequence, 67174400)
    for layer in range(2, each):
        dropped = p.add("Dropout(p=0.2)", [x], 0.06, 0.12, sequence)
        lstm = p.add("LSTM", [dropped], 2.491, 4.203, sequence + 262144, 33587200 if layer > 2 else 50364416)
        output = p.add("__getitem__(0)", [lstm], activation=sequence)
        x = p.add("Add", [output, x], activation=sequence) if layer > 2 else output
    target = p.add("Embedding(32320, 1024)", [], 0.066, 0.328, sequence, 132382720)
    hidden = p.add("hidden", [])
    x = p.add("RecurrentAttention", [target, p.add("__getitem__(0)", [hidden]), x], 6.83, 14.31, 12845056, 71350272)
    context = p.add("__getitem__(2)", [x], activation=131072)
    x = p.add("__getitem__(0)", [x], activation=6160384)
    for layer in range(1, each):
        joined = p.add("Concat(2)", [p.add("Dropout(p=0.2)", [x], 0.06, 0.176, 6160384), context], activation=6160384)
        part = p.add(f"__getitem__({layer})", [hidden])
        lstm = p.add("LSTM", [joined, part], 3.149, 5.3, 6422528, 50364416)
        output = p.add("__getitem__(0)", [lstm], activation=6160384)
        x = p.add("Add", [output, x], activation=6160384) if layer > 1 else output
    p.add("Classifier", [x], 5.609, 1.227, 196608000, 132512000)
    return p.text()


def branches(lengths, seed=1):
    """Towers of these lengths between a stem and a join: as many lie beside each other. A tower's layers grow heavier and
    their activations smaller, as in a convolutional network."""
    p = Profile(seed)
    stem, ends = p.add("Conv2d", [], 1.2, 2.4, 25690112, 37632), []
    for number, length in enumerate(lengths):
        x, scale = stem, 0.6 + 0.8 * p.random.next()
        for layer in range(length):
            place = layer / length
            megabytes, parameters = 2 ** (4 - 5 * place), 4e4 * 10 ** (2 * place)
            x = p.add(f"Conv2d(tower {number})", [x], scale * 0.9, scale * 1.8, int(megabytes * 2**20 * scale), int(parameters * scale))
        ends.append(x)
    x = p.add("Concat(1)", ends, activation=4194304)
    x = p.add("Linear", [x], 0.8, 1.6, 262144, 16777216)
    p.add("Linear", [x], 0.2, 0.4, 262144, 4096000)
    return p.text()


def cells(width, count, seed=1):
    """Cells as in NASNet: `width` blocks beside each other, each the sum of two operations on one of the two cells before,
    and their concatenation. Every third cell halves the images."""
    p = Profile(seed)
    before = x = p.add("Conv2d", [], 0.9, 1.8, 12845056, 864)
    activation, parameters = 12845056, 20000
    for number in range(count):
        if number and number % 3 == 0:
            activation, parameters = activation // 2, parameters * 4
        ends = []
        for block in range(width):
            inputs = [x, before] if block % 2 else [x, x]
            cost = (0.2 + 0.6 * p.random.next())
            sides = [p.add(f"Separable(cell {number}, block {block})", [i], cost, 2 * cost, activation // width, parameters)
                     for i in (inputs if block < 2 else inputs[1:])]
            ends.append(p.add("Add", sides, 0.02, 0.02, activation // width) if len(sides) > 1 else sides[0])
        before, x = x, p.add("Concat(1)", ends, 0.05, 0.05, activation)
    p.add("Linear", [p.add("AvgPool", [x], 0.02, 0.02, 65536)], 0.1, 0.2, 131072, 4096000)
    return p.text()


def profiles():
    """Name and text of forty profiles, ten of each kind, by growing width or length."""
    for layers in (8, 10, 12, 14, 16, 20, 22, 24, 28, 32):
        yield f"gnmt-{layers}", gnmt(layers)
    for shorter, longer in ((8, 12), (12, 20), (16, 30), (24, 40), (32, 56), (48, 64), (64, 90), (80, 120), (100, 160), (128, 200)):
        yield f"branches-{shorter}-{longer}", branches((shorter, longer))
    for lengths in ((4, 6, 9), (6, 9, 14), (8, 12, 20), (10, 16, 24), (12, 20, 28), (16, 24, 32), (20, 28, 40), (24, 36, 48), (32, 44, 60),
                    (40, 52, 72)):
        yield "branches-" + "-".join(map(str, lengths)), branches(lengths)
    for width, count in ((3, 12), (4, 12), (5, 9), (6, 9), (7, 9), (8, 9), (9, 6), (10, 6), (12, 6), (14, 6)):
        yield f"cells-{width}x{count}", cells(width, count)


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in profiles():
        (folder / f"{name}.txt").write_text(text)
