"""The cases of edges.py: ONNX's operators one by one, and what PyTorch computes for the same inputs."""
import math

import numpy
import torch
from torch.nn import functional as F

from edges import Case

INF, NAN = math.inf, math.nan
CASES = []

# Zeros of both signs, moderate numbers, where exp and squares overflow or vanish, infinities, NaN.
REAL = [0.0, -0.0, 1, -1, 2, -2, 0.5, -0.5, 3, -3, 1e-20, -1e-20, 1e-6, -1e-6, 20.5, -20.5, 88.5, -88.5, 100, -100, 105, -105, 1e10,
        -1e10, 1e20, -1e20, 1e37, -1e37, INF, -INF, NAN]


def add(name, values, node, function, opset=20):
    CASES.append(Case(name, values, node, function, opset))


def ints(*values):
    return numpy.array(values, numpy.int64)


def floats(*values):
    return numpy.array(values, numpy.float32)


def scalar(value):
    return numpy.array(value, numpy.float32)


def unary(kind, function, values=None, opset=20, **attributes):
    name = kind + "".join(f" {key}={value}" for key, value in attributes.items())
    add(name, [REAL if values is None else values], lambda g, x: g(kind, x, **attributes), function, opset)


# --- elementwise, one operand ---

unary("Abs", torch.abs)
unary("Sign", torch.sign, [v for v in REAL if v == v])
unary("Neg", torch.neg)
unary("Reciprocal", torch.reciprocal)
unary("Sqrt", torch.sqrt)
unary("Exp", torch.exp)
unary("Log", torch.log)
unary("Erf", torch.erf)
unary("Sin", torch.sin, [v for v in REAL if abs(v) < 1e4 or not math.isfinite(v)])
unary("Cos", torch.cos, [v for v in REAL if abs(v) < 1e4 or not math.isfinite(v)])
unary("Tan", torch.tan, [v for v in REAL if abs(v) < 50 or not math.isfinite(v)])
unary("Sinh", torch.sinh)
unary("Cosh", torch.cosh)
unary("Tanh", torch.tanh)
unary("Asin", torch.asin, REAL + [0.999999, -0.999999])
unary("Acos", torch.acos, REAL + [0.999999, -0.999999])
unary("Atan", torch.atan)
unary("Asinh", torch.asinh)
unary("Acosh", torch.acosh, [1, 1.000001, 1.5, 2, 100, 1e10, 1e20, 1e37])
unary("Atanh", torch.atanh, REAL + [0.999999, -0.999999])
unary("Floor", torch.floor)
unary("Ceil", torch.ceil)
unary("Round", torch.round, REAL + [1.5, 2.5])
unary("Relu", torch.relu)
unary("Sigmoid", torch.sigmoid)
unary("Softplus", F.softplus)
unary("Gelu", F.gelu, [v for v in REAL if v < INF])
unary("Gelu", lambda x: F.gelu(x, approximate="tanh"), approximate="tanh")
unary("Softsign", F.softsign)
unary("HardSwish", F.hardswish)
unary("HardSigmoid", F.hardsigmoid, alpha=1 / 6, beta=0.5)
unary("Mish", F.mish)
unary("ThresholdedRelu", lambda x: F.threshold(x, 2.0, 0.0), alpha=2.0)
unary("Celu", lambda x: F.celu(x, 0.5), alpha=0.5)
unary("Elu", lambda x: F.elu(x, 0.5), alpha=0.5)
unary("Selu", F.selu)
unary("LeakyRelu", lambda x: F.leaky_relu(x, 0.1), alpha=0.1)
unary("Shrink", lambda x: F.softshrink(x, 0.5), lambd=0.5, bias=0.5)
unary("Shrink", lambda x: F.hardshrink(x, 0.5), lambd=0.5)
unary("Swish", F.silu, opset=24)
unary("Identity", lambda x: x * 1)
add("Cast to and from f64", [REAL], lambda g, x: g("Cast", g("Cast", x, to=11), to=1), lambda x: x.double().float())
add("IsNaN in Where", [REAL], lambda g, x: g("Where", g("IsNaN", x), scalar(7), x), lambda x: torch.where(torch.isnan(x), 7.0, x))
add("IsInf in Where", [REAL], lambda g, x: g("Where", g("IsInf", x), scalar(7), x), lambda x: torch.where(torch.isinf(x), 7.0, x))

