"""make_learning.py KIND OUT.onnx: small models in which not every float is a parameter. Needs the onnx package.

What PyTorch's default exporter says of its values (metadata, which older onnx packages do not know) is written field by
field, as torch 2.15 does.
"""
import sys

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

VALUE, NODE, GRAPH = 4, 9, 16  # numbers of the field metadata_props in the three messages

node = helper.make_node


def rng():
    return numpy.random.default_rng(3)


def tensor(name, values):
    return numpy_helper.from_array(numpy.ascontiguousarray(values, dtype=numpy.float32).reshape(numpy.shape(values)),
                                   name)


def weight(name, *shape):
    return tensor(name, numpy.random.default_rng(len(name)).normal(size=shape) * 0.5)


def integers(name, values):
    return numpy_helper.from_array(numpy.array(values, dtype=numpy.int64), name)


def constant(name, values):
    return node("Constant", [], [name], name, value=tensor(name + ".value", values))


def f32(name, shape):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def varint(number):
    data = b""
    while number >= 128:
        data += bytes([number & 127 | 128])
        number >>= 7
    return data + bytes([number])


def metadata(message, field, key, value):
    entry = onnx.StringStringEntryProto(key=key, value=value).SerializeToString()
    message.MergeFromString(varint(field << 3 | 2) + varint(len(entry)) + entry)
    return message


def kind(name, shape, text):
    return metadata(f32(name, shape), VALUE, "pkg.torch.export.graph_signature.InputSpec.kind", text)


def folded(name, shape, *sources):
    return metadata(f32(name, shape), VALUE, "pkg.onnxscript.optimizer.folded_from", repr(sorted(sources)))


def scoped(proto, module, class_name, operator, rule=None):
    metadata(proto, NODE, "pkg.torch.onnx.name_scopes", repr(["", module, operator]))
    metadata(proto, NODE, "pkg.torch.onnx.class_hierarchy", repr(["net.Net", class_name, "aten." + operator]))
    if rule:
        metadata(proto, NODE, "pkg.onnxscript.rewriter.rule_name", rule)
    return proto


def called(proto, *arguments):
    """The call of PyTorch that a node is exported from, as torch.fx prints it."""
    list_of = ", ".join("%" + name.replace(".", "_") for name in arguments)
    text = f"%r : [num_users=1] = call_function[target=torch.ops.aten.r.default](args = ({list_of}), kwargs = {{}})"
    return metadata(proto, NODE, "pkg.torch.onnx.fx_node", text)


def signature(parameters, buffers=(), constants=()):
    lines = [f"p_{n.replace('.', '_')}: PARAMETER target={n!r}" for n in parameters]
    lines += [f"b_{n.replace('.', '_')}: BUFFER target={n!r} persistent=True" for n in buffers]
    lines += [f"c_{n}: CONSTANT_TENSOR target={n!r}" for n in constants]
    return "\n# inputs\n" + "\n".join(lines) + "\nx: USER_INPUT\n\n# outputs\ny: USER_OUTPUT\n"


class Model:
    def __init__(self, nodes, weights, x=("N", 6), y=("N", 3), values=(), says=None, producer="", opset=17,
                 inputs=None):
        graph = helper.make_graph(nodes, "g", inputs or [f32("x", x)], [f32("y", y)], weights)
        graph.value_info.extend(values)
        if says:
            metadata(graph, GRAPH, "pkg.torch.export.ExportedProgram.graph_signature", says)
        self.proto = helper.make_model(graph, producer_name=producer, ir_version=8,
                                       opset_imports=[helper.make_opsetid("", opset)])


# What the default exporter says.

def stated_kinds():
    """An LSTM whose zero first state, and a scale, are floats like its weights; the values say what is a parameter."""
    nodes = [node("Transpose", ["x"], ["xt"], perm=[1, 0, 2]),
             node("LSTM", ["xt", "W", "R", "b", "", "val_16", "val_16"], ["", "hn"], hidden_size=8),
             node("Reshape", ["hn", "shape"], ["h"]), node("Mul", ["h", "val_68"], ["hs"]),
             node("MatMul", ["hs", "fc"], ["y"])]
    r = rng()
    weights = [tensor("W", r.normal(size=(1, 32, 3)) * .5), tensor("R", r.normal(size=(1, 32, 8)) * .5),
               tensor("b", r.normal(size=(1, 64)) * .5), tensor("fc", r.normal(size=(8, 3)) * .5),
               tensor("val_16", numpy.zeros((1, 4, 8))), tensor("val_68", [0.70710677]), integers("shape", [4, 8])]
    values = [kind(w.name, list(w.dims), "PARAMETER") for w in weights[:4]]
    values += [folded("val_16", [1, 4, 8], "val_0", "zeros"), folded("val_68", [1], "val_46", "view_4")]
    return Model(nodes, weights, x=[4, 5, 3], y=[4, 3], values=values, producer="pytorch")


