"""Cases of edges.py: softmax and losses, norms, poolings, attention, and what moves elements."""
import numpy
import torch
from torch.nn import functional as F

from edge_cases import INF, NAN, REAL, add, floats, ints, scalar

LOGITS = [[0, 0, 0], [1, 2, 3], [-INF, 1, 2], [-INF, -INF, 3], [-INF, -INF, -INF], [INF, 1, 0], [INF, INF, 0], [NAN, 1, 0],
          [1e30, 0, -1e30], [200, 0, -200], [-1e38, -1e38, -3e38], [-INF, INF, 0]]

# --- softmax and losses ---

add("Softmax", [LOGITS], lambda g, x: g("Softmax", x, axis=1), lambda x: F.softmax(x, 1))
add("Softmax, axis 0", [LOGITS[:4]], lambda g, x: g("Softmax", x, axis=0), lambda x: F.softmax(x, 0))
add("LogSoftmax", [LOGITS], lambda g, x: g("LogSoftmax", x, axis=1), lambda x: F.log_softmax(x, 1))
add("Softmax by hand", [LOGITS[:4]], lambda g, x: g("Div", (e := g("Exp", x)), g("ReduceSum", e, ints(1), keepdims=1)),
    lambda x: torch.exp(x) / torch.exp(x).sum(1, keepdim=True))
add("Softmax of one", [[[1], [-INF], [INF], [0]]], lambda g, x: g("Softmax", x, axis=1), lambda x: F.softmax(x, 1))
add("Softmax, opset 11", [LOGITS], lambda g, x: g("Softmax", x, axis=1), lambda x: F.softmax(x, 1), 11)
add("Hardmax", [[[2, 2, 1], [0, 1, 1]]], lambda g, x: g("Add", x, g("Hardmax", x, axis=1)), lambda x: x + F.one_hot(x.argmax(1), 3))
LABELS = [0, 2, 2, 2, 1, 0, 2, 1, 0, 2, 1, 1]
for reduction in ("none", "mean", "sum"):
    add(f"SoftmaxCrossEntropyLoss {reduction}", [LOGITS[:4] + LOGITS[8:10]],
        lambda g, x, r=reduction: g("SoftmaxCrossEntropyLoss", x, ints(*LABELS[:4], *LABELS[8:10]), reduction=r),
        lambda x, r=reduction: F.cross_entropy(x, torch.tensor(LABELS[:4] + LABELS[8:10]), reduction=r))
add("SoftmaxCrossEntropyLoss, each", [LOGITS], lambda g, x: g("SoftmaxCrossEntropyLoss", x, ints(*LABELS), reduction="none"),
    lambda x: F.cross_entropy(x, torch.tensor(LABELS), reduction="none"))
add("SoftmaxCrossEntropyLoss, label at -inf", [[[-INF, 1, 2], [1, 2, 3]]], lambda g, x: g("SoftmaxCrossEntropyLoss", x, ints(0, 1), reduction="none"),
    lambda x: F.cross_entropy(x, torch.tensor([0, 1]), reduction="none"))
add("SoftmaxCrossEntropyLoss, ignored", [[[5, 1, 2], [1, 2, 3], [-INF, -INF, 1]]],
    lambda g, x: g("SoftmaxCrossEntropyLoss", x, ints(-100, 1, -100), reduction="mean", ignore_index=-100),
    lambda x: F.cross_entropy(x, torch.tensor([-100, 1, -100])))
add("SoftmaxCrossEntropyLoss, weight 0", [[[3, 1, 2], [1, 2, 3]]],
    lambda g, x: g("SoftmaxCrossEntropyLoss", x, ints(0, 1), floats(0, 1, 2), reduction="mean"),
    lambda x: F.cross_entropy(x, torch.tensor([0, 1]), torch.tensor([0.0, 1, 2])))
add("SoftmaxCrossEntropyLoss, planes", [numpy.array([0, -INF, 1, 2, 5, INF, 0, 0], "f4").reshape(1, 2, 4)],
    lambda g, x: g("SoftmaxCrossEntropyLoss", x, ints(0, 1, 0, 1).reshape(1, 4), reduction="none"),
    lambda x: F.cross_entropy(x, torch.tensor([[0, 1, 0, 1]]), reduction="none"))