# --- elementwise, two operands ---

PAIRS = [(a, b) for a in (0.0, -0.0, 1, -1, 2.5, -2, 3, 1e-30, 1e30, INF, -INF) for b in
         (0.0, -0.0, 1, -1, 2, -2, 0.5, 3, -2.5, 1e30, INF, -INF)]
LEFT, RIGHT = [a for a, _ in PAIRS], [b for _, b in PAIRS]


def binary(kind, function, left=LEFT, right=RIGHT, **attributes):
    name = kind + "".join(f" {key}={value}" for key, value in attributes.items())
    add(name, [left, right], lambda g, a, b: g(kind, a, b, **attributes), function)


FINITE = [(a, b) for a, b in PAIRS if math.isfinite(a) and math.isfinite(b) and b != 0]
binary("Add", torch.add)
binary("Sub", torch.sub)
binary("Mul", torch.mul)
binary("Div", torch.div)
binary("Pow", torch.pow)
binary("Max", torch.maximum)
binary("Min", torch.minimum)
binary("PRelu", torch._prelu_kernel)
binary("Mod", torch.fmod, fmod=1)
for power in (0, 0.0, 1, 2, 3, 4, 0.5, -1, -2, -0.5, 1.5, 2.5, INF):
    add(f"Pow, exponent {power!r}", [[v for v in REAL if math.copysign(1, v) > 0 or v < 0 and v != -INF]], lambda g, x, p=power: g("Pow", x, ints(p)[0] if isinstance(p, int) else scalar(p)),
        lambda x, p=power: x.pow(p))
for base in (0.0, 1.0, 2.0, -2.0, INF):
    add(f"Pow, base {base}", [REAL], lambda g, x, b=base: g("Pow", scalar(b), x), lambda x, b=base: torch.pow(b, x))
add("Pow, exponent shared", [[[0, 1, 2], [3, 0, 0]], [0, 2, 0]], lambda g, x, p: g("Pow", x, p), torch.pow)
add("Clip", [REAL], lambda g, x: g("Clip", x, scalar(-1), scalar(2)), lambda x: x.clamp(-1, 2))
add("Clip, least", [REAL], lambda g, x: g("Clip", x, scalar(0)), lambda x: x.clamp(min=0))
add("Clip, most", [REAL], lambda g, x: g("Clip", x, None, scalar(0)), lambda x: x.clamp(max=0))
add("Clip, crossed", [REAL], lambda g, x: g("Clip", x, scalar(2), scalar(-1)), lambda x: x.clamp(2, -1))
add("Clip, 0 to 6", [REAL + [6]], lambda g, x: g("Clip", x, scalar(0), scalar(6)), lambda x: F.hardtanh(x, 0, 6), 13)
add("Max with a constant", [REAL], lambda g, x: g("Max", x, scalar(1)), lambda x: torch.maximum(x, torch.tensor(1.0)))
add("Min with a constant", [REAL], lambda g, x: g("Min", scalar(1), x), lambda x: torch.minimum(torch.tensor(1.0), x))
add("Max of three", [[1, 2, 3, 4], [1, 1, 3, 5], [0, 2, 3, 0]], lambda g, a, b, c: g("Max", a, b, c),
    lambda a, b, c: torch.maximum(torch.maximum(a, b), c))
add("Sum of three", [[1, INF, INF], [1, 1, -INF], [0, 2, 3]], lambda g, a, b, c: g("Sum", a, b, c), lambda a, b, c: a + b + c)
add("Mean of three", [[1, INF, INF], [1, 1, -INF], [0, 2, 3]], lambda g, a, b, c: g("Mean", a, b, c), lambda a, b, c: (a + b + c) / 3)
add("Where, NaN not chosen", [[1, 2, 3], [NAN, INF, 0]], lambda g, a, b: g("Where", numpy.array([True, True, False]), a, b),
    lambda a, b: torch.where(torch.tensor([True, True, False]), a, b))