def stated_signature():
    """Every kind of value that a signature lists, and what is computed from them."""
    parameters = ["fc.weight", "fc.bias", "out.bias", "logit_scale", "gate", "query", "rel",
                  "w.parametrizations.weight.original0",
                  "w.parametrizations.weight.original1"]
    nodes = [node("Mul", ["x", "cos"], ["a"]), node("Add", ["a", "table"], ["b"]), node("Add", ["b", "const"], ["c"]),
             node("Add", ["c", "val_40"], ["c2"]), node("Add", ["c2", "val_38"], ["c3"]),
             node("Add", ["c3", "index"], ["c4"]),
             node("MatMul", ["c4", "val_0"], ["d"]), node("Add", ["d", "fc.bias"], ["e"]),
             node("Mul", ["e", "gate"], ["f"]),
             node("Exp", ["logit_scale"], ["s"]), node("Mul", ["f", "s"], ["g"]), node("Pow", ["g", "val_2"], ["h"]),
             scoped(node("Gemm", ["h", "mul"], ["y"]), "out", "torch.nn.modules.linear.Linear", "linear.default",
                    "RemoveOptionalBiasFromGemm")]
    weights = [weight("cos", 6), weight("table", 6), weight("const", 6), tensor("val_40", [0.7071]),
               weight("val_38", 1, 6),
               weight("index", 6), weight("val_0", 6, 4), weight("fc.bias", 4), tensor("gate", 1.0),
               tensor("logit_scale", 0.5),
               tensor("val_2", 2.0), weight("mul", 4, 3)]
    values = [kind("fc.bias", [4], "PARAMETER"), kind("gate", [], "PARAMETER"), kind("logit_scale", [], "PARAMETER"),
              kind("table", [6], "BUFFER"), kind("const", [6], "CONSTANT_TENSOR"),
              folded("cos", [6], "arange", "inv_freq", "val_1"), folded("val_0", [6, 4], "fc.weight"),
              folded("val_38", [1, 6], "query", "expand"), folded("val_40", [1], "query", "val_39"),
              folded("index", [6], "rel", "idx", "val_7"),
              folded("mul", [4, 3], "w.parametrizations.weight.original0", "w.parametrizations.weight.original1",
                     "div")]
    return Model(nodes, weights, values=values, producer="pytorch",
                 says=signature(parameters, ["table", "inv_freq", "idx"], ["const"]))


def stated_modules():
    """Norms of one width that were never trained: the exporter stored their ones and zeros once, with those that
    it needs for a GroupNorm."""
    layer_norm = "torch.nn.modules.normalization.LayerNorm"
    group_norm = "torch.nn.modules.normalization.GroupNorm"
    nodes = [scoped(node("LayerNormalization", ["x", "n1.weight", "n1.bias"], ["a"]), "n1", layer_norm,
                    "layer_norm.default"),
             node("MatMul", ["a", "fc"], ["b"]),
             scoped(node("LayerNormalization", ["b", "n1.weight", "n1.bias"], ["c"]), "n2", layer_norm,
                    "layer_norm.default"),
             scoped(node("Mul", ["c", "n1.weight"], ["d"]), "", "net.Net", "mul.Tensor"),
             node("Reshape", ["d", "grouped"], ["e"]),
             scoped(node("InstanceNormalization", ["e", "n1.weight", "n1.bias"], ["f"]), "g1", group_norm,
                    "group_norm.default"),
             node("Reshape", ["f", "whole"], ["g"]),
             scoped(node("Mul", ["g", "val_20"], ["h"]), "g1", group_norm, "group_norm.default"),
             scoped(node("Mul", ["h", "val_20"], ["i"]), "g2", group_norm, "group_norm.default"),
             node("MatMul", ["i", "out"], ["y"])]
    weights = [tensor("n1.weight", numpy.ones(4)), tensor("n1.bias", numpy.zeros(4)), weight("fc", 4, 4),
               weight("out", 4, 3),
               tensor("val_20", numpy.ones((1, 4))), integers("grouped", [-1, 4, 1]), integers("whole", [-1, 4])]
    values = [folded("val_20", [1, 4], "g1.weight", "val_15")]
    names = ["n1.weight", "n1.bias", "fc", "n2.weight", "n2.bias", "scale", "g1.weight", "g2.weight", "out"]
    return Model(nodes, weights, x=["N", 4], values=values, says=signature(names), producer="pytorch")


