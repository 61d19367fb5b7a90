"""losses_with_pytorch.py PDC_EVAL FOLDER: losses and their gradients, through the interpreter in f64, against PyTorch's in f64.

The model is linear, tanh, linear with two outputs of classes, or has its loss inside; the loss is added by --loss, or found.
"""
import json
import pathlib
import struct
import subprocess
import sys

import numpy
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch.nn import functional

tool, folder = sys.argv[1], pathlib.Path(sys.argv[2])
SAMPLES, WIDTH, CLASSES = 6, 5, 4
rng = numpy.random.default_rng(7)
weights = {name: rng.standard_normal(shape) * 0.7 for name, shape in
           {"first": (7, WIDTH), "shift": (7,), "logits.weight": (CLASSES, 7), "aux.weight": (CLASSES, 7)}.items()}
weights = {name: value.astype(numpy.float32) for name, value in weights.items()}
class_weights = numpy.array([0.5, 2, 1, 0.25], numpy.float32)
data = {"x": rng.standard_normal((SAMPLES, WIDTH)).astype(numpy.float32),
        "label": numpy.array([3, 0, 1, 1, 2, 0]), "other": numpy.array([0, 0, 1, 2, 2, 3]),
        "target": rng.random((SAMPLES, CLASSES)).astype(numpy.float32)}
IGNORED = numpy.array([3, -1, 1, -1, 2, 0])


def write_model(path, nodes, outputs, labels):
    constants = {**weights, **({"class_weights": class_weights} if any("class_weights" in n.input for n in nodes) else {})}
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "first", "shift"], ["hidden.sum"], transB=1),
         helper.make_node("Tanh", ["hidden.sum"], ["hidden"]),
         helper.make_node("Gemm", ["hidden", "logits.weight"], ["logits"], transB=1),
         helper.make_node("Gemm", ["hidden", "aux.weight"], ["aux"], transB=1), *nodes],
        "losses",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [SAMPLES, WIDTH]),
         *(helper.make_tensor_value_info(name, TensorProto.INT64, [SAMPLES]) for name in labels)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()],
        [numpy_helper.from_array(value, name) for name, value in constants.items()])
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 13)]), path)


def gradients_of(path):
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8:8 + length])
    return {name: numpy.frombuffer(content[8 + length:][slice(*entry["data_offsets"])]).reshape(entry["shape"])
            for name, entry in header.items() if name != "__metadata__"}


def by_pdc(name, nodes, outputs, labels, flags, label):
    place = folder / name
    place.mkdir(parents=True, exist_ok=True)
    write_model(place / "model.onnx", nodes, outputs, labels)
    for key, value in {**data, "label": label}.items():
        numpy.save(place / f"{key}.npy", value)
    numpy.save(place / "weights.npy", class_weights)
    numpy.save(place / "square.npy", label.reshape(SAMPLES, 1, 1))
    subprocess.run([tool, "model.onnx", "--inputs=.", "--outputs=out", "--gradients", "--precision=f64", *flags], cwd=place,
                   check=True)
    return float(numpy.load(place / "out/loss.npy")), gradients_of(place / "out/gradients.safetensors")


def by_pytorch(loss, label):
    parameters = {name: torch.tensor(value, dtype=torch.float64, requires_grad=True) for name, value in weights.items()}
    hidden = torch.tanh(torch.tensor(data["x"]).double() @ parameters["first"].T + parameters["shift"])
    value = loss(hidden @ parameters["logits.weight"].T, hidden @ parameters["aux.weight"].T, torch.tensor(label))
    value.backward()
    return value.item(), {name: p.grad.numpy() for name, p in parameters.items() if p.grad is not None}


def error(found, expected):
    loss, gradients = found
    expected_loss, expected_gradients = expected
    if {n for n, g in gradients.items() if g.any()} != {n for n, g in expected_gradients.items() if g.any()}:
        return numpy.inf
    errors = [abs(loss - expected_loss) / abs(expected_loss)]
    for name, value in expected_gradients.items():
        if value.any():
            errors.append(numpy.linalg.norm(gradients[name] - value) / numpy.linalg.norm(value))
    return max(errors)


cross_entropy = functional.cross_entropy
per_class, other, target = torch.tensor(class_weights).double(), torch.tensor(data["other"]), torch.tensor(data["target"]).double()
TWO = {"logits": [SAMPLES, CLASSES], "aux": [SAMPLES, CLASSES]}
SCALAR = {"loss": []}


def inside(kind, inputs, **attributes):
    nodes = [helper.make_node("LogSoftmax", ["logits"], ["scores"], axis=1)] if "scores" in inputs else []
    return [*nodes, helper.make_node(kind, inputs, ["loss"], **attributes)]