add("NegativeLogLikelihoodLoss", [[[-INF, 0], [-1, -2]]], lambda g, x: g("NegativeLogLikelihoodLoss", x, ints(0, 1), reduction="none"),
    lambda x: F.nll_loss(x, torch.tensor([0, 1]), reduction="none"))
add("NegativeLogLikelihoodLoss, ignored", [[[-INF, NAN], [-1, -2]]],
    lambda g, x: g("NegativeLogLikelihoodLoss", x, ints(-100, 1), reduction="mean", ignore_index=-100),
    lambda x: F.nll_loss(x, torch.tensor([-100, 1])))

# --- norms ---

CONSTANT = numpy.array([[2, 2, 2, 2], [0, 0, 0, 0], [1, 2, 3, 4], [64, 64, 64, 64], [1e-6, 0, 0, 0], [1e15, 0, 0, 0]], "f4")
ONES = numpy.array([1, 2, -1, 0.5], "f4")
for epsilon in (1e-5, 0.0):
    add(f"LayerNormalization, epsilon {epsilon:g}", [CONSTANT if epsilon else CONSTANT[:4], ONES, ONES],
        lambda g, x, w, b, e=epsilon: g("LayerNormalization", x, w, b, axis=-1, epsilon=e),
        lambda x, w, b, e=epsilon: F.layer_norm(x, (4,), w, b, e))
    add(f"RMSNormalization, epsilon {epsilon:g}", [CONSTANT if epsilon else CONSTANT[:4], ONES], lambda g, x, w, e=epsilon: g("RMSNormalization", x, w, axis=-1, epsilon=e),
        lambda x, w, e=epsilon: F.rms_norm(x, (4,), w, e), 23)
    add(f"InstanceNormalization, epsilon {epsilon:g}", [(CONSTANT if epsilon else CONSTANT[2:3].repeat(6, 0)).reshape(1, 6, 4), numpy.ones(6), numpy.zeros(6)],
        lambda g, x, w, b, e=epsilon: g("InstanceNormalization", x, w, b, epsilon=e), lambda x, w, b, e=epsilon: F.instance_norm(x, weight=w, bias=b, eps=e))
    add(f"GroupNormalization, epsilon {epsilon:g}", [CONSTANT[:4].reshape(2, 4, 2), ONES, ONES],
        lambda g, x, w, b, e=epsilon: g("GroupNormalization", x, w, b, num_groups=2, epsilon=e), lambda x, w, b, e=epsilon: F.group_norm(x, 2, w, b, e), 21)
add("LayerNormalization of one", [[[2], [0]], [3], [1]], lambda g, x, w, b: g("LayerNormalization", x, w, b, axis=-1), lambda x, w, b: F.layer_norm(x, (1,), w, b))
add("LayerNormalization with infinities", [[[INF, 0, 1, 2], [NAN, 0, 1, 2]], ONES, ONES], lambda g, x, w, b: g("LayerNormalization", x, w, b, axis=-1),
    lambda x, w, b: F.layer_norm(x, (4,), w, b))
add("RMSNormalization by hand", [CONSTANT], lambda g, x: g("Div", x, g("Sqrt", g("Add", g("ReduceMean", g("Mul", x, x), ints(1), keepdims=1), scalar(1e-6)))),
    lambda x: x / torch.sqrt((x * x).mean(1, keepdim=True) + 1e-6))
add("LayerNorm by hand", [CONSTANT[:5]], lambda g, x: g("Div", (d := g("Sub", x, g("ReduceMean", x, ints(1), keepdims=1))),
    g("Sqrt", g("Add", g("ReduceMean", g("Mul", d, d), ints(1), keepdims=1), scalar(1e-5)))), lambda x: F.layer_norm(x, (4,)))
add("LayerNorm by hand, epsilon 0", [CONSTANT[:4]], lambda g, x: g("Div", (d := g("Sub", x, g("ReduceMean", x, ints(1), keepdims=1))),
    g("Sqrt", g("ReduceMean", g("Mul", d, d), ints(1), keepdims=1))),
    lambda x: (d := x - x.mean(1, keepdim=True)) / torch.sqrt((d * d).mean(1, keepdim=True)))