def stated_calls():
    """Two layers with equal weights, copies of each other, of which the exporter stored one; attention's scale, used
    twice; and a table that is tied to the last layer."""
    linear, attention = "torch.nn.modules.linear.Linear", "torch.nn.modules.activation.MultiheadAttention"

    def layer(x, i):
        attends = lambda proto, *reads: called(scoped(proto, f"layers.{i}.attn", attention, "linear.default"), *reads)
        reads = ["x", f"p_layers_{i}_attn_in_proj_weight", f"p_layers_{i}_attn_in_proj_bias"]
        feeds = ["x", f"p_layers_{i}_linear_weight", f"p_layers_{i}_linear_bias"]
        return [attends(node("MatMul", [x, "val_2"], [f"m{i}"]), *reads),
                attends(node("Add", [f"m{i}", "layers.0.attn.in_proj_bias"], [f"p{i}"]), *reads),
                attends(node("Mul", [f"p{i}", "val_70"], [f"q{i}"]), "p", "q"),
                attends(node("Mul", [f"q{i}", "val_70"], [f"s{i}"]), "p", "q"),
                called(scoped(node("Gemm", [f"s{i}", "layers.0.linear.weight", "layers.0.linear.bias"], [f"l{i}"]),
                              f"layers.{i}.linear", linear, "linear.default"), *feeds)]

    nodes = [called(scoped(node("Gather", ["out.weight", "x"], ["w"], axis=1), "words",
                           "torch.nn.modules.sparse.Embedding", "embedding.default"), "p_out_weight", "x"),
             node("Transpose", ["w"], ["t"], perm=[1, 0]), *layer("t", 0), *layer("l0", 1),
             called(scoped(node("MatMul", ["l1", "out.weight"], ["y"]), "out", linear, "linear.default"), "l1",
                    "p_out_weight")]
    weights = [weight("val_2", 4, 4), tensor("layers.0.attn.in_proj_bias", numpy.zeros(4)), tensor("val_70", [0.7]),
               weight("layers.0.linear.weight", 4, 4), weight("layers.0.linear.bias", 4), weight("out.weight", 4, 3)]
    values = [folded("val_2", [4, 4], "layers.0.attn.in_proj_weight"), folded("val_70", [1], "val_69")]
    names = ["words.weight"]
    for i in range(2):
        names += [f"layers.{i}.{name}" for name in ("attn.in_proj_weight", "attn.in_proj_bias", "linear.weight",
                                                   "linear.bias")]
    return Model(nodes, weights, inputs=[helper.make_tensor_value_info("x", TensorProto.INT64, ["N"])], values=values,
                 says=signature([*names, "out.weight"]), producer="pytorch")


def stated_twice():
    """A module that is called twice: the exporter folded its transposed weight once for each call. Another weight is equal,
    but of another parameter."""
    nodes = [node("MatMul", ["x", "val_1"], ["a"]), node("MatMul", ["a", "val_2"], ["b"]),
             node("MatMul", ["b", "val_3"], ["y"])]
    weights = [tensor(name, rng().normal(size=(4, 4))) for name in ("val_1", "val_2", "val_3")]
    values = [folded("val_1", [4, 4], "fc.weight"), folded("val_2", [4, 4], "fc.weight"), folded("val_3", [4, 4], "out.weight")]
    return Model(nodes, weights, x=["N", 4], y=["N", 4], values=values, says=signature(["fc.weight", "out.weight"]),
                 producer="pytorch")


