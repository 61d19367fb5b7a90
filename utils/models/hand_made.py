"""hand_made.py NAME FOLDER [TOKENS]: writes FOLDER/model.onnx, a small network with its loss inside (`bytes` has logits), and FOLDER/data, 64
samples for it, of so many tokens.

What each network has that a cut could get wrong:

    skips       values that cross several stages, used again and again
    tied        a matrix that is both embedding and classifier, another one that three layers use
    two-losses  an auxiliary classifier in the middle, with a loss of its own
    dropout     random masks in every layer
    batch-norm  running statistics in every layer, a gradient that depends on the whole minibatch
    wide        convolutions between whole blocks of channels, a transposed one and a residual sum among them
    two-ways    recurrent layers: an LSTM in both directions, a GRU, an LSTM with peepholes whose last cells are used
    with-attention  residual sums around attention, causal in the second layer
    words       norms that nothing but products reads, and logits that nothing but the loss reads
    large-filters  convolutions whose weights' gradients are fusion groups of their own, one before a pooling and one before nothing
    pooled      convolutions that write only the maxima of what they compute
    relative    two embeddings that are added, and a table of positions, of which every layer has a projection; these come
                before the layers, in another order
    bytes       a language model as GPT-2: two blocks of causal attention and two linear layers, a tied classifier of bytes; its
                labels are the next tokens
    experts     two mixtures of 4 experts: of the two best for each token of a minibatch, and of the best one for each token of a
                sample; both drop tokens, and have a loss that balances them
    shared-expert  two layers as the second one, with two of 8 experts for each token, and one that all tokens share
    padded      an encoder of texts with a mask, which pads most of them, one in front and one wholly; its mean is over what counts
    long        two layers with 1,024 rows per batch of 4: a term of a team's sum that is sent while it is made

The same name gives the same bytes. Needs the onnx package.
"""
import pathlib
import sys

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

SAMPLES, WIDTH, CLASSES, TOKENS, WORDS, BYTES = 64, 16, 10, 6, 24, 256
SIZE = 4  # samples of a minibatch, where a capacity is that of so many


class Network:
    def __init__(self, seed):
        self.rng = numpy.random.default_rng(seed)
        self.nodes, self.weights = [], []

    def weight(self, name, *shape, mean=0.0, spread=0.4):
        values = (mean + spread * self.rng.standard_normal(shape)).astype(numpy.float32)
        self.weights.append(numpy_helper.from_array(values, name))
        return name

    def constant(self, name, value):
        self.weights.append(numpy_helper.from_array(numpy.array(value), name))
        return name

    def op(self, kind, name, inputs, more=(), **attributes):
        self.nodes.append(helper.make_node(kind, inputs, [name, *more], name, **attributes))
        return name

    def linear(self, name, x, inputs, outputs, weight=None):
        weight = weight or self.weight(name + ".weight", outputs, inputs)
        return self.op("Gemm", name, [x, weight, self.weight(name + ".bias", outputs)], transB=1)

    def dropout(self, name, x):
        training = self.constant(name + ".training", True)
        return self.op("Dropout", name, [x, self.constant(name + ".ratio", numpy.float32(0.3)), training])

    def loss(self, name, logits):
        return self.op("SoftmaxCrossEntropyLoss", name, [logits, "label"])

    def normalised(self, name, x, inputs, outputs):
        """Convolution, BatchNorm, ReLU."""
        y = self.op("Conv", name + ".conv", [x, self.weight(name + ".conv.weight", outputs, inputs, 3, 3)],
                    kernel_shape=[3, 3], pads=[1, 1, 1, 1])
        weights = [self.weight(f"{name}.{part}", outputs, mean=mean, spread=spread)
                   for part, mean, spread in (("scale", 1, 0.1), ("shift", 0, 0.1), ("mean", 0, 0), ("variance", 1, 0))]
        y = self.op("BatchNormalization", name, [y, *weights], [name + ".mean.next", name + ".variance.next"],
                    training_mode=1, momentum=0.9)
        return self.op("Relu", name + ".relu", [y])


