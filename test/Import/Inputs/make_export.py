"""make_export.py KIND OUT.onnx: small models as exporters write them. Needs the onnx package."""
import pathlib
import sys

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

rng = numpy.random.default_rng(1)


def tensor(name, values):
    return numpy_helper.from_array(numpy.ascontiguousarray(values, dtype=numpy.float32), name)


def weight(name, *shape):
    return tensor(name, rng.standard_normal(shape) * 0.3)


def integers(name, values):
    return numpy_helper.from_array(numpy.array(values, dtype=numpy.int64), name)


def node(kind, inputs, output, **attributes):
    return helper.make_node(kind, inputs, [output], "/" + output, **attributes)


def f32(name, shape):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


TOKENS = [helper.make_tensor_value_info("tokens", TensorProto.INT64, ["batch", 5])]


def merged():
    """Three layers whose biases were zero, and of which the second was a copy of the first."""
    nodes = [node("Identity", ["a.bias"], "c.bias"), node("Identity", ["a.bias"], "b.bias"),
             node("Identity", ["a.weight"], "b.weight"),
             node("Gemm", ["x", "a.weight", "a.bias"], "h", transB=1), node("Relu", ["h"], "r"),
             node("Gemm", ["r", "b.weight", "b.bias"], "i", transB=1), node("Tanh", ["i"], "s"),
             node("Gemm", ["s", "c.weight", "c.bias"], "y", transB=1)]
    weights = [weight("a.weight", 8, 8), weight("c.weight", 8, 8), tensor("a.bias", numpy.zeros(8))]
    return nodes, [f32("x", ["batch", 8])], weights


def shared():
    """Two layers that share a bias of zeros, without a trace of why."""
    nodes = [node("Gemm", ["x", "a.weight", "a.bias"], "h", transB=1), node("Relu", ["h"], "r"),
             node("Gemm", ["r", "b.weight", "a.bias"], "y", transB=1)]
    weights = [weight("a.weight", 8, 8), weight("b.weight", 8, 8), tensor("a.bias", numpy.zeros(8))]
    return nodes, [f32("x", ["batch", 8])], weights


def embedding(classifier, weights):
    return [node("Gather", ["words", "tokens"], "e"), node("Tanh", ["e"], "h"), *classifier], TOKENS, weights


def tied():
    """A classifier with the table of the embedding, transposed by constant folding."""
    table = rng.standard_normal((12, 8))
    weights = [tensor("words", table), tensor("onnx::MatMul_7", table.T)]
    return embedding([node("MatMul", ["h", "onnx::MatMul_7"], "y")], weights)


def tied_by_identity():
    """The same where nothing was folded: it was merged, but is really one."""
    nodes = [node("Identity", ["words"], "decoder.weight"), node("Transpose", ["decoder.weight"], "t", perm=[1, 0]),
             node("MatMul", ["h", "t"], "y")]
    return embedding(nodes, [weight("words", 12, 8)])


def untied():
    return embedding([node("MatMul", ["h", "decoder"], "y")], [weight("words", 12, 8), weight("decoder", 8, 12)])


def zeros():
    """Both not yet initialised: equal, but not for being one."""
    return embedding([node("MatMul", ["h", "decoder"], "y")],
                     [tensor("words", numpy.zeros((12, 8))), tensor("decoder", numpy.zeros((8, 12)))])


def buffers():
    """A mask, and a table with a telling name."""
    mask = numpy.triu(numpy.full((8, 8), -numpy.inf), 1)
    nodes = [node("Mul", ["x", "rotary.cos_cached"], "h"), node("Add", ["h", "block.mask"], "s"),
             node("Softmax", ["s"], "p"), node("MatMul", ["p", "w"], "y")]
    return nodes, [f32("x", ["batch", 8, 8])], [tensor("block.mask", mask), weight("rotary.cos_cached", 8, 8),
                                                weight("w", 8, 4)]


def causal(mask, fold):
    """Attention with a mask of more than 64 KiB; `fold` puts it onto the scores."""
    attention = [node("Transpose", ["x"], "t", perm=[0, 2, 1]), node("MatMul", ["x", "t"], "s"), *fold,
                 node("Softmax", ["m"], "p", axis=-1), node("MatMul", ["p", "x"], "a"), node("MatMul", ["a", "w"], "y")]
    return attention, [f32("x", ["batch", 300, 8])], [mask, numpy_helper.from_array(numpy.array(-1e38, numpy.float32), "low"), weight("w", 8, 4)]


def causal_where(diagonal=0):
    mask = numpy.tril(numpy.ones((1, 300, 300), bool), diagonal)
    return causal(numpy_helper.from_array(mask, "h.0.mask"), [node("Where", ["h.0.mask", "s", "low"], "m")])


def causal_hidden():
    """The opposite: where nothing is seen."""
    mask = numpy.triu(numpy.ones((300, 300), bool), 1)
    return causal(numpy_helper.from_array(mask, "h.0.mask"), [node("Where", ["h.0.mask", "low", "s"], "m")])