def stated_folds():
    """A BatchNormalization folded into a convolution, and a convolution whose bias is called after its input."""
    conv = "torch.nn.modules.conv.Conv2d"
    nodes = [scoped(node("Conv", ["x", "c.weight", "c.weight_bias"], ["a"]), "bn",
                    "torch.nn.modules.batchnorm.BatchNorm2d",
                    "_native_batch_norm_legit_no_training.default",
                    "FuseBatchNormIntoConv, RemoveOptionalBiasFromConv"),
             scoped(node("Conv", ["a", "d.weight", "a_bias"], ["b"], group=4), "d", conv, "conv2d.default"),
             node("GlobalAveragePool", ["b"], ["p"]), node("Flatten", ["p"], ["y"])]
    weights = [weight("c.weight", 4, 2, 3, 3), weight("c.weight_bias", 4), weight("d.weight", 4, 1, 1, 1),
               weight("a_bias", 4)]
    names = ["c.weight", "bn.weight", "bn.bias", "d.weight", "a_bias"]
    return Model(nodes, weights, x=["N", 2, 5, 5], y=["N", 4], producer="pytorch",
                 says=signature(names, ["bn.running_mean", "bn.running_var"]))


# BatchNormalization with equal initializers.

def batch_norms(layers, training=1):
    """Convolutions with BatchNormalization: `layers` has the names of scale, shift, mean and variance of each."""
    nodes, weights = [], {}
    for i, names in enumerate(layers):
        x, n = ("x", 2) if i == 0 else (f"a{i - 1}", 3)
        results = [f"b{i}"] + ([f"rm{i}", f"rv{i}"] if training else [])
        nodes += [node("Conv", [x, f"k{i}"], [f"h{i}"], pads=[1, 1, 1, 1]),
                  node("BatchNormalization", [f"h{i}", *names], results, f"norm{i}", training_mode=training,
                       momentum=0.9),
                  node("Relu", [f"b{i}"], [f"a{i}"])]
        weights[f"k{i}"] = tensor(f"k{i}", numpy.random.default_rng(7 + i).normal(size=(3, n, 3, 3)) * .5)
        for k, name in enumerate(names):
            weights.setdefault(name, tensor(name, numpy.ones(3) if k in (0, 3) else numpy.zeros(3)))
    nodes += [node("GlobalAveragePool", [f"a{len(layers) - 1}"], ["p"]), node("Flatten", ["p"], ["q"]),
              node("MatMul", ["q", "fc"], ["y"])]
    weights["fc"] = tensor("fc", numpy.random.default_rng(6).normal(size=(3, 3)) * .5)
    return Model(nodes, list(weights.values()), x=["N", 2, 5, 5])


def norm_merged():
    return batch_norms([["ones", "zeros", "zeros", "ones"]])


def norm_apart():
    return batch_norms([["gamma", "beta", "mean", "var"]])


def norm_exported():
    return batch_norms([["b1.weight", "b1.bias", "b1.bias", "b1.weight"]], training=0)


def norms_merged():
    return batch_norms([["ones", "zeros", "zeros", "ones"]] * 2)


def norms_apart():
    return batch_norms([["s0", "t0", "m0", "v0"], ["s1", "t1", "m1", "v1"]])


def towers(second, training=1):
    """One convolution and one BatchNormalization, applied to two inputs; the second reads the statistics `second`."""
    results = lambda i: [f"g{i}"] + ([f"m{i}", f"v{i}"] if training else [])
    nodes = [node("Conv", ["x1", "k"], ["h1"]),
             node("BatchNormalization", ["h1", "s", "b", "m", "v"], results(1), "norm1", training_mode=training),
             node("Conv", ["x2", "k"], ["h2"]),
             node("BatchNormalization", ["h2", "s", "b", *second], results(2), "norm2", training_mode=training),
             node("Sub", ["g1", "g2"], ["d"]), node("Mul", ["d", "d"], ["e"]), node("GlobalAveragePool", ["e"], ["p"]),
             node("Flatten", ["p"], ["y"])]
    r = rng()
    weights = [tensor("k", r.normal(size=(3, 2, 3, 3)) * .5), tensor("s", r.normal(size=3) * .5),
               tensor("b", r.normal(size=3) * .5),
               tensor("m", numpy.zeros(3)), tensor("v", numpy.ones(3))]
    return Model(nodes, weights, inputs=[f32("x1", ["N", 2, 5, 5]), f32("x2", ["N", 2, 5, 5])])


def towers_shared():
    return towers(["m", "v"])


def towers_chained():
    return towers(["m1", "v1"])


def towers_inference():
    return towers(["m", "v"], training=0)


# Weights that are no initializers of the model.

def constants_only():
    r = rng()
    return Model([constant("W", r.normal(size=(6, 3)) * .5), constant("b", r.normal(size=3) * .5),
                  node("MatMul", ["x", "W"], ["h"]),
                  node("Add", ["h", "b"], ["y"])], [])