def skips(net):
    a = net.op("Relu", "a", [net.linear("first", "input", WIDTH, WIDTH)])
    b = net.op("Add", "b", [net.op("Tanh", "second.tanh", [net.linear("second", a, WIDTH, WIDTH)]), a])
    c = net.op("Add", "c", [net.op("Relu", "third.relu", [net.linear("third", b, WIDTH, WIDTH)]), a])
    d = net.op("Add", "d", [net.op("Tanh", "fourth.tanh", [net.linear("fourth", c, WIDTH, WIDTH)]), b])
    return [net.loss("loss", net.linear("last", net.op("Add", "e", [d, a]), WIDTH, CLASSES))]


def tied(net):
    words = net.weight("words", WORDS, WIDTH)
    step = net.weight("step", WIDTH, WIDTH)
    h = net.op("ReduceMean", "mean", [net.op("Gather", "embedding", [words, "input"])], axes=[1], keepdims=0)
    for i in range(3):
        h = net.op("Tanh", f"step{i}.tanh", [net.linear(f"step{i}", h, WIDTH, WIDTH, step)])
    return [net.loss("loss", net.linear("classifier", h, WIDTH, WORDS, words))]


def two_losses(net):
    a = net.op("Relu", "a", [net.linear("first", "input", WIDTH, WIDTH)])
    b = net.op("Tanh", "b", [net.linear("second", a, WIDTH, WIDTH)])
    auxiliary = net.loss("auxiliary_loss", net.linear("auxiliary", b, WIDTH, CLASSES))
    c = net.op("Tanh", "c", [net.linear("third", b, WIDTH, WIDTH)])
    d = net.op("Add", "d", [net.op("Relu", "fourth.relu", [net.linear("fourth", c, WIDTH, WIDTH)]), a])
    return [net.loss("loss", net.linear("last", d, WIDTH, CLASSES)), auxiliary]


def dropout(net):
    x = "input"
    for i in range(4):
        x = net.dropout(f"drop{i}", net.op("Relu", f"relu{i}", [net.linear(f"layer{i}", x, WIDTH, WIDTH)]))
    return [net.loss("loss", net.linear("last", x, WIDTH, CLASSES))]


def batch_norm(net):
    x = net.op("Reshape", "image", ["input", net.constant("image.shape", numpy.array([0, 1, 4, 4]))])
    for i, (inputs, outputs) in enumerate([(1, 4), (4, 4), (4, 6), (6, 6)]):
        x = net.normalised(f"norm{i}", x, inputs, outputs)
    x = net.op("Flatten", "flat", [net.op("GlobalAveragePool", "pool", [x])])
    return [net.loss("loss", net.linear("last", x, 6, CLASSES))]


def wide(net):
    x = net.op("Reshape", "image", ["input", net.constant("image.shape", numpy.array([0, 1, 4, 4]))])
    x = first = net.normalised("first", x, 1, 16)
    x = net.normalised("second", x, 16, 32)
    x = net.op("ConvTranspose", "back", [x, net.weight("back.weight", 32, 16, 1, 1)], kernel_shape=[1, 1])
    x = net.op("Relu", "sum.relu", [net.op("Add", "sum", [x, first])])
    x = net.op("Conv", "half", [x, net.weight("half.weight", 48, 16, 2, 2), net.weight("half.bias", 48)],
               kernel_shape=[2, 2], strides=[2, 2])
    x = net.op("Flatten", "flat", [net.op("GlobalAveragePool", "pool", [x])])
    return [net.loss("loss", net.linear("last", x, 48, CLASSES))]