def causal_added():
    return causal(tensor("h.0.mask", numpy.triu(numpy.full((300, 300), -numpy.inf), 1)), [node("Add", ["s", "h.0.mask"], "m")])


def not_causal():
    """Some see the key after theirs."""
    return causal_where(1)


def nearly_causal():
    """Another element."""
    nodes, inputs, weights = causal_where()
    mask = numpy_helper.to_array(weights[0]).copy()
    mask[0, 200, 250] = True
    return nodes, inputs, [numpy_helper.from_array(mask, "h.0.mask"), *weights[1:]]


def folded():
    nodes = [node("Conv", ["x", "onnx::Conv_11", "onnx::Conv_12"], "h", kernel_shape=[3, 3]), node("Flatten", ["h"], "f"),
             node("Gemm", ["f", "fc.weight", "fc.bias"], "y", transB=1)]
    return nodes, [f32("x", ["batch", 1, 4, 4])], [weight("onnx::Conv_11", 2, 1, 3, 3), weight("onnx::Conv_12", 2),
                                                    weight("fc.weight", 3, 8), weight("fc.bias", 3)]


def folded_anew():
    """As PyTorch's new exporter does it: the weights keep their names."""
    nodes = [node("Conv", ["x", "conv1.weight", "x_bias"], "h", kernel_shape=[3, 3]), node("Flatten", ["h"], "f"),
             node("Gemm", ["f", "fc.weight", "fc.bias"], "y", transB=1)]
    return nodes, [f32("x", ["batch", 1, 4, 4])], [weight("conv1.weight", 2, 1, 3, 3), weight("x_bias", 2),
                                                    weight("fc.weight", 3, 8), weight("fc.bias", 3)]


def normalised():
    """BatchNormalization and Dropout as they are left where an exporter folds nothing."""
    nodes = [node("Conv", ["x", "conv.weight"], "c", kernel_shape=[3, 3]),
             node("BatchNormalization", ["c", "bn.weight", "bn.bias", "bn.running_mean", "bn.running_var"], "n"),
             node("Dropout", ["n"], "d"), node("Flatten", ["d"], "f"),
             node("Gemm", ["f", "fc.weight", "fc.bias"], "y", transB=1)]
    return nodes, [f32("x", ["batch", 1, 4, 4])], [
        weight("conv.weight", 2, 1, 3, 3), weight("bn.weight", 2), weight("bn.bias", 2), weight("bn.running_mean", 2),
        tensor("bn.running_var", numpy.ones(2)), weight("fc.weight", 3, 8), weight("fc.bias", 3)]


def flat_labels():
    """A language model with its loss inside, whose labels are made flat before all else."""
    nodes = [node("Reshape", ["labels", "flat"], "expected"), node("Gather", ["words", "tokens"], "e"),
             node("MatMul", ["e", "hidden"], "g"), node("Tanh", ["g"], "h"), node("MatMul", ["h", "decoder"], "logits"),
             node("Reshape", ["logits", "rows"], "flat_logits"),
             node("SoftmaxCrossEntropyLoss", ["flat_logits", "expected"], "y")]
    weights = [weight("words", 12, 8), weight("hidden", 8, 8), weight("decoder", 8, 12), integers("flat", [-1]),
               integers("rows", [-1, 12])]
    return nodes, [*TOKENS, helper.make_tensor_value_info("labels", TensorProto.INT64, ["batch", 5])], weights


def no_weights():
    nodes = [node("Gemm", ["x", "fc.weight", "fc.bias"], "y", transB=1)]
    return nodes, [f32("x", ["batch", 8]), f32("fc.weight", [3, 8]), f32("fc.bias", [3])], []


def external():
    """3 GiB of zeros, in a sparse file beside the model."""
    rows, columns = 1 << 16, 12288
    stored = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[rows, columns],
                         data_location=TensorProto.EXTERNAL)
    name = pathlib.Path(sys.argv[2]).name + ".data"
    for key, value in (("location", name), ("offset", "4096"), ("length", str(4 * rows * columns))):
        entry = stored.external_data.add()
        entry.key, entry.value = key, value
    with open(pathlib.Path(sys.argv[2]).with_name(name), "wb") as file:
        file.truncate(4096 + 4 * rows * columns)
    return [node("Gather", ["w", "tokens"], "e"), node("MatMul", ["e", "v"], "y")], TOKENS, [stored, weight("v", columns, 4)]


kinds = {f.__name__.replace("_", "-"): f for f in (merged, shared, tied, tied_by_identity, untied, zeros, buffers, causal_where, causal_hidden,
                                                   causal_added, not_causal, nearly_causal, folded, folded_anew,
                                                   normalised, flat_labels, no_weights, external)}
nodes, inputs, weights = kinds[sys.argv[1]]()
graph = helper.make_graph(nodes, "torch_jit", inputs, [f32("y", None)], weights)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], producer_name="pytorch")
model.ir_version = 8
pathlib.Path(sys.argv[2]).write_bytes(model.SerializeToString())