for epsilon in (1e-5, 0.0):
    add(f"BatchNormalization, epsilon {epsilon:g}", [CONSTANT[:, :2].reshape(6, 2), [1, 2], [0, 1]],
        lambda g, x, w, b, e=epsilon: g("BatchNormalization", x, w, b, floats(0.5, 2), floats(1, 2), epsilon=e),
        lambda x, w, b, e=epsilon: F.batch_norm(x, torch.tensor([0.5, 2]), torch.tensor([1.0, 2]), w, b, False, 0.1, e))
add("BatchNormalization in training, constant", [numpy.full((3, 2, 2), 2, "f4"), [1, 2], [0, 1]],
    lambda g, x, w, b: g("BatchNormalization", x, w, b, floats(0, 0), floats(1, 1), training_mode=1, outputs=3)[0],
    lambda x, w, b: F.batch_norm(x, torch.zeros(2), torch.ones(2), w, b, True))
add("BatchNormalization in training, batch 1", [numpy.array([[[1, 2], [0, 0]]], "f4"), [1, 2], [0, 1]],
    lambda g, x, w, b: g("BatchNormalization", x, w, b, floats(0, 0), floats(1, 1), training_mode=1, outputs=3)[0],
    lambda x, w, b: F.batch_norm(x, torch.zeros(2), torch.ones(2), w, b, True))
add("LRN", [numpy.array([0, 0, 1, 1e10, 1e20, INF, 0, -1, 2, 3, 4, 5], "f4").reshape(2, 3, 2)],
    lambda g, x: g("LRN", x, size=3, alpha=0.1, beta=0.75, bias=1.0), lambda x: F.local_response_norm(x, 3, 0.1, 0.75, 1.0))
add("LRN, bias 0", [numpy.array([0, 0, 0, 2, 0, 1], "f4").reshape(1, 3, 2)],
    lambda g, x: g("LRN", x, size=3, alpha=0.1, beta=0.75, bias=0.0), lambda x: F.local_response_norm(x, 3, 0.1, 0.75, 0.0))
add("MeanVarianceNormalization", [CONSTANT[:2].reshape(1, 2, 2, 2)], lambda g, x: g("MeanVarianceNormalization", x, axes=[0, 2, 3]),
    lambda x: (x - x.mean((0, 2, 3), True)) / (((x * x).mean((0, 2, 3), True) - x.mean((0, 2, 3), True) ** 2).sqrt() + 1e-9))

# --- poolings ---