def large_filters(net):
    x = net.op("Reshape", "image", [net.linear("first", "input", WIDTH, 400), net.constant("image.shape", numpy.array([0, 1, 20, 20]))])
    for name, inputs, size in (("small", 1, 3), ("large", 32, 11), ("larger", 32, 11)):
        weights = [net.weight(name + ".weight", 32, inputs, size, size, spread=0.02), net.weight(name + ".bias", 32)]
        x = net.op("Conv", name, [x, *weights], kernel_shape=[size, size], pads=[size // 2] * 4)
        if name != "large":
            x = net.op("Relu", name + ".relu", [x])
    x = net.op("MaxPool", "halved", [x], kernel_shape=[2, 2], strides=[2, 2])
    x = net.op("Flatten", "flat", [net.op("GlobalAveragePool", "pool", [x])])
    return [net.loss("loss", net.linear("last", x, 32, CLASSES))]


def pooled(net):
    x = net.op("Reshape", "image", [net.linear("first", "input", WIDTH, 132), net.constant("image.shape", numpy.array([0, 1, 12, 11]))])
    for name, inputs, outputs in (("one", 1, 16), ("two", 16, 32), ("three", 32, 16)):
        x = net.op("Conv", name, [x, net.weight(name + ".weight", outputs, inputs, 3, 3, spread=0.1), net.weight(name + ".bias", outputs)],
                   kernel_shape=[3, 3], pads=[1, 1, 1, 1])
        if name != "three":
            x = net.op("Relu", name + ".relu", [x])
        if name != "one":
            x = net.op("MaxPool", name + ".pool", [x], kernel_shape=[2, 2], strides=[2, 2])
    x = net.op("Flatten", "flat", [net.op("GlobalAveragePool", "pool", [x])])
    return [net.loss("loss", net.linear("last", x, 16, CLASSES))]


def two_ways(net):
    def layer(kind, name, x, gates, inputs, hidden, directions=1, more=(), outputs=(), **attributes):
        weights = [net.weight(f"{name}.{part}", directions, *shape) for part, shape in
                   (("W", (gates * hidden, inputs)), ("R", (gates * hidden, hidden)), ("B", (2 * gates * hidden,)))]
        return net.op(kind, name, [x, *weights, *more], outputs, hidden_size=hidden, layout=1, **attributes)

    def merged(name, y, width):
        return net.op("Reshape", name, [y, net.constant(name + ".shape", numpy.array([0, 4, width]))])

    x = net.op("Reshape", "steps", ["input", net.constant("steps.shape", numpy.array([0, 4, 4]))])
    x = merged("both.merged", layer("LSTM", "both", x, 4, 4, 6, 2, direction="bidirectional"), 12)
    x = merged("gru.merged", layer("GRU", "gru", x, 3, 12, 5, direction="reverse", linear_before_reset=1), 5)
    peepholes = ["", "", "", net.weight("peepholes", 1, 3 * 5)]
    layer("LSTM", "last_lstm", x, 4, 5, 5, more=peepholes, outputs=["states", "cells"])
    x = net.op("Flatten", "flat", [net.op("Add", "sum", ["states", "cells"])])
    return [net.loss("loss", net.linear("last", x, 5, CLASSES))]


def with_attention(net):
    """Of 8 positions with 2 heads of 8."""
    x = net.op("Reshape", "positions", ["input", net.constant("positions.shape", numpy.array([0, 8, 2]))])
    x = net.op("MatMul", "wide", [x, net.weight("wide.weight", 2, WIDTH)])
    for i in range(2):
        q, k, v = (net.op("MatMul", f"{part}{i}", [x, net.weight(f"{part}{i}.weight", WIDTH, WIDTH)]) for part in "qkv")
        y = net.op("Attention", f"attention{i}", [q, k, v], q_num_heads=2, kv_num_heads=2, is_causal=i)
        x = net.op("Tanh", f"tanh{i}", [net.op("Add", f"sum{i}", [x, y])])
    x = net.op("ReduceMean", "mean", [x, net.constant("mean.axes", numpy.array([1]))], keepdims=0)
    return [net.loss("loss", net.linear("last", x, WIDTH, CLASSES))]


def long(net):
    x = net.op("Reshape", "columns", ["input", net.constant("columns.shape", numpy.array([0, WIDTH, 1]))])
    x = net.op("Expand", "wide", [x, net.constant("wide.shape", numpy.array([1, 1, WIDTH * 32]))])
    x = net.op("Reshape", "rows", [x, net.constant("rows.shape", numpy.array([0, WIDTH * 16, 32]))])
    x = net.op("Tanh", "tanh0", [net.op("MatMul", "up", [x, net.weight("up.weight", 32, 256)])])
    x = net.op("Tanh", "tanh1", [net.op("MatMul", "down", [x, net.weight("down.weight", 256, 128, spread=0.1)])])
    x = net.op("ReduceMean", "mean", [x], axes=[1], keepdims=0)
    return [net.loss("loss", net.linear("last", x, 128, CLASSES))]


def number(net, name, value):
    """A float that is no parameter."""
    return net.op("Constant", name, [], value_float=float(value))


def choice(net, name, chosen, experts, capacity, axis, before=None):
    """One-hots of the experts, and of the slots, of tokens: numbered along `axis` for each expert, from `before` on."""
    values = net.op("Constant", f"{name}.values", [], value_floats=[0.0, 1.0])  # and no parameter
    picked = net.op("OneHot", f"{name}.experts", [chosen, net.constant(f"{name}.count", numpy.int64(experts)), values])
    numbers = net.op("CumSum", f"{name}.numbers", [picked, net.constant(f"{name}.axis", numpy.int64(axis))])
    if before:
        numbers = net.op("Add", f"{name}.after", [numbers, before])
    own = net.op("Mul", f"{name}.own", [numbers, picked])
    last = net.constant(f"{name}.last", numpy.array([-1]))
    place = net.op("Sub", f"{name}.place", [net.op("ReduceSum", f"{name}.number", [own, last], keepdims=0), number(net, f"{name}.one", 1)])
    slot = net.op("Cast", f"{name}.slot", [place], to=TensorProto.INT64)
    return picked, net.op("OneHot", f"{name}.slots", [slot, net.constant(f"{name}.capacity", numpy.int64(capacity)), values])


def experts_layer(net, name, x, best, tokens, capacity, experts=4, shared=False):
    """`tokens`: their letters in equations. Each token goes to its `best` experts, and to one that all `shared`. The slot of a token that
    finds no place is none, which OneHot makes zeros of."""
    axis = len(tokens) - 1
    p = net.op("Softmax", f"{name}.p", [net.op("MatMul", f"{name}.router", [x, net.weight(f"{name}.router.weight", WIDTH, experts, spread=1)])], axis=-1)
    gates, chosen = f"{name}.gates", f"{name}.chosen"
    net.op("TopK", gates, [p, net.constant(f"{name}.best", numpy.array([best]))], [chosen])
    mask, before = None, None
    for k in range(best):
        of = f"{name}.choice{k}"
        index = net.constant(f"{of}.index", numpy.int64(k))
        picked, slots = choice(net, of, net.op("Gather", f"{of}.expert", [chosen, index], axis=-1), experts, capacity, axis, before)
        gate = net.op("Gather", f"{of}.gate", [gates, index], axis=-1)
        term = net.op("Einsum", f"{of}.mask", [gate, picked, slots], equation=f"{tokens},{tokens}e,{tokens}c->{tokens}ec")
        mask = net.op("Add", f"{of}.sum", [mask, term]) if mask else term
        if k == 0:
            before = net.op("ReduceSum", f"{of}.all", [picked, net.constant(f"{of}.axes", numpy.array([axis]))], keepdims=1)
            shares = net.op("Mul", f"{name}.products", [net.op("ReduceMean", f"{name}.f", [picked], axes=list(range(axis + 1)), keepdims=0),
                                                        net.op("ReduceMean", f"{name}.P", [p], axes=list(range(axis + 1)), keepdims=0)])
    dispatch = net.op("Cast", f"{name}.dispatch", [net.op("Greater", f"{name}.is", [mask, number(net, f"{name}.zero", 0)])], to=TensorProto.FLOAT)
    slots = "e" + tokens[:-1] + "c"
    y = net.op("Einsum", f"{name}.inputs", [dispatch, x], equation=f"{tokens}ec,{tokens}d->{slots}d")
    y = net.op("Einsum", f"{name}.up", [y, net.weight(f"{name}.up.weight", experts, WIDTH, 2 * WIDTH)], equation=f"{slots}d,edh->{slots}h")
    y = net.op("Tanh", f"{name}.tanh", [y])
    y = net.op("Einsum", f"{name}.down", [y, net.weight(f"{name}.down.weight", experts, 2 * WIDTH, WIDTH)], equation=f"{slots}h,ehd->{slots}d")
    y = net.op("Einsum", f"{name}.outputs", [mask, y], equation=f"{tokens}ec,{slots}d->{tokens}d")
    balance = net.op("Mul", f"{name}.balance", [net.op("ReduceSum", f"{name}.share", [shares], keepdims=0), number(net, f"{name}.alpha", 0.01 * experts)])
    if shared:
        hidden = net.op("Tanh", f"{name}.shared.tanh", [net.op("MatMul", f"{name}.shared.up", [x, net.weight(f"{name}.shared.up.weight", WIDTH, 2 * WIDTH)])])
        y = net.op("Add", f"{name}.both", [y, net.op("MatMul", f"{name}.shared.down", [hidden, net.weight(f"{name}.shared.down.weight", 2 * WIDTH, WIDTH)])])
    return net.op("Add", f"{name}.sum", [x, y]), balance


def experts(net):
    x = net.op("Gather", "embedding", [net.weight("embedding.weight", WORDS, WIDTH), "input"])
    x = net.op("Reshape", "rows", [x, net.constant("rows.shape", numpy.array([SIZE * TOKENS, WIDTH]))])
    x, flat = experts_layer(net, "flat", x, 2, "t", 10)
    x = net.op("Tanh", "between", [net.op("MatMul", "layer", [x, net.weight("layer.weight", WIDTH, WIDTH)])])
    x = net.op("Reshape", "samples", [x, net.constant("samples.shape", numpy.array([SIZE, TOKENS, WIDTH]))])
    x, grouped = experts_layer(net, "grouped", x, 1, "gt", 2)
    x = net.op("ReduceMean", "mean", [x], axes=[1], keepdims=0)
    return [net.loss("loss", net.linear("classifier", x, WIDTH, CLASSES)), flat, grouped]


def shared_expert(net):
    x = net.op("Gather", "embedding", [net.weight("embedding.weight", WORDS, WIDTH), "input"])
    x = net.op("Reshape", "samples", [x, net.constant("samples.shape", numpy.array([SIZE, TOKENS, WIDTH]))])
    balance = []
    for name in ("first", "second"):
        x, own = experts_layer(net, name, x, 2, "gt", 2, experts=8, shared=True)
        balance.append(own)
    x = net.op("ReduceMean", "mean", [x], axes=[1], keepdims=0)
    return [net.loss("loss", net.linear("classifier", x, WIDTH, CLASSES)), *balance]


def words(net):
    x = net.op("Gather", "embedding", [net.weight("embedding.weight", WORDS, WIDTH), "input"])
    x = net.op("LayerNormalization", "norm", [x, net.weight("norm.scale", WIDTH, mean=1), net.weight("norm.bias", WIDTH)], axis=-1)
    x = net.op("Tanh", "hidden", [net.op("MatMul", "layer", [x, net.weight("layer.weight", WIDTH, WIDTH)])])
    x = net.op("ReduceMean", "mean", [x, net.constant("mean.axes", numpy.array([1]))], keepdims=0)
    x = net.op("RMSNormalization", "rms", [x, net.weight("rms.scale", WIDTH, mean=1)], axis=-1)
    return [net.loss("loss", net.linear("classifier", x, WIDTH, CLASSES))]


def relative(net):
    x, kinds = (net.op("Gather", f"{name}.embedding", [net.weight(f"{name}.weight", WORDS, WIDTH), "input"]) for name in ("words", "kinds"))
    table = net.op("Tanh", "table", [net.weight("table.weight", TOKENS, WIDTH)])
    positions = {i: net.op("MatMul", f"positions{i}", [table, net.weight(f"positions{i}.weight", WIDTH, WIDTH)]) for i in (3, 1, 2, 0)}
    x = net.op("LayerNormalization", "norm", [net.op("Add", "sum", [x, kinds]), net.weight("norm.scale", WIDTH, mean=1), net.weight("norm.bias", WIDTH)], axis=-1)
    for i in range(4):
        y = net.op("MatMul", f"layer{i}", [x, net.weight(f"layer{i}.weight", WIDTH, WIDTH)])
        x = net.op("Tanh", f"layer{i}.tanh", [net.op("Add", f"layer{i}.sum", [y, positions[i]])])
    x = net.op("ReduceMean", "mean", [x, net.constant("mean.axes", numpy.array([1]))], keepdims=0)
    return [net.loss("loss", net.linear("classifier", x, WIDTH, CLASSES))]


def bytes_model(net):
    def norm(name, x):
        return net.op("LayerNormalization", name, [x, net.weight(f"{name}.scale", WIDTH, mean=1, spread=0.1), net.weight(f"{name}.bias", WIDTH, spread=0.1)], axis=-1)

    table = net.weight("wte", BYTES, WIDTH, spread=0.1)
    x = net.op("Add", "embedded", [net.op("Gather", "embedding", [table, "input"]), net.weight("wpe", TOKENS, WIDTH, spread=0.1)])
    for i in range(2):
        y = norm(f"block{i}.norm1", x)
        q, k, v = (net.op("MatMul", f"block{i}.{part}", [y, net.weight(f"block{i}.{part}.weight", WIDTH, WIDTH)]) for part in "qkv")
        y = net.op("Attention", f"block{i}.attention", [q, k, v], q_num_heads=2, kv_num_heads=2, is_causal=1)
        x = net.op("Add", f"block{i}.sum1", [x, net.op("MatMul", f"block{i}.project", [y, net.weight(f"block{i}.project.weight", WIDTH, WIDTH)])])
        y = net.op("MatMul", f"block{i}.up", [norm(f"block{i}.norm2", x), net.weight(f"block{i}.up.weight", WIDTH, 2 * WIDTH)])
        y = net.op("MatMul", f"block{i}.down", [net.op("Gelu", f"block{i}.gelu", [y]), net.weight(f"block{i}.down.weight", 2 * WIDTH, WIDTH)])
        x = net.op("Add", f"block{i}.sum2", [x, y])
    return [net.op("MatMul", "logits", [norm("last.norm", x), net.op("Transpose", "classifier", [table], perm=[1, 0])])]


def padded(net, width=64):
    one, none = (net.constant(name, numpy.float32(value)) for name, value in (("one", 1), ("none", 0)))
    zero, lowest = net.constant("zero", numpy.int64(0)), net.constant("lowest", numpy.finfo(numpy.float32).min)
    counts = net.op("Not", "counts", [net.op("Equal", "is zero", ["mask", zero])])
    hidden = net.op("Where", "hidden", [net.op("Unsqueeze", "keys", [counts, net.constant("scores", [1, 2])]), none, lowest])
    x = net.op("Gather", "embedding", [net.weight("table", WORDS, width), "input"])
    for i in range(2):
        q, k, v = (net.op("MatMul", f"block{i}.{part}", [x, net.weight(f"block{i}.{part}.weight", width, width, spread=0.1)]) for part in "qkv")
        y = net.op("Attention", f"block{i}.attention", [q, k, v, hidden], q_num_heads=2, kv_num_heads=2)
        x = net.op("Add", f"block{i}.sum1", [x, net.op("MatMul", f"block{i}.project", [y, net.weight(f"block{i}.project.weight", width, width, spread=0.1)])])
        weights = [net.weight(f"block{i}.scale", width, mean=1, spread=0.1), net.weight(f"block{i}.bias", width, spread=0.1)]
        y = net.op("LayerNormalization", f"block{i}.norm", [x, *weights], axis=-1)
        y = net.op("MatMul", f"block{i}.up", [y, net.weight(f"block{i}.up.weight", width, 2 * width, spread=0.1)])
        y = net.op("MatMul", f"block{i}.down", [net.op("Gelu", f"block{i}.gelu", [y]), net.weight(f"block{i}.down.weight", 2 * width, width, spread=0.1)])
        x = net.op("Add", f"block{i}.sum2", [x, y])
    kept = net.op("Unsqueeze", "kept", [net.op("Where", "numbers", [counts, one, none]), net.constant("features", [2])])
    x = net.op("ReduceMean", "mean", [net.op("Mul", "counted", [x, kept]), net.constant("positions", [1])], keepdims=0)
    return [net.loss("loss", net.linear("classifier", x, width, CLASSES))]


# The place says which random numbers a network has: new ones come last.
NETWORKS = {"batch-norm": batch_norm, "dropout": dropout, "skips": skips, "tied": tied, "two-losses": two_losses,
            "two-ways": two_ways, "wide": wide, "with-attention": with_attention, "words": words,
            "large-filters": large_filters, "pooled": pooled, "relative": relative, "bytes": bytes_model, "long": long,
            "experts": experts, "padded": padded, "shared-expert": shared_expert}


def main():
    global TOKENS
    name, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    TOKENS = int(sys.argv[3]) if len(sys.argv) > 3 else TOKENS
    net = Network(seed=list(NETWORKS).index(name))
    losses = NETWORKS[name](net)
    batch = SIZE if name in ("experts", "shared-expert") else "N"
    tokens = name in ("tied", "words", "relative", "bytes", "experts", "padded", "shared-expert")
    positions = 16 if name == "padded" else TOKENS
    inputs = [helper.make_tensor_value_info("input", TensorProto.INT64 if tokens else TensorProto.FLOAT,
                                            [batch, positions if tokens else WIDTH]),
              helper.make_tensor_value_info("label", TensorProto.INT64, [batch])]
    outputs = [helper.make_tensor_value_info(loss, TensorProto.FLOAT, []) for loss in losses]
    if name == "bytes":
        inputs.pop()
        outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", TOKENS, BYTES])]
    if name == "padded":
        inputs.insert(1, helper.make_tensor_value_info("mask", TensorProto.INT64, ["N", positions]))
    graph = helper.make_graph(net.nodes, name, inputs, outputs, net.weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23 if name in ("with-attention", "words", "relative", "bytes", "padded") else 14)])
    model.ir_version = 8
    data = folder / "data"
    data.mkdir(parents=True, exist_ok=True)
    onnx.save(model, str(folder / "model.onnx"))
    label = net.rng.integers(CLASSES, size=SAMPLES)
    if name == "bytes":
        stream = net.rng.integers(BYTES, size=SAMPLES * TOKENS + 1)
        numpy.save(data / "input.npy", stream[:-1].reshape(SAMPLES, TOKENS))
        label = stream[1:].reshape(SAMPLES, TOKENS)
    elif tokens:
        numpy.save(data / "input.npy", (net.rng.integers(8, size=(SAMPLES, positions)) + label[:, None]) % WORDS)
    else:
        x = net.rng.standard_normal((SAMPLES, WIDTH)) + numpy.eye(CLASSES, WIDTH)[label]
        numpy.save(data / "input.npy", x.astype(numpy.float32))
    numpy.save(data / "label.npy", label)
    if name == "padded":
        lengths = net.rng.integers(2, positions + 1, size=SAMPLES)
        mask = (numpy.arange(positions) < lengths[:, None]).astype(numpy.int64)
        mask[0], mask[1] = mask[0, ::-1], 0
        numpy.save(data / "mask.npy", mask)


if __name__ == "__main__":
    main()