def of_logits(kind, logits="logits", **attributes):
    return [helper.make_node(kind, [logits], ["p"], **attributes)]


def constant(name, value):
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(numpy.array(value, numpy.float32), name))


PROBABILITIES = {"p": [SAMPLES, CLASSES]}
NOTHING = numpy.full(SAMPLES, -1)
# [classes, samples], softmax over axis 0, and back, to an image of one pixel.
MOVED = [helper.make_node("Transpose", ["logits"], ["turned"], perm=[1, 0]), helper.make_node("Softmax", ["turned"], ["q"], axis=0),
         helper.make_node("Transpose", ["q"], ["back"], perm=[1, 0]),
         helper.make_node("Unsqueeze", ["back", "axes"], ["p"])]
MOVED.insert(0, helper.make_node("Constant", [], ["axes"], value=numpy_helper.from_array(numpy.array([2, 3]), "axes")))
MIXED = [constant("share", 0.9), constant("least", 0.02), helper.make_node("Softmax", ["logits"], ["q"], axis=1),
         helper.make_node("Mul", ["q", "share"], ["part"]), helper.make_node("Add", ["part", "least"], ["p"])]
EDGES = [constant("zero", 0), constant("one", 1), helper.make_node("Clip", ["logits", "zero", "one"], ["p"])]
mixed = lambda l: functional.softmax(l, 1) * float(numpy.float32(0.9)) + float(numpy.float32(0.02))
log_softmax = lambda l: functional.log_softmax(l, 1)
# name: nodes, outputs, label inputs, flags, labels, PyTorch's loss
CASES = {
    "plain": ([], TWO, [], ["--loss=softmax-cross-entropy"], data["label"], lambda l, a, y: cross_entropy(l, y)),
    "ignored": ([], TWO, [], ["--loss=softmax-cross-entropy,ignore_index=-1"], IGNORED,
                lambda l, a, y: cross_entropy(l, y, ignore_index=-1)),
    "smoothed": ([], TWO, [], ["--loss=softmax-cross-entropy,label_smoothing=0.1"], data["label"],
                 lambda l, a, y: cross_entropy(l, y, label_smoothing=0.1)),
    "weighted": ([], TWO, [], ["--loss=softmax-cross-entropy,class_weights=0.5/2/1/0.25"], data["label"],
                 lambda l, a, y: cross_entropy(l, y, per_class)),
    "all": ([], TWO, [], ["--loss=softmax-cross-entropy,class_weights=weights.npy,label_smoothing=0.2,ignore_index=-1"], IGNORED,
            lambda l, a, y: cross_entropy(l, y, per_class, ignore_index=-1, label_smoothing=0.2)),
    "auxiliary": ([], TWO, [], ["--loss=softmax-cross-entropy:logits", "--loss=softmax-cross-entropy:aux,weight=0.25"],
                  data["label"], lambda l, a, y: cross_entropy(l, y) + 0.25 * cross_entropy(a, y)),
    "two-labels": ([], TWO, [], ["--loss=softmax-cross-entropy:logits", "--loss=softmax-cross-entropy:aux,label=other"],
                   data["label"], lambda l, a, y: cross_entropy(l, y) + cross_entropy(a, other)),
    "mse": ([], TWO, [], ["--loss=mse"], data["label"], lambda l, a, y: functional.mse_loss(l, target)),
    "bce": ([], TWO, [], ["--loss=bce-with-logits:aux"], data["label"],
            lambda l, a, y: functional.binary_cross_entropy_with_logits(a, target)),
    "mixed": ([], TWO, [], ["--loss=mse:logits,weight=2", "--loss=bce-with-logits:aux,weight=0.5"], data["label"],
              lambda l, a, y: 2 * functional.mse_loss(l, target) + 0.5 * functional.binary_cross_entropy_with_logits(a, target)),
    "inside": (inside("SoftmaxCrossEntropyLoss", ["logits", "label"]), SCALAR, ["label"], [], data["label"],
               lambda l, a, y: cross_entropy(l, y)),
    "inside-all": (inside("SoftmaxCrossEntropyLoss", ["logits", "label", "class_weights"], ignore_index=-1), SCALAR, ["label"], [],
                   IGNORED, lambda l, a, y: cross_entropy(l, y, per_class, ignore_index=-1)),
    "inside-sum": (inside("SoftmaxCrossEntropyLoss", ["logits", "label", "class_weights"], reduction="sum"), SCALAR, ["label"], [],
                   data["label"], lambda l, a, y: cross_entropy(l, y, per_class, reduction="sum")),
    "inside-nll": (inside("NegativeLogLikelihoodLoss", ["scores", "label"], reduction="mean", ignore_index=-1), SCALAR, ["label"],
                   [], IGNORED, lambda l, a, y: functional.nll_loss(log_softmax(l), y, ignore_index=-1)),
    "inside-nll-weighted": (inside("NegativeLogLikelihoodLoss", ["scores", "label", "class_weights"]), SCALAR, ["label"], [],
                            data["label"], lambda l, a, y: functional.nll_loss(log_softmax(l), y, per_class)),
    "scalar": ([helper.make_node("ReduceSumSquare", ["logits"], ["loss"], keepdims=0)], SCALAR, [], ["--loss=output:loss,weight=0.125"],
               data["label"], lambda l, a, y: 0.125 * (l * l).sum()),
    # What the model makes of logits is looked through where the loss is the same function of them.
    "softmax": (of_logits("Softmax", axis=1), PROBABILITIES, [], ["--loss=softmax-cross-entropy"], data["label"],
                lambda l, a, y: cross_entropy(l, y)),
    "softmax-moved": (MOVED, {"p": [SAMPLES, CLASSES, 1, 1]}, [], ["--loss=softmax-cross-entropy,label=square"], data["label"],
                      lambda l, a, y: cross_entropy(l, y)),
    "log-softmax": (of_logits("LogSoftmax", axis=1), PROBABILITIES, [], ["--loss=softmax-cross-entropy,ignore_index=-1"], IGNORED,
                    lambda l, a, y: cross_entropy(l, y, ignore_index=-1)),
    "sigmoid": (of_logits("Sigmoid", "aux"), PROBABILITIES, [], ["--loss=bce-with-logits:p"], data["label"],
                lambda l, a, y: functional.binary_cross_entropy_with_logits(a, target)),
    "inner": ([helper.make_node("Tanh", ["logits"], ["other output"])], {"other output": [SAMPLES, CLASSES]}, [],
              ["--loss=softmax-cross-entropy:aux"], data["label"], lambda l, a, y: cross_entropy(a, y)),
    "nll": (of_logits("Softmax", axis=1), PROBABILITIES, [], ["--loss=nll,class_weights=0.5/2/1/0.25"], data["label"],
            lambda l, a, y: cross_entropy(l, y, per_class)),
    "nll-of-logarithms": (of_logits("LogSoftmax", axis=1), PROBABILITIES, [], ["--loss=nll,label=other"], data["label"],
                          lambda l, a, y: cross_entropy(l, other)),
    # Probabilities that nothing can be looked through for, some of them 0 or 1.
    "nll-of-numbers": (MIXED, PROBABILITIES, [], ["--loss=nll,ignore_index=-1,class_weights=0.5/2/1/0.25"], IGNORED,
                       lambda l, a, y: functional.nll_loss(torch.log(mixed(l)), y, per_class, ignore_index=-1)),
    "bce-of-probabilities": (MIXED, PROBABILITIES, [], ["--loss=bce"], data["label"],
                             lambda l, a, y: functional.binary_cross_entropy(mixed(l), target)),
    "bce-at-the-edge": (EDGES, PROBABILITIES, [], ["--loss=bce"], data["label"],
                        lambda l, a, y: functional.binary_cross_entropy(torch.clamp(l, 0, 1), target)),
    # No position counts.
    "nothing": ([], TWO, [], ["--loss=softmax-cross-entropy:logits,ignore_index=-1", "--loss=mse:aux"], NOTHING,
                lambda l, a, y: functional.mse_loss(a, target)),
    "nothing-inside": ([*inside("NegativeLogLikelihoodLoss", ["scores", "label"], ignore_index=-1),
                        helper.make_node("ReduceSumSquare", ["aux"], ["energy"], keepdims=0),
                        helper.make_node("Add", ["loss", "energy"], ["sum"])], {"sum": []}, ["label"], [], NOTHING,
                       lambda l, a, y: (a * a).sum()),
}

expected = {name: by_pytorch(loss, label) for name, (*_, label, loss) in CASES.items()}
equal = [{"plain", "inside", "softmax", "softmax-moved"}, {"ignored", "inside-nll", "log-softmax"},
         {"weighted", "inside-nll-weighted", "nll"}, {"bce", "sigmoid"}]
same = {frozenset((a, b)) for names in equal for a in names for b in names}
for name, (nodes, outputs, labels, flags, label, _) in CASES.items():
    found = by_pdc(name, nodes, outputs, labels, flags, label)
    worst = error(found, expected[name])
    if worst > 1e-10:
        sys.exit(f"{name}: the relative error is {worst}")
    for other_name, value in expected.items():
        if other_name != name and frozenset((name, other_name)) not in same and error(found, value) < 1e-3:
            sys.exit(f"{name} agrees with {other_name}: the comparison notices nothing")
print(len(CASES), "losses and their gradients agree with PyTorch, and with no other loss")