add("Where before Log", [[1, 0, -3, INF]], lambda g, x: g("Log", g("Where", g("Greater", x, scalar(0)), x, scalar(1))),
    lambda x: torch.log(torch.where(x > 0, x, 1.0)))
add("Log before Where", [[1, 0, -3, INF]], lambda g, x: g("Where", g("Greater", x, scalar(0)), g("Log", x), scalar(0)),
    lambda x: torch.where(x > 0, torch.log(x), 0.0))
add("Sqrt before Where", [[1, 0, -3, INF]], lambda g, x: g("Where", g("Greater", x, scalar(0)), g("Sqrt", x), scalar(0)),
    lambda x: torch.where(x > 0, torch.sqrt(x), 0.0))
add("Log after Relu", [[1, 0, -3, INF]], lambda g, x: g("Log", g("Relu", x)), lambda x: torch.log(torch.relu(x)))
add("Sqrt after Relu", [[1, 0, -3, INF]], lambda g, x: g("Sqrt", g("Relu", x)), lambda x: torch.sqrt(torch.relu(x)))
add("Reciprocal after Clip", [[1, 0, -3, INF]], lambda g, x: g("Reciprocal", g("Clip", x, scalar(0))),
    lambda x: torch.reciprocal(torch.clamp(x, min=0)))
add("Log after Max", [[1, 0, -3], [0, 0, 2]], lambda g, x, y: g("Log", g("Max", x, y)), lambda x, y: torch.log(torch.maximum(x, y)))
add("Log after HardSigmoid", [[1, 0, -3, -9, 9, INF]], lambda g, x: g("Log", g("HardSigmoid", x, alpha=1 / 6, beta=0.5)),
    lambda x: torch.log(F.hardsigmoid(x)))
add("Log after Abs", [[1, 0, -3, INF]], lambda g, x: g("Log", g("Abs", x)), lambda x: torch.log(torch.abs(x)))
add("Sqrt after square", [[1, 0, -3, INF]], lambda g, x: g("Sqrt", g("Mul", x, x)), lambda x: torch.sqrt(x * x))
add("Log of Sigmoid", [REAL], lambda g, x: g("Log", g("Sigmoid", x)), F.logsigmoid)
add("Log of Softmax", [[[1, 2, -200], [0, -INF, 3]]], lambda g, x: g("Log", g("Softmax", x, axis=-1)), lambda x: F.log_softmax(x, -1))
add("SwiGLU by hand", [REAL, REAL[::-1]], lambda g, a, b: g("Mul", g("Mul", a, g("Sigmoid", a)), b), lambda a, b: a * torch.sigmoid(a) * b)

add("Log of 1 - Sigmoid", [REAL], lambda g, x: g("Log", g("Sub", scalar(1), g("Sigmoid", x))), lambda x: F.logsigmoid(-x))
add("binary cross-entropy by hand", [[0.0, 1, 0.5, 0.25]],
    lambda g, x: g("Neg", g("Add", g("Mul", floats(0, 1, 1, 0), g("Max", g("Log", x), scalar(-100))),
                            g("Mul", floats(1, 0, 0, 1), g("Max", g("Log", g("Sub", scalar(1), x)), scalar(-100))))),
    lambda x: -torch.log(torch.where(torch.tensor([False, True, True, False]), x, 1 - x)))
add("Pow as in fault 06", [[-2, 0, 3, 0], [2, 2, 2, 0]], lambda g, x, p: g("Pow", x, p), torch.pow)

# --- reductions ---

ROWS = [[0, 0, 0], [1, 0, 2], [0, 3, 0], [-1, -1, -1], [2, 2, 1], [INF, 1, 0], [-INF, 1, 0], [INF, -INF, 1], [INF, INF, 0], [-INF, -INF, -INF],
        [1e-30, 0, -1e-30], [100, 90, -100]]