def initializers_only():
    r = rng()
    return Model([node("MatMul", ["x", "W"], ["h"]), node("Add", ["h", "b"], ["y"])],
                 [tensor("W", r.normal(size=(6, 3)) * .5), tensor("b", r.normal(size=3) * .5)])


def loop(names):
    """Three times h = tanh(h W + b), with weights in the body; a second loop has weights of the same names."""
    W, b = names
    inputs = [helper.make_tensor_value_info("i", TensorProto.INT64, []),
              helper.make_tensor_value_info("go", TensorProto.BOOL, []),
              f32("h", ["N", 6])]

    def body(seed):
        r = numpy.random.default_rng(seed)
        nodes = [constant(b, r.normal(size=6) * .3), node("MatMul", ["h", W], ["hw"]), node("Add", ["hw", b], ["hb"]),
                 node("Tanh", ["hb"], ["next"]),
                 node("Identity", ["go"], ["on"])]
        outputs = [helper.make_tensor_value_info("on", TensorProto.BOOL, []), f32("next", ["N", 6])]
        return helper.make_graph(nodes, "body", inputs, outputs, [tensor(W, r.normal(size=(6, 6)) * .3)])

    nodes = [node("Loop", ["three", "", "x"], ["l1"], "first", body=body(1)),
             node("Loop", ["three", "", "l1"], ["l2"], "second", body=body(2)),
             node("MatMul", ["l2", "fc"], ["y"])]
    return Model(nodes, [numpy_helper.from_array(numpy.int64(3), "three"), weight("fc", 6, 3)])


def loops():
    return loop(["W", "b"])


def loops_unrolled():
    """What `loops` computes."""
    nodes, weights, x = [], [weight("fc", 6, 3)], "x"
    for k, name in ((1, "first"), (2, "second")):
        r = numpy.random.default_rng(k)
        b, W = r.normal(size=6) * .3, r.normal(size=(6, 6)) * .3  # in the order in which the body draws them
        weights += [tensor(f"{name}/W", W), tensor(f"{name}/b", b)]
        for i in range(3):
            nodes += [node("MatMul", [x, f"{name}/W"], [f"w{k}{i}"]),
                      node("Add", [f"w{k}{i}", f"{name}/b"], [f"s{k}{i}"]),
                      node("Tanh", [f"s{k}{i}"], [f"h{k}{i}"])]
            x = f"h{k}{i}"
    return Model(nodes + [node("MatMul", [x, "fc"], ["y"])], weights)


def branches():
    """A layer in a branch that is taken."""
    then = helper.make_graph([node("Gemm", ["x", "W", "b"], ["t"])], "then", [], [f32("t", ["N", 3])],
                             [weight("W", 6, 3), weight("b", 3)])
    other = helper.make_graph([node("Gemm", ["x", "V", "c"], ["e"])], "else", [], [f32("e", ["N", 3])],
                              [weight("V", 6, 3), weight("c", 3)])
    nodes = [node("If", ["yes"], ["y"], "if", then_branch=then, else_branch=other)]
    return Model(nodes, [numpy_helper.from_array(numpy.bool_(True), "yes")])


# Single numbers.

def scalars():
    """Single numbers: parameters by their names or uses, a plain number, an exponent, a bound."""
    nodes = [node("MatMul", ["x", "W"], ["h"]), node("Exp", ["logit_scale"], ["e"]), node("Mul", ["h", "e"], ["a"]),
             node("Mul", ["a", "blocks.0.gate"], ["b"]), node("PRelu", ["b", "slope"], ["c"]),
             node("Mul", ["c", "half"], ["d"]),
             node("Abs", ["d"], ["d2"]), node("Add", ["d2", "norm.eps"], ["f"]), node("Pow", ["f", "power"], ["g"]),
             node("Clip", ["g", "", "act.limit"], ["y"])]
    return Model(nodes,
                 [weight("W", 6, 3), tensor("logit_scale", 0.5), tensor("blocks.0.gate", 1.0), tensor("slope", 0.25),
                         tensor("half", 0.5), tensor("norm.eps", 1e-5), tensor("power", 2.0),
                  tensor("act.limit", 50.0)])