PLANE = numpy.array([[1, 1, 0, -1], [1, 1, -INF, -1], [2, 0, INF, 3], [0, 2, 3, 3]], "f4").reshape(1, 1, 4, 4)
add("MaxPool of ties", [PLANE], lambda g, x: g("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]), lambda x: F.max_pool2d(x, 2))
add("MaxPool, overlapping", [PLANE], lambda g, x: g("MaxPool", x, kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1]), lambda x: F.max_pool2d(x, 3, 1, 1))
add("MaxPool of -inf", [numpy.full((1, 1, 4, 4), -INF)], lambda g, x: g("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2], pads=[1, 1, 1, 1]),
    lambda x: F.max_pool2d(x, 2, 2, 1))
add("MaxPool of -inf at the end", [numpy.array([1, 2, -INF, -INF, -INF, 2, -INF, -INF], "f4").reshape(1, 1, 2, 4)], lambda g, x: g("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]),
    lambda x: F.max_pool2d(x, 2, 2))
add("MaxPool with NaN", [numpy.array([1, NAN, 3, 0, 2, 0, NAN, NAN], "f4").reshape(1, 1, 2, 4)], lambda g, x: g("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]),
    lambda x: F.max_pool2d(x, 2, 2))
add("MaxPool of a line", [numpy.array([1, 1, -INF, 2, 2, 2], "f4").reshape(1, 1, 6)], lambda g, x: g("MaxPool", x, kernel_shape=[2], strides=[2]), lambda x: F.max_pool1d(x, 2))
add("MaxPool of a volume", [numpy.array([1, 1, 0, 1, 2, 2, 2, 0], "f4").reshape(1, 1, 2, 2, 2)], lambda g, x: g("MaxPool", x, kernel_shape=[2, 2, 2]), lambda x: F.max_pool3d(x, 2))
add("MaxPool, ceil", [PLANE[:, :, :3, :3].copy()], lambda g, x: g("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1), lambda x: F.max_pool2d(x, 2, ceil_mode=True))
add("MaxPool after Relu", [PLANE], lambda g, x: g("MaxPool", g("Relu", x), kernel_shape=[2, 2], strides=[2, 2]), lambda x: F.max_pool2d(torch.relu(x), 2))
add("MaxPool after Relu, dead", [-numpy.ones((1, 1, 4, 4))], lambda g, x: g("MaxPool", g("Relu", x), kernel_shape=[2, 2], strides=[2, 2]), lambda x: F.max_pool2d(torch.relu(x), 2))
add("Sqrt after MaxPool after Relu", [-numpy.ones((1, 1, 4, 4))], lambda g, x: g("Sqrt", g("MaxPool", g("Relu", x), kernel_shape=[2, 2], strides=[2, 2])),
    lambda x: torch.sqrt(F.max_pool2d(torch.relu(x), 2)))
add("Relu after MaxPool", [PLANE - 1], lambda g, x: g("Relu", g("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])), lambda x: torch.relu(F.max_pool2d(x, 2)))
add("GlobalMaxPool of ties", [PLANE.clip(-1, 2)], lambda g, x: g("GlobalMaxPool", x), lambda x: F.adaptive_max_pool2d(x, 1))
add("GlobalMaxPool of a line", [[[[1, 3, 3], [0, 0, 0]]]], lambda g, x: g("GlobalMaxPool", x), lambda x: F.adaptive_max_pool1d(x, 1))
for counted in (0, 1):
    add(f"AveragePool, count_include_pad {counted}", [numpy.arange(9, dtype="f4").reshape(1, 1, 3, 3)],
        lambda g, x, c=counted: g("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2], pads=[1, 1, 1, 1], count_include_pad=c),
        lambda x, c=counted: F.avg_pool2d(x, 2, 2, 1, count_include_pad=bool(c)))
    add(f"AveragePool, ceil, count_include_pad {counted}", [numpy.arange(25, dtype="f4").reshape(1, 1, 5, 5)],
        lambda g, x, c=counted: g("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1, count_include_pad=c),
        lambda x, c=counted: F.avg_pool2d(x, 2, 2, 0, ceil_mode=True, count_include_pad=bool(c)))
    add(f"AveragePool, ceil and padding, count_include_pad {counted}", [numpy.arange(16, dtype="f4").reshape(1, 1, 4, 4)],
        lambda g, x, c=counted: g("AveragePool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], ceil_mode=1, count_include_pad=c),
        lambda x, c=counted: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=bool(c)))
add("AveragePool with infinities", [PLANE], lambda g, x: g("AveragePool", x, kernel_shape=[2, 2], strides=[1, 1]), lambda x: F.avg_pool2d(x, 2, 1))
add("GlobalAveragePool", [PLANE], lambda g, x: g("GlobalAveragePool", x), lambda x: F.adaptive_avg_pool2d(x, 1))
LINE = numpy.array([0, 0, 1, -2, 0, 3, 0, 0, 0, 0], "f4").reshape(1, 1, 10)
for p in (1, 2, 3):
    add(f"LpPool {p}", [LINE], lambda g, x, p=p: g("LpPool", x, kernel_shape=[2], strides=[2], p=p), lambda x, p=p: lp_pool(x, p))
    add(f"GlobalLpPool {p}", [numpy.array([0, 0, 0, 0, 1, -2, 0, 3], "f4").reshape(1, 2, 2, 2)], lambda g, x, p=p: g("GlobalLpPool", x, p=p),
        lambda x, p=p: torch.linalg.vector_norm(x, p, (2, 3), keepdim=True))


def lp_pool(x, p):
    """Of absolute values, as ONNX says (PyTorch's own takes them of the sums)."""
    return torch.linalg.vector_norm(x.reshape(1, 1, -1, 2), p, 3)


# --- attention and recurrent layers ---

RANDOM = numpy.random.default_rng(3).normal(size=(1, 2, 3, 4)).astype("f4")
MASK = numpy.array([[1, 1, 0], [0, 0, 0], [1, 0, 1]], bool)
add("Attention with a row masked", [RANDOM, RANDOM[:, ::-1].copy(), RANDOM * 2], lambda g, q, k, v: g("Attention", q, k, v, MASK, outputs=1),
    lambda q, k, v: F.scaled_dot_product_attention(q, k, v, torch.tensor(MASK)), 23)
add("Attention with a bias of -inf", [RANDOM, RANDOM[:, ::-1].copy(), RANDOM * 2], lambda g, q, k, v: g("Attention", q, k, v, numpy.where(MASK, 0, -INF).astype("f4")),
    lambda q, k, v: F.scaled_dot_product_attention(q, k, v, torch.tensor(numpy.where(MASK, 0, -INF).astype("f4"))), 23)


def attention_by_hand(g, q, k, v, least):
    scores = g("Add", g("MatMul", q, g("Transpose", k, perm=[0, 1, 3, 2])), numpy.where(MASK, 0, least).astype("f4"))
    return g("MatMul", g("Softmax", scores, axis=-1), v)


for least in (-INF, numpy.finfo("f4").min, -1e9):
    add(f"attention by hand, {least:g}", [RANDOM, RANDOM[:, ::-1].copy(), RANDOM * 2], lambda g, q, k, v, m=least: attention_by_hand(g, q, k, v, m),
        lambda q, k, v, m=least: torch.softmax(q @ k.transpose(2, 3) + torch.tensor(numpy.where(MASK, 0, m).astype("f4")), -1) @ v)
add("attention by hand, NaN replaced", [RANDOM, RANDOM[:, ::-1].copy(), RANDOM * 2],
    lambda g, q, k, v: g("MatMul", g("Where", g("IsNaN", (p := g("Softmax", g("Add", g("MatMul", q, g("Transpose", k, perm=[0, 1, 3, 2])),
                                                                              numpy.where(MASK, 0, -INF).astype("f4")), axis=-1))), scalar(0), p), v),
    lambda q, k, v: F.scaled_dot_product_attention(q, k, v, torch.tensor(MASK), scale=1.0))
add("safe softmax by hand", [RANDOM[0, :, :, :3].copy()],
    lambda g, x: g("Where", g("IsNaN", (y := g("Softmax", g("Add", x, numpy.where(MASK, 0, -INF).astype("f4")), axis=-1))), scalar(0), y),
    lambda x: torch.ops.aten._safe_softmax(x + torch.tensor(numpy.where(MASK, 0, -INF).astype("f4")), -1))
add("Softmax of masked_fill", [RANDOM[0, :, :, :3].copy()], lambda g, x: g("Softmax", g("Where", MASK, x, scalar(-INF)), axis=-1),
    lambda x: torch.softmax(x.masked_fill(~torch.tensor(MASK), -INF), -1))
add("MatMul with infinities", [[[INF, 0], [1, 2]], [[1, 0], [0, NAN]]], lambda g, a, b: g("MatMul", a, b), torch.matmul)
add("Gemm with infinities", [[[INF, 0], [1, 2]], [[1, 0], [2, 1]], [1, INF]], lambda g, a, b, c: g("Gemm", a, b, c, alpha=0.5), lambda a, b, c: 0.5 * (a @ b) + c)
add("Gemm, beta 0", [[[1, 0], [1, 2]], [[1, 0], [2, 1]], [NAN, INF]], lambda g, a, b, c: g("Gemm", a, b, c, beta=0.0), lambda a, b, c: torch.addmm(c, a, b, beta=0))
add("Conv with infinities", [PLANE, [[[[1, 0], [0, 1]]]]], lambda g, x, w: g("Conv", x, w, pads=[1, 1, 1, 1]), lambda x, w: F.conv2d(x, w, padding=1))

# --- what moves elements ---

INFINITE = numpy.array([[1, INF, 3], [NAN, 5, -INF], [7, 8, 9]], "f4")
add("Trilu, upper, with inf", [INFINITE], lambda g, x: g("Trilu", x, upper=1), torch.triu)
add("Trilu, lower, with inf", [INFINITE], lambda g, x: g("Trilu", x, ints(-1)[0], upper=0), lambda x: torch.tril(x, -1))
add("Exp of Trilu", [[[1, 100], [100, 2]]], lambda g, x: g("Exp", g("Trilu", x, upper=1)), lambda x: torch.exp(torch.triu(x)))
add("Trilu of Exp", [[[1, 100], [100, 2]]], lambda g, x: g("Trilu", g("Exp", x), upper=1), lambda x: torch.triu(torch.exp(x)))
add("Gather, negative", [INFINITE], lambda g, x: g("Gather", x, ints(-1, 0, -1), axis=0), lambda x: x[[-1, 0, -1]])
add("GatherElements, negative", [INFINITE], lambda g, x: g("GatherElements", x, ints(-1, 0, -2).reshape(3, 1), axis=1), lambda x: torch.gather(x, 1, torch.tensor([[2], [0], [1]])))
add("GatherND, negative", [INFINITE], lambda g, x: g("GatherND", x, ints(-1, 0, 0, -1).reshape(2, 2)), lambda x: x[[-1, 0], [0, -1]])
add("ScatterElements, negative", [INFINITE, [[1], [2], [3]]], lambda g, x, u: g("ScatterElements", x, ints(-1, 0, -2).reshape(3, 1), u, axis=1),
    lambda x, u: torch.scatter(x, 1, torch.tensor([[2], [0], [1]]), u))
add("Slice, negative step", [INFINITE], lambda g, x: g("Slice", x, ints(-1), ints(-100), ints(0), ints(-1)), lambda x: x.flip(0))
add("Pad constant", [INFINITE], lambda g, x: g("Pad", x, ints(1, 0, 0, 2), scalar(INF)), lambda x: F.pad(x, (0, 2, 1, 0), value=INF))
add("Pad negative", [INFINITE], lambda g, x: g("Pad", x, ints(-1, 0, 0, 1)), lambda x: F.pad(x, (0, 1, -1, 0)))
for mode, torch_mode in (("reflect", "reflect"), ("edge", "replicate"), ("wrap", "circular")):
    add(f"Pad {mode}", [INFINITE.reshape(1, 3, 3)], lambda g, x, m=mode: g("Pad", x, ints(0, 0, 2, 0, 0, 1), mode=m), lambda x, m=torch_mode: F.pad(x, (2, 1), mode=m))
add("Expand", [INFINITE[:, :1].copy()], lambda g, x: g("Expand", x, ints(3, 2)), lambda x: x.expand(3, 2))
add("Tile", [INFINITE], lambda g, x: g("Tile", x, ints(2, 1)), lambda x: x.repeat(2, 1))
add("Concat and Split", [INFINITE], lambda g, x: g("Concat", *g("Split", x, ints(1, 2), axis=1, outputs=2)[::-1], axis=1), lambda x: torch.cat([x[:, 1:], x[:, :1]], 1))
add("Compress", [INFINITE], lambda g, x: g("Compress", x, numpy.array([True, False, True]), axis=0), lambda x: x[[0, 2]])
add("ReverseSequence", [INFINITE], lambda g, x: g("ReverseSequence", x, ints(1, 2, 3), batch_axis=0, time_axis=1),
    lambda x: torch.stack([torch.cat([x[i, :i + 1].flip(0), x[i, i + 1:]]) for i in range(3)]))
add("Einsum", [INFINITE, INFINITE.T.copy()], lambda g, a, b: g("Einsum", a, b, equation="ij,jk->ik"), lambda a, b: torch.einsum("ij,jk->ik", a, b))
add("Einsum, sums and diagonals", [[[1, 0], [0, 2]], [3, 0]], lambda g, a, b: g("Einsum", a, b, equation="ii,j->i"), lambda a, b: torch.einsum("ii,j->i", a, b))
for ratio in (0.0, 0.5):
    add(f"Dropout off, ratio {ratio}", [REAL], lambda g, x, r=ratio: g("Dropout", x, scalar(r), numpy.array(False)), lambda x: x * 1)
add("Dropout, ratio 0", [REAL], lambda g, x: g("Dropout", x, scalar(0), numpy.array(True)), lambda x: F.dropout(x, 0.0))

# --- images ---

IMAGE = numpy.arange(1, 17, dtype="f4").reshape(1, 1, 4, 4)
GRID = numpy.array([[-1, -1], [1, 1], [0, 0], [-1.5, 0], [0, 1.5], [-0.75, 0.25], [1.25, -1.25], [3, 3], [-5, 0.1], [0.25, 0.25]], "f4").reshape(1, 2, 5, 2)
for mode in ("bilinear", "nearest", "bicubic"):
    for padding in ("zeros", "border", "reflection"):
        for aligned in (0, 1):
            onnx_mode = {"bilinear": "linear", "nearest": "nearest", "bicubic": "cubic"}[mode]
            add(f"GridSample {mode} {padding} {aligned}", [IMAGE, GRID],
                lambda g, x, p, m=onnx_mode, d=padding, a=aligned: g("GridSample", x, p, mode=m, padding_mode=d, align_corners=a),
                lambda x, p, m=mode, d=padding, a=aligned: F.grid_sample(x, p, m, d, bool(a)))
for mode in ("nearest", "linear", "cubic"):
    for coordinates, aligned in (("asymmetric", None), ("pytorch_half_pixel", False), ("align_corners", True)):
        if (mode == "nearest") != (coordinates == "asymmetric"):
            continue
        more = {"nearest": {"nearest_mode": "floor"}, "linear": {}, "cubic": {"cubic_coeff_a": -0.75}}[mode]
        torch_mode = {"nearest": "nearest", "linear": "bilinear", "cubic": "bicubic"}[mode]
        for size in ((7, 5), (2, 3), (1, 1)):
            if size == (1, 1) and coordinates == "pytorch_half_pixel":
                continue  # which ONNX puts at the first pixel, PyTorch in the middle
            add(f"Resize {mode} {coordinates} {size[0]}x{size[1]}", [IMAGE],
                lambda g, x, m=mode, c=coordinates, s=size, k=more: g("Resize", x, None, None, ints(1, 1, *s), mode=m, coordinate_transformation_mode=c, **k),
                lambda x, m=torch_mode, s=size, a=aligned: F.interpolate(x, size=s, mode=m, align_corners=a))


def by_onnxruntime(node, shape):
    """The function of a node whose results depend on its input by sums of products only, as ONNX Runtime has it."""
    def function(x):
        import onnxruntime
        from edges import Graph, onnx_model
        graph = Graph()
        result = node(graph, "x")
        session = onnxruntime.InferenceSession(onnx_model(graph, {"x": shape}, {result: None}, 18).SerializeToString(),
                                               providers=["CPUExecutionProvider"])

        def resized(values):
            return session.run(None, {"x": values.astype(numpy.float32)})[0]

        at_zero = resized(numpy.zeros(shape))
        rows = [(resized(one.reshape(shape)) - at_zero).ravel() for one in numpy.eye(int(numpy.prod(shape)))]
        return (x.flatten() @ torch.tensor(numpy.array(rows)) + torch.tensor(at_zero.ravel())).reshape(at_zero.shape)
    return function


def cropped(g, x, mode, roi, sizes, value, axes):
    more = {"nearest": {"nearest_mode": "floor"}}.get(mode, {})
    if axes:
        more["axes"] = axes
    if value:
        more["extrapolation_value"] = value
    return g("Resize", x, floats(*roi), None, ints(*sizes), mode=mode, coordinate_transformation_mode="tf_crop_and_resize", **more)


for mode, shape, roi, sizes, axes in (
        ("nearest", (1, 1, 5, 4), (0, 0, 0.1, 0.2, 1, 1, 0.8, 1.1), (1, 1, 3, 7), None),
        ("nearest", (1, 1, 5, 4), (-0.3, 0.2, 1.2, 0.9), (4, 3), [2, 3]),
        ("nearest", (1, 1, 6), (0, 0, -0.5, 1, 1, 1.5), (1, 1, 9), None),
        ("nearest", (1, 1, 2, 3, 2), (0, 0, 0, -0.1, 0, 1, 1, 1, 1.2, 1.4), (1, 1, 2, 5, 3), None),
        ("nearest", (1, 1, 4, 4), (0, 0, 2, 2, 1, 1, 3, 3), (1, 1, 2, 2), None),
        ("linear", (1, 1, 5, 4), (0, 0, 0.1, 0.2, 1, 1, 0.8, 1.1), (1, 1, 3, 7), None),
        ("linear", (1, 1, 5, 4), (0, 0, -0.2, 0, 1, 1, 1.2, 1), (1, 1, 6, 2), None),
        ("cubic", (1, 1, 5, 4), (0, 0, 0.1, -0.2, 1, 1, 0.8, 1.1), (1, 1, 3, 7), None)):
    for value in (0.0, 5.0):
        def node(g, x, m=mode, r=roi, s=sizes, v=value, a=axes):
            return cropped(g, x, m, r, s, v, a)
        name = f"Resize cropped {mode} {'x'.join(map(str, shape))} to {'x'.join(map(str, sizes))}, {value:g}"
        add(name, [numpy.arange(1, 1 + numpy.prod(shape), dtype="f4").reshape(shape)], node, by_onnxruntime(node, shape))
