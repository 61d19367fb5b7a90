"""Cases of edges.py that PyTorch's exporters write: functions of torch and torch.nn.functional at the edges of their domains."""
import contextlib
import io
import logging
import warnings

import numpy
import torch
from torch.nn import functional as F

from edge_cases import CASES, INF, NAN, PRODUCTS, REAL, ROWS
from edge_layers import CONSTANT, GRID, IMAGE, LOGITS, MASK, PLANE, RANDOM
from edges import Case

POSITIVE = [0.0, 1e-30, 1e-6, 0.5, 1, 2, 50, 1e10, 1e30, INF]
UNIT = [0.0, 1e-30, 0.25, 0.5, 0.999, 1]
ZERO = [[0, 0, 0], [1, 0, 2], [3, 4, 0], [0, -1, 0]]
OTHER = [[0, 0, 0], [0, 1, 0], [3, 4, 0], [0, 1, 0]]
TARGET = [[0.0, 1, 0.5], [1, 0, 1], [0, 0, 0], [1, 1, 1]]
MODERATE = [[0.0, 1, -1], [50, -50, 120], [-120, 0, 2], [1e-6, 30, -30]]


def constant(values):
    return torch.tensor(numpy.asarray(values, "f4"))


# name: inputs, function
FUNCTIONS = {
    "normalize": ([ZERO], lambda x: F.normalize(x, dim=1)),
    "normalize p=1": ([ZERO], lambda x: F.normalize(x, p=1.0, dim=1)),
    "normalize p=3": ([ZERO], lambda x: F.normalize(x, p=3.0, dim=1)),
    "norm": ([ZERO], lambda x: torch.norm(x, dim=1)),
    "norm of all": ([[[0, 0], [0, 0]]], lambda x: x.norm()),
    "norm p=1": ([ZERO], lambda x: torch.norm(x, p=1, dim=1)),
    "norm p=3": ([ZERO], lambda x: torch.norm(x, p=3, dim=1)),
    "norm p=inf": ([ZERO], lambda x: torch.norm(x, p=INF, dim=1)),
    "vector_norm": ([ZERO], lambda x: torch.linalg.vector_norm(x, dim=1)),
    "vector_norm p=0.5": ([ZERO[1:2]], lambda x: torch.linalg.vector_norm(x.abs() + 1, 0.5, dim=1)),
    "linalg.norm of all": ([ZERO], lambda x: torch.linalg.norm(x)),
    "sqrt of sum of squares": ([ZERO], lambda x: torch.sqrt((x ** 2).sum(1))),
    "cosine_similarity": ([ZERO, OTHER], lambda x, y: F.cosine_similarity(x, y, dim=1)),
    "pairwise_distance": ([ZERO, OTHER], lambda x, y: F.pairwise_distance(x, y)),
    "pairwise_distance, eps 0": ([ZERO, OTHER], lambda x, y: F.pairwise_distance(x, y, eps=0.0)),
    "cdist": ([ZERO, OTHER[1:3]], lambda x, y: torch.cdist(x, y)),
    "logsigmoid": ([REAL], F.logsigmoid),
    "softplus": ([REAL], F.softplus),
    "softplus beta": ([REAL], lambda x: F.softplus(x, beta=2.0, threshold=5.0)),
    "silu": ([REAL], F.silu),
    "gelu": ([[v for v in REAL if v < INF]], F.gelu),
    "gelu tanh": ([REAL], lambda x: F.gelu(x, approximate="tanh")),
    "mish": ([REAL], F.mish),
    "hardtanh": ([REAL], F.hardtanh),
    "relu6": ([REAL + [6]], F.relu6),
    "elu": ([REAL], F.elu),
    "celu": ([REAL], F.celu),
    "selu": ([REAL], F.selu),
    "leaky_relu": ([REAL], F.leaky_relu),
    "hardswish": ([REAL + [3, -3]], F.hardswish),
    "hardsigmoid": ([REAL + [3, -3]], F.hardsigmoid),
    "softsign": ([REAL], F.softsign),
    "tanhshrink": ([REAL], F.tanhshrink),
    "softshrink": ([REAL], F.softshrink),
    "hardshrink": ([REAL], F.hardshrink),
    "threshold": ([REAL], lambda x: F.threshold(x, 0.5, 7.0)),
    "prelu": ([REAL, [0.25]], F.prelu),
    "glu": ([[[0, 1, 200, -200], [INF, 1, -INF, 1]]], lambda x: F.glu(x, -1)),
    "sinh": ([REAL], torch.sinh),
    "asinh": ([REAL], torch.asinh),
    "acosh": ([[v for v in REAL if v >= 1 and v < INF]], torch.acosh),
    "atanh": ([REAL], torch.atanh),
    "log1p": ([REAL], torch.log1p),
    "expm1": ([REAL], torch.expm1),
    "log2": ([REAL], torch.log2),
    "log10": ([REAL], torch.log10),
    "exp2": ([REAL], torch.exp2),
    "rsqrt": ([REAL], torch.rsqrt),
    "square": ([REAL], torch.square),
    "sigmoid": ([REAL], torch.sigmoid),
    "logit": ([UNIT], lambda x: torch.logit(x, 1e-6)),
    "xlogy": ([POSITIVE, [0.0] * 5 + [1] * 5], torch.xlogy),
    "entropy": ([UNIT], lambda x: torch.special.entr(x)),
    "atan2": ([[0.0, 0, 1, -1, 0, 1, -1, 2], [0.0, 1, 0, 0, -1, 1, -1, -3]], torch.atan2),
    "hypot": ([[0.0, 0, 3, 1], [0.0, 1, 4, 0]], torch.hypot),
    "logaddexp": ([[0.0, -INF, -INF, 100, INF], [0.0, 1, -INF, -100, 1]], torch.logaddexp),
    "sinc": ([[0.0, 0.5, 1]], torch.sinc),
    "fmod": ([[5.0, -5, 0, 3], [3.0, 3, 3, -2]], torch.fmod),
    "remainder": ([[5.0, -5, 0, 3], [3.0, 3, 3, -2]], torch.remainder),
    "float_power": ([[0.0, 2, 3], [0.0, 0, 2]], lambda x, y: torch.float_power(x, y).float()),
    "pow of tensors": ([[-2.0, 0, 3, 0, 0, 1], [2.0, 2, 2, 0, 1, 0]], torch.pow),
    "pow 0": ([REAL], lambda x: x ** 0),
    "pow 0.5": ([POSITIVE], lambda x: x ** 0.5),
    "pow 1.5": ([POSITIVE], lambda x: x ** 1.5),
    "pow 4": ([REAL], lambda x: x ** 4),
    "pow -1": ([REAL], lambda x: x ** -1),
    "pow -2": ([REAL], lambda x: x ** -2),
    "pow -0.5": ([POSITIVE], lambda x: x ** -0.5),
    "2 to the power": ([REAL], lambda x: 2.0 ** x),
    "0 to the power": ([POSITIVE], lambda x: torch.pow(0.0, x)),
    "clamp": ([REAL], lambda x: x.clamp(-1, 2)),
    "clamp by tensors": ([[-2.0, -1, 0, 2, 3], [-1.0, -1, -1, 2, 5], [2.0, 2, 0, 2, 4]], lambda x, a, b: torch.clamp(x, a, b)),
    "clamp_min": ([REAL], lambda x: x.clamp_min(0)),
    "maximum": ([[1.0, 2, 3], [1.0, 1, 4]], torch.maximum),
    "minimum": ([[1.0, 2, 3], [1.0, 1, 4]], torch.minimum),
    "where": ([[1.0, 0, -1], [NAN, INF, 2]], lambda x, y: torch.where(x > -1, x, y)),
    "nan_to_num": ([REAL], lambda x: torch.nan_to_num(x, 0.0, 5.0, -5.0)),
    "masked_fill": ([REAL], lambda x: x.masked_fill(x < 0, 0.5)),
    "abs": ([REAL], torch.abs),
    "amax": ([ROWS], lambda x: x.amax(1)),
    "amin": ([ROWS], lambda x: x.amin(1)),
    "max of a dimension": ([ROWS], lambda x: x.max(1).values),
    "min of a dimension": ([ROWS], lambda x: x.min(1).values),
    "max of all": ([[[1, 2], [2, 0]]], lambda x: x.max()),
    "sum": ([ROWS], lambda x: x.sum(1)),
    "mean": ([ROWS], lambda x: x.mean(1)),
    "prod": ([PRODUCTS], lambda x: x.prod(1)),
    "cumsum": ([ROWS], lambda x: x.cumsum(1)),
    "cumprod": ([PRODUCTS], lambda x: x.cumprod(1)),
    "std": ([CONSTANT], lambda x: x.std(1)),
    "std, biased": ([CONSTANT], lambda x: x.std(1, unbiased=False)),
    "var": ([CONSTANT], lambda x: x.var(1)),
    "logsumexp": ([LOGITS], lambda x: torch.logsumexp(x, 1)),
    "softmax": ([LOGITS], lambda x: F.softmax(x, 1)),
    "log_softmax": ([LOGITS], lambda x: F.log_softmax(x, 1)),
    "softmin": ([LOGITS], lambda x: F.softmin(x, 1)),
    "log of softmax": ([LOGITS[:4]], lambda x: torch.log(F.softmax(x, 1))),
    "softmax of masked rows": ([RANDOM[0, :, :, :3].copy()], lambda x: F.softmax(x.masked_fill(~torch.tensor(MASK), -INF), -1)),
    "cross_entropy": ([LOGITS[:4]], lambda x: F.cross_entropy(x, torch.tensor([0, 2, 2, 2]), reduction="none")),
    "cross_entropy, smoothed": ([LOGITS[:2]], lambda x: F.cross_entropy(x, torch.tensor([0, 2]), label_smoothing=0.1)),
    "cross_entropy, probabilities": ([LOGITS[:2]], lambda x: F.cross_entropy(x, constant([[0, 0, 1], [0.5, 0.5, 0]]))),
    "cross_entropy, ignored": ([LOGITS[:4]], lambda x: F.cross_entropy(x, torch.tensor([0, -100, 2, 2]))),
    "binary_cross_entropy": ([UNIT, ], lambda x: F.binary_cross_entropy(x, constant([0, 1, 0.5, 1, 0, 1]), reduction="none")),
    "binary_cross_entropy, wrong": ([[0.0, 1, 0, 1]], lambda x: F.binary_cross_entropy(x, constant([1, 0, 0.5, 0.5]), reduction="none")),
    "binary_cross_entropy_with_logits": ([MODERATE], lambda x: F.binary_cross_entropy_with_logits(x, constant(TARGET), reduction="none")),
    "binary_cross_entropy_with_logits, pos_weight": ([MODERATE], lambda x: F.binary_cross_entropy_with_logits(x, constant(TARGET), pos_weight=constant([2, 0, 1]), reduction="none")),
    "kl_div": ([[[0.0, -1, -200], [-INF, -1, 0]]], lambda x: F.kl_div(x, constant([[0, 0.5, 0.5], [0, 1, 0]]), reduction="none")),
    "smooth_l1_loss": ([[0.0, 1, -1, 2, -2, 1.5]], lambda x: F.smooth_l1_loss(x, torch.zeros(6), reduction="none")),
    "huber_loss": ([[0.0, 1, -1, 2, -2, 1.5]], lambda x: F.huber_loss(x, torch.zeros(6), reduction="none")),
    "l1_loss": ([[0.0, 1, -1]], lambda x: F.l1_loss(x, torch.zeros(3), reduction="none")),
    "soft_margin_loss": ([[0.0, 100, -100, 2]], lambda x: F.soft_margin_loss(x, constant([1, 1, 1, -1]), reduction="none")),
    "hinge_embedding_loss": ([[0.0, 1, 2, 1]], lambda x: F.hinge_embedding_loss(x, constant([1, -1, -1, 1]), reduction="none")),
    "margin_ranking_loss": ([[0.0, 1, 2], [0.0, 1, 1]], lambda x, y: F.margin_ranking_loss(x, y, torch.ones(3), reduction="none")),
    "cosine_embedding_loss": ([ZERO, OTHER], lambda x, y: F.cosine_embedding_loss(x, y, constant([1, -1, 1, -1]), reduction="none")),
    "triplet_margin_loss": ([ZERO, OTHER, ZERO[::-1]], lambda x, y, z: F.triplet_margin_loss(x, y, z, reduction="none")),
    "gaussian_nll_loss": ([[0.0, 1, 2]], lambda x: F.gaussian_nll_loss(x, torch.zeros(3), constant([1, 2, 3]), reduction="none")),
    "poisson_nll_loss": ([[0.0, 1, -2]], lambda x: F.poisson_nll_loss(x, constant([0, 1, 3]), reduction="none")),
    "layer_norm": ([CONSTANT], lambda x: F.layer_norm(x, (4,))),
    "group_norm": ([CONSTANT[:4].reshape(2, 4, 2)], lambda x: F.group_norm(x, 2)),
    "instance_norm": ([CONSTANT.reshape(1, 6, 4)], lambda x: F.instance_norm(x)),
    "rms_norm": ([CONSTANT], lambda x: F.rms_norm(x, (4,), eps=1e-6)),
    "local_response_norm": ([IMAGE.reshape(1, 4, 2, 2)], lambda x: F.local_response_norm(x, 3)),
    "lp_pool": ([[[[0, 0, 1, 2, 0, 3]]]], lambda x: F.lp_pool1d(x, 2.0, 2)),
    "max_pool2d": ([PLANE], lambda x: F.max_pool2d(x, 3, 1, 1)),
    "avg_pool2d": ([IMAGE], lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False)),
    "adaptive_avg_pool2d": ([IMAGE], lambda x: F.adaptive_avg_pool2d(x, 2)),
    "adaptive_max_pool2d": ([PLANE], lambda x: F.adaptive_max_pool2d(x, 2)),
    "attention": ([RANDOM, RANDOM[:, ::-1].copy(), RANDOM * 2], lambda q, k, v: F.scaled_dot_product_attention(q, k, v, torch.tensor(MASK))),
    "attention, float mask": ([RANDOM, RANDOM[:, ::-1].copy(), RANDOM * 2],
                              lambda q, k, v: F.scaled_dot_product_attention(q, k, v, constant(numpy.where(MASK, 0, -INF)))),
    "attention, causal": ([RANDOM, RANDOM[:, ::-1].copy(), RANDOM * 2], lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)),
    "topk": ([[[2, 2, 1, 2], [3, 1, 3, 0]]], lambda x: x.topk(2, dim=1).values),
    "tril": ([[[1, INF], [NAN, 5]]], torch.tril),
    "triu of exp": ([[[1, 100], [100, 2]]], lambda x: torch.triu(torch.exp(x))),
    "index_select": ([ZERO], lambda x: x[:, [-1, 0]]),
    "grid_sample": ([IMAGE, GRID], lambda x, g: F.grid_sample(x, g, align_corners=False)),
    "interpolate bilinear": ([IMAGE], lambda x: F.interpolate(x, size=(7, 3), mode="bilinear")),
    "interpolate nearest": ([IMAGE], lambda x: F.interpolate(x, size=(7, 3))),
    "interpolate bicubic": ([IMAGE], lambda x: F.interpolate(x, size=(7, 3), mode="bicubic")),
    "embedding, padding": ([[[1, 2], [3, 4], [5, 6]]], lambda w: F.embedding(torch.tensor([0, 2, 2]), w)),
}