def converted():
    """A normalisation that a converter wrote out, with numbers that it counts, and gates that a module has in a list."""
    nodes = [node("MatMul", ["x", "W"], ["h"]), node("Mul", ["h", "h"], ["squares"]),
             node("ReduceMean", ["squares"], ["mean"], axes=[1]), node("Add", ["mean", "layer.epsilon_1"], ["m1"]),
             node("Sqrt", ["m1"], ["root"]), node("Div", ["h", "root"], ["n"]),
             node("Mul", ["n", "helper.constant.80"], ["n1"]), node("Mul", ["n1", "gates.0"], ["y"])]
    return Model(nodes, [weight("W", 6, 3), tensor("layer.epsilon_1", 1e-5), tensor("helper.constant.80", 0.7),
                         tensor("gates.0", 1.0)])


def unnamed_buffer():
    """PyTorch's older exporter says of no initializer whether it is a parameter or a buffer."""
    nodes = [node("MatMul", ["x", "head.weight"], ["h"]), node("Add", ["h", "lookup"], ["y"])]
    return Model(nodes, [weight("head.weight", 6, 3), weight("lookup", 3)], producer="pytorch")


def called_twice():
    """PyTorch's older exporter folds the transposed weight of a module anew wherever the module is called, and stores
    what is equal once. `other` is a module of its own, whose weight began as a copy."""
    nodes = [node("Identity", ["onnx::MatMul_1"], ["onnx::MatMul_2"], "Identity_0"),
             node("Identity", ["onnx::MatMul_1"], ["onnx::MatMul_3"], "Identity_1"),
             node("MatMul", ["x", "onnx::MatMul_1"], ["a"], "/net/layer/query/MatMul"),
             node("MatMul", ["a", "onnx::MatMul_2"], ["b"], "/net/layer_1/query_1/MatMul"),
             node("MatMul", ["b", "onnx::MatMul_3"], ["c"], "/net/layer/other/MatMul"),
             node("Add", ["c", "onnx::Add_9"], ["y"], "/net/Add")]
    return Model(nodes, [weight("onnx::MatMul_1", 4, 4), weight("onnx::Add_9", 4)], x=["N", 4], y=["N", 4],
                 producer="pytorch")


# Rules.

def ruled():
    """Constants of a file that says nothing: of an LSTM, of a GroupNorm, of a scatter, of attention, rotary tables."""
    t = numpy.arange(4)[:, None] * (0.1 ** numpy.arange(4))[None, :]
    nodes = [node("LSTM", ["x", "W", "R", "b", "", "state", "state"], ["", "hn"], hidden_size=8),
             node("Squeeze", ["hn", "zero"], ["h"]), node("Mul", ["h", "val_68"], ["h1"]),
             node("ScatterElements", ["filled", "places", "h1"], ["h2"], axis=1),
             node("Reshape", ["h2", "grouped"], ["h3"]), node("InstanceNormalization", ["h3", "ones", "zeros"], ["h4"]),
             node("Mul", ["h4", "rotary.cos"], ["h5"]), node("Mul", ["h4", "rotary.sin"], ["h6"]),
             node("Add", ["h5", "h6"], ["h7"]),
             node("Mul", ["h7", "freq"], ["h8"]), node("Mul", ["h8", "shifts"], ["h9"]),
             node("Reshape", ["h9", "flat"], ["y"])]
    weights = [weight("W", 1, 32, 3), weight("R", 1, 32, 8), weight("b", 1, 64),
               tensor("state", numpy.zeros((1, 4, 8))), integers("zero", [0]),
               tensor("val_68", [0.7071]), tensor("filled", numpy.zeros((4, 8))),
               integers("places", numpy.tile(numpy.arange(8), (4, 1))),
               integers("grouped", [2, 4, 4]), tensor("ones", numpy.ones(4)), tensor("zeros", numpy.zeros(4)),
               tensor("rotary.cos", numpy.cos(t)),
               tensor("rotary.sin", numpy.sin(t)), tensor("freq", 0.1 ** numpy.arange(4)), weight("shifts", 4),
               integers("flat", [4, 8])]
    return Model(nodes, weights, x=[5, 4, 3], y=[4, 8])


def fused_by_onnxruntime():
    nodes = [node("FusedMatMul", ["x", "W"], ["h"], domain="com.microsoft", transB=1),
             node("Gelu", ["h"], ["y"], domain="com.microsoft")]
    model = Model(nodes, [weight("W", 3, 6)])
    model.proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return model


if __name__ == "__main__":
    onnx.save(globals()[sys.argv[1].replace("-", "_")]().proto, sys.argv[2])