def reduce(kind, function, values=ROWS, axis=1, opset=20, **attributes):
    add(f"{kind}, axis {axis}", [values], lambda g, x: g(kind, x, ints(axis), keepdims=0, **attributes), lambda x: function(x, axis), opset)


for axis in (1, 0):
    reduce("ReduceL1", lambda x, d: torch.linalg.vector_norm(x, 1, d), axis=axis)
    reduce("ReduceL2", lambda x, d: torch.linalg.vector_norm(x, 2, d), axis=axis)
    reduce("ReduceSum", lambda x, d: x.sum(d), axis=axis)
    reduce("ReduceMean", lambda x, d: x.mean(d), axis=axis)
    reduce("ReduceSumSquare", lambda x, d: (x * x).sum(d), axis=axis)
    reduce("ReduceLogSum", lambda x, d: torch.log(x.sum(d)), axis=axis)
    reduce("ReduceLogSumExp", lambda x, d: torch.logsumexp(x, d), axis=axis)
    reduce("ReduceMax", lambda x, d: torch.amax(x, d), axis=axis)
    reduce("ReduceMin", lambda x, d: torch.amin(x, d), axis=axis)
    reduce("ReduceProd", lambda x, d: torch.prod(x, d), [row for row in ROWS if INF not in row and -INF not in row], axis=axis)
add("ReduceL2 of one", [[v for v in REAL if abs(v) < 1e15]], lambda g, x: g("ReduceL2", g("Reshape", x, ints(-1, 1)), ints(1), keepdims=0),
    lambda x: torch.linalg.vector_norm(x.reshape(-1, 1), 2, 1))
add("ReduceL2 of all", [numpy.zeros((2, 3))], lambda g, x: g("ReduceL2", x, keepdims=0), torch.linalg.vector_norm)
add("ReduceL2 of two axes", [[[[0, 0], [0, 0]], [[1, 2], [0, 0]]]], lambda g, x: g("ReduceL2", x, ints(1, 2), keepdims=1),
    lambda x: torch.linalg.vector_norm(x, dim=(1, 2), keepdim=True))
add("ReduceL2, opset 11", [ROWS], lambda g, x: g("ReduceL2", x, axes=[1], keepdims=0), lambda x: torch.linalg.vector_norm(x, 2, 1), 11)
SHORT = [[0, 0, 0], [1, 0, 2], [3, 4, 0], [0, -1, 0]]
LONG = [[0, 0, 0], [0, 1, 0], [3, 4, 0], [0, 1, 0]]


def sum_of_squares(g, x):
    return g("ReduceSum", g("Mul", x, x), ints(1), keepdims=0)


def std(g, x):
    distance = g("Sub", x, g("ReduceMean", x, ints(1), keepdims=1))
    mean = g("ReduceMean", g("Mul", distance, distance), ints(1), keepdims=0)
    return g("Sqrt", g("Div", g("Mul", mean, scalar(3)), scalar(2)))


# As exporters write them.
add("norm of order 3 by hand", [SHORT], lambda g, x: g("Pow", g("ReduceSum", g("Pow", g("Abs", x), scalar(3)), ints(1), keepdims=0), scalar(1 / 3)),
    lambda x: torch.linalg.vector_norm(x, 3, 1))
add("norm of order 2.5 by hand", [SHORT], lambda g, x: g("Pow", g("ReduceSum", g("Pow", g("Abs", x), scalar(2.5)), ints(1), keepdims=0), scalar(0.4)),
    lambda x: torch.linalg.vector_norm(x, 2.5, 1))
add("std by hand", [SHORT + [[2, 2, 2]]], std, lambda x: x.std(1))
add("cosine_similarity by hand", [SHORT, LONG],
    lambda g, x, y: g("Div", g("ReduceSum", g("Mul", x, y), ints(1), keepdims=0),
                      g("Max", g("Sqrt", g("Mul", sum_of_squares(g, x), sum_of_squares(g, y))), scalar(1e-8))),
    lambda x, y: F.cosine_similarity(x, y, dim=1))