class Module(torch.nn.Module):
    """Functions of parameters, to each of which data are added that are 0, so that nothing is folded; and the loss."""

    def __init__(self, cases):
        super().__init__()
        self.functions = [case.function for case in cases]
        self.counts = [len(case.values) for case in cases]
        self.shapes = [value.shape for case in cases for value in case.values]
        stored = [value for number, case in enumerate(cases) for value in case.stored(number)]
        self.w = torch.nn.ParameterList([torch.nn.Parameter(torch.tensor(value)) for value in stored])

    def forward(self, *data):
        weights, zeros = data[:len(self.functions)], data[len(self.functions):]
        results, loss, first = [], 0, 0
        for function, count, r in zip(self.functions, self.counts, weights):
            results.append(function(*((self.w[k] + zeros[k])[:-1].reshape(self.shapes[k]) for k in range(first, first + count))))
            loss = loss + (results[-1] * r).sum()
            first += count
        return (*results, loss)


def export(cases, weights, folder, newer):
    """model.onnx and in/*.npy of the functions; the names of each one's parameters."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    module = Module(cases)
    arguments = [torch.tensor(numbers) for numbers in weights] + [torch.zeros(w.shape) for w in module.w]
    inputs = [f"r{i}" for i in range(len(weights))] + [f"z{k}" for k in range(len(module.w))]
    (folder / "in").mkdir(parents=True)
    for name, argument in zip(inputs, arguments):
        numpy.save(folder / "in" / f"{name}.npy", argument.numpy())
    outputs = [f"y{i}" for i in range(len(cases))] + ["loss"]
    more = {"verbose": False, "external_data": False} if newer else {"opset_version": 17}
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        torch.onnx.export(module, tuple(arguments), str(folder / "model.onnx"), input_names=inputs, output_names=outputs, dynamo=newer, **more)
    names = iter(range(len(module.w)))
    return [[f"w.{next(names)}" for _ in case.values] for case in cases]


for newer in (True, False):
    for name, (values, function) in FUNCTIONS.items():
        CASES.append(Case(f"torch/{name}{'' if newer else ', older'}", values, None, function, newer))