add("pairwise_distance by hand", [SHORT, LONG],
    lambda g, x, y: g("Pow", g("ReduceSum", g("Pow", g("Sub", x, y), scalar(2)), ints(1), keepdims=0), scalar(0.5)),
    lambda x, y: F.pairwise_distance(x, y, eps=0))
add("Sqrt of ReduceSumSquare", [ROWS], lambda g, x: g("Sqrt", g("ReduceSumSquare", x, ints(1), keepdims=0)),
    lambda x: torch.sqrt((x * x).sum(1)))
add("ReduceProd of all", [[[2, 0, 3], [1, 4, 5]]], lambda g, x: g("ReduceProd", x, keepdims=0), torch.prod)
add("ReduceProd of two axes", [[[[2, 0], [3, 1]], [[0, 1], [0, 5]], [[1, 2], [3, 4]]]], lambda g, x: g("ReduceProd", x, ints(1, 2), keepdims=0),
    lambda x: x.flatten(1).prod(1))
add("ReduceProd, axes apart", [numpy.array([1, 2, 0, 3, 0, 0, 5, 6], "f4").reshape(2, 2, 2)], lambda g, x: g("ReduceProd", x, ints(0, 2), keepdims=1),
    lambda x: x.prod(0, keepdim=True).prod(2, keepdim=True))
add("ReduceProd of one", [[[0], [2]]], lambda g, x: g("ReduceProd", x, ints(1), keepdims=0), lambda x: x.prod(1))
add("ReduceMax, all equal", [[[2, 2], [2, 2]]], lambda g, x: g("ReduceMax", x, keepdims=0), torch.amax)
add("ReduceLogSumExp of one", [REAL], lambda g, x: g("ReduceLogSumExp", g("Reshape", x, ints(-1, 1)), ints(1), keepdims=0),
    lambda x: torch.logsumexp(x.reshape(-1, 1), 1))
add("CumSum", [ROWS], lambda g, x: g("CumSum", x, ints(1)[0]), lambda x: x.cumsum(1))
PRODUCTS = [[0, 0, 0], [1, 0, 2], [0, 3, 4], [2, 3, 0], [2, 0, 0], [-1, 2, 3]]
add("CumProd", [PRODUCTS], lambda g, x: g("CumProd", x, ints(1)[0]), lambda x: x.cumprod(1), 26)
add("ArgMax of ties", [[[2, 2, 1], [NAN, 1, 2]]], lambda g, x: g("Mul", g("Cast", g("ArgMax", x, axis=1, keepdims=0), to=1), g("ReduceSum", x, ints(1), keepdims=0)),
    lambda x: x.argmax(1).float() * x.sum(1))
add("TopK of ties", [[[2, 2, 1, 2], [3, 1, 3, 0]]], lambda g, x: g("TopK", x, ints(2), axis=1, outputs=2)[0],
    lambda x: torch.sort(x, dim=1, descending=True, stable=True).values[:, :2])
add("TopK with infinities", [[[INF, 2, -INF, 2.5], [-INF, -INF, 3, 0]]], lambda g, x: g("TopK", x, ints(3), axis=1, outputs=2)[0],
    lambda x: torch.sort(x, dim=1, descending=True, stable=True).values[:, :3])
add("LpNormalization 2", [ROWS], lambda g, x: g("LpNormalization", x, axis=1, p=2), lambda x: x / torch.where((n := torch.linalg.vector_norm(x, 2, 1, keepdim=True)) == 0, INF, n))
add("LpNormalization 1", [ROWS], lambda g, x: g("LpNormalization", x, axis=1, p=1), lambda x: x / torch.where((n := torch.linalg.vector_norm(x, 1, 1, keepdim=True)) == 0, INF, n))
add("normalize by hand", [ROWS], lambda g, x: g("Div", x, g("Clip", g("ReduceL2", x, ints(1), keepdims=1), scalar(1e-12))), lambda x: F.normalize(x, dim=1))
add("Det", [[[[0, 0], [0, 0]], [[1, 2], [2, 4]], [[1, 2], [3, 4]], [[0, 1], [1, 0]]]], lambda g, x: g("Det", x), torch.linalg.det, 22)
