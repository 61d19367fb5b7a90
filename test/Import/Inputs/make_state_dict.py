"""make_state_dict.py KIND OUT.onnx STATE.safetensors: a small model as an exporter of PyTorch writes it, and the
state_dict of the module that it was exported from. Needs the onnx package.

make_state_dict.py --compare A.safetensors B.safetensors: the same names, types, shapes and bits.
"""
import json
import struct
import sys

import numpy
import onnx
from onnx import TensorProto, helper
from make_learning import VALUE, Model, f32, folded, integers, kind, metadata, node, scoped, signature, tensor

LINEAR = "torch.nn.modules.linear.Linear"
EMBEDDING = "torch.nn.modules.sparse.Embedding"
LSTM = "torch.nn.modules.rnn.LSTM"
# Where ONNX has PyTorch's gates; written as PyTorch's exporters slice them: LSTM i, o, f, c of i, f, g, o.
GATES = {"LSTM": [0, 3, 1, 2], "GRU": [1, 0, 2], "RNN": [0]}


def values(seed, *shape):
    return (numpy.random.default_rng(seed).normal(size=shape) * 0.4).astype(numpy.float32)


def tokens(name="x", length=5):
    return helper.make_tensor_value_info(name, TensorProto.INT64, ["N", length])


def reordered(op, array):
    parts = numpy.split(array, len(GATES[op]))
    return numpy.concatenate([parts[gate] for gate in GATES[op]])


def packed(op, state, prefix, layer, directions):
    """W, R and B of a recurrent layer."""
    ends = ["", "_reverse"][:directions]
    W, R = (numpy.stack([reordered(op, state[f"{prefix}weight_{kind}_l{layer}{end}"]) for end in ends])
            for kind in ("ih", "hh"))
    B = numpy.stack([numpy.concatenate([reordered(op, state[f"{prefix}bias_{kind}_l{layer}{end}"])
                                        for kind in ("ih", "hh")]) for end in ends])
    return W, R, B


def recurrent(op, prefix, layer, features, states, directions, seed):
    gates = len(GATES[op]) * states
    state = {}
    for d, end in enumerate(["", "_reverse"][:directions]):
        for k, (name, shape) in enumerate({"weight_ih": (gates, features), "weight_hh": (gates, states),
                                           "bias_ih": (gates,), "bias_hh": (gates,)}.items()):
            state[f"{prefix}{name}_l{layer}{end}"] = values(seed + 10 * d + k, *shape)
    return state


def stated():
    """PyTorch's default exporter: transposed weights, a tied embedding, a packed LSTM, buffers that are and are not in
    the state_dict, a parameter that the file lacks."""
    state = {"head.weight": values(1, 11, 8), "fc.weight": values(2, 8, 8), "fc.bias": values(3, 8),
             "scale": values(4, 8), **recurrent("LSTM", "rnn.", 0, 8, 4, 2, seed=20)}
    W, R, B = packed("LSTM", state, "rnn.", 0, 2)
    shift = values(5, 8)
    nodes = [scoped(node("Gather", ["head.weight", "x"], ["e"]), "emb", EMBEDDING, "embedding.default"),
             scoped(node("MatMul", ["e", "val_0"], ["val_1"]), "fc", LINEAR, "linear.default"),
             scoped(node("Add", ["val_1", "fc.bias"], ["linear"]), "fc", LINEAR, "linear.default"),
             scoped(node("Transpose", ["linear"], ["t"], perm=[1, 0, 2]), "rnn", LSTM, "lstm.input"),
             scoped(node("LSTM", ["t", "val_10", "val_11", "val_12"], ["l"], hidden_size=4, direction="bidirectional"),
                    "rnn", LSTM, "lstm.input"),
             node("Transpose", ["l"], ["u"], perm=[2, 0, 1, 3]), node("Reshape", ["u", "shape"], ["v"]),
             node("Mul", ["v", "scale"], ["w"]), node("Add", ["w", "shift"], ["z"]),
             scoped(node("MatMul", ["z", "val_2"], ["y"]), "head", LINEAR, "linear.default")]
    weights = [tensor("head.weight", state["head.weight"]), tensor("val_0", state["fc.weight"].T),
               tensor("fc.bias", state["fc.bias"]), tensor("val_10", W), tensor("val_11", R), tensor("val_12", B),
               tensor("scale", state["scale"]), tensor("shift", shift), tensor("val_2", state["head.weight"].T),
               integers("shape", [0, 0, 8])]
    packing = ["val_13", "val_14", "zeros"]  # steps of the packing
    layers = {kind: [name for name in state if name.startswith(f"rnn.{kind}")] for kind in ("weight_ih", "weight_hh",
                                                                                           "bias")}
    said = [kind(name, list(state[name].shape), "PARAMETER") for name in ("head.weight", "fc.bias")]
    said += [kind("scale", [8], "BUFFER"),
             metadata(kind("shift", [8], "BUFFER"), VALUE, "pkg.torch.export.graph_signature.InputSpec.persistent",
                      "False"),
             folded("val_0", [8, 8], "fc.weight"), folded("val_2", [8, 11], "head.weight"),
             folded("val_10", list(W.shape), *layers["weight_ih"], *packing),
             folded("val_11", list(R.shape), *layers["weight_hh"], *packing),
             folded("val_12", list(B.shape), *layers["bias"], *packing)]
    names = ["emb.weight", "fc.weight", "fc.bias", *sum(layers.values(), []), "unused.weight", "head.weight"]
    says = signature(names, ["scale", "norm.num_batches_tracked"]) + "b_shift: BUFFER target='shift' persistent=False\n"
    state["emb.weight"] = state["head.weight"]
    return Model(nodes, weights, inputs=[tokens()], y=["N", 5, 11], values=said, says=says, producer="pytorch"), state


def transposed(seed=0):
    """PyTorch's default exporter: linear layers whose weights are transposed, one of them tied to an embedding."""
    state = {"head.weight": values(seed + 1, 11, 8), "fc.weight": values(seed + 2, 6, 8),
             "fc.bias": values(seed + 3, 6), "out.weight": values(seed + 4, 8, 6)}
    nodes = [scoped(node("Gather", ["head.weight", "x"], ["e"]), "emb", EMBEDDING, "embedding.default"),
             scoped(node("MatMul", ["e", "val_0"], ["val_1"]), "fc", LINEAR, "linear.default"),
             scoped(node("Add", ["val_1", "fc.bias"], ["linear"]), "fc", LINEAR, "linear.default"),
             scoped(node("MatMul", ["linear", "val_2"], ["linear_1"]), "out", LINEAR, "linear.default"),
             scoped(node("MatMul", ["linear_1", "val_3"], ["y"]), "head", LINEAR, "linear.default")]
    weights = [tensor("head.weight", state["head.weight"]), tensor("fc.bias", state["fc.bias"]),
               tensor("val_0", state["fc.weight"].T), tensor("val_2", state["out.weight"].T),
               tensor("val_3", state["head.weight"].T)]
    said = [kind(name, list(state[name].shape), "PARAMETER") for name in ("head.weight", "fc.bias")]
    said += [folded("val_0", [8, 6], "fc.weight"), folded("val_2", [6, 8], "out.weight"),
             folded("val_3", [8, 11], "head.weight")]
    says = signature(["emb.weight", "fc.weight", "fc.bias", "out.weight", "head.weight"])
    state["emb.weight"] = state["head.weight"]
    return Model(nodes, weights, inputs=[tokens()], y=["N", 5, 11], values=said, says=says, producer="pytorch"), state


def transposed_other():
    return transposed(seed=100)


def ruled():
    """PyTorch's older exporter with constant folding: weights with numbers for names, in modules that nodes name; a
    large mask that was folded is no weight."""
    state = {"emb.weight": values(1, 11, 8), "block.0.weight": values(2, 8, 8), "block.0.bias": values(3, 8),
             "attn.in_proj_weight": values(4, 8, 8), "attn.in_proj_bias": values(5, 8),
             "block.1.net.0.weight": values(6, 8, 8), **recurrent("GRU", "rnn.", 0, 8, 8, 1, seed=20),
             **recurrent("GRU", "rnn.", 1, 8, 8, 1, seed=40)}
    layers = [packed("GRU", state, "rnn.", layer, 1) for layer in (0, 1)]
    gru = lambda x, y, layer: [
        node("GRU", [x, *(f"onnx::GRU_{50 + 3 * layer + i}" for i in range(3))], [f"g{layer}"],
             "/rnn/GRU" + (f"_{layer}" if layer else ""), hidden_size=8, linear_before_reset=1),
        node("Squeeze", [f"g{layer}", "one"], [y], f"/rnn/Squeeze_{layer}")]
    nodes = [node("Gather", ["emb.weight", "x"], ["e"], "/emb/Gather"),
             node("MatMul", ["e", "onnx::MatMul_40"], ["a"], "/block/block.0/MatMul"),
             node("Add", ["block.0.bias", "a"], ["b"], "/block/block.0/Add"),
             node("MatMul", ["b", "onnx::MatMul_41"], ["c"], "/attn/MatMul"),
             node("Add", ["attn.in_proj_bias", "c"], ["d"], "/attn/Add"),
             node("MatMul", ["d", "onnx::MatMul_42"], ["f"], "/block/block.1/net/net.0/MatMul"),
             node("Transpose", ["f"], ["t"], "/rnn/Transpose", perm=[1, 0, 2]),
             *gru("t", "r0", 0), *gru("r0", "r1", 1),
             node("Transpose", ["r1"], ["u"], "/rnn/Transpose_1", perm=[1, 0, 2]),
             node("Add", ["u", "onnx::Add_90"], ["u1"], "/Add"),
             node("MatMul", ["u1", "onnx::MatMul_43"], ["y"], "/head/MatMul")]
    mask = numpy.zeros((1, 5, 8), dtype=numpy.float32)
    mask[0, 0, 1] = -numpy.inf
    weights = [tensor("onnx::Add_90", mask)]
    weights += [tensor(name, state[name]) for name in ("emb.weight", "block.0.bias", "attn.in_proj_bias")]
    weights += [tensor("onnx::MatMul_40", state["block.0.weight"].T),
                tensor("onnx::MatMul_41", state["attn.in_proj_weight"].T),
                tensor("onnx::MatMul_42", state["block.1.net.0.weight"].T),
                tensor("onnx::MatMul_43", state["emb.weight"].T), integers("one", [1])]
    weights += [tensor(f"onnx::GRU_{50 + 3 * layer + i}", array) for layer in (0, 1)
                for i, array in enumerate(layers[layer])]
    state["head.weight"] = state["emb.weight"]
    return Model(nodes, weights, inputs=[tokens()], y=["N", 5, 11], producer="pytorch"), state


def ruled_shared():
    """The older exporter in training mode: a table that two modules have, one that is called twice, and one that a
    module borrows from a module inside."""
    state = {"emb.weight": values(1, 8, 8), "net.inner.weight": values(2, 8, 8)}
    nodes = [node("Gather", ["emb.weight", "x"], ["a"], "/emb/Gather"),
             node("Gather", ["emb.weight", "x"], ["b"], "/emb_1/Gather"), node("Add", ["a", "b"], ["c"], "/Add"),
             node("Gather", ["net.inner.weight", "x"], ["d"], "/net/inner/Gather"),
             node("Add", ["c", "d"], ["e"], "/Add_1"),
             node("Transpose", ["net.inner.weight"], ["f"], "/net/Transpose", perm=[1, 0]),
             node("MatMul", ["e", "f"], ["g"], "/net/MatMul"),
             node("Transpose", ["emb.weight"], ["h"], "/head/Transpose", perm=[1, 0]),
             node("MatMul", ["g", "h"], ["y"], "/head/MatMul")]
    weights = [tensor(name, array) for name, array in state.items()]
    state["head.weight"] = state["emb.weight"]
    return Model(nodes, weights, inputs=[tokens()], y=["N", 5, 8], producer="pytorch"), state


def ruled_unknown():
    """A weight of which neither a bias nor a node's name says whose it is."""
    state = {"fc.weight": values(1, 3, 6)}
    nodes = [node("MatMul", ["x", "onnx::MatMul_7"], ["y"], "MatMul_3")]
    return Model(nodes, [tensor("onnx::MatMul_7", state["fc.weight"].T)], producer="pytorch"), state


def save(path, state):
    entries, data = {"__metadata__": {"format": "pt"}}, b""
    for name in sorted(state):
        array = numpy.ascontiguousarray(state[name], dtype="<f4")
        entries[name] = {"dtype": "F32", "shape": list(array.shape),
                         "data_offsets": [len(data), len(data) + array.nbytes]}
        data += array.tobytes()
    header = json.dumps(entries).encode()
    header += b" " * (-len(header) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header + data)


def load(path):
    with open(path, "rb") as file:
        data = file.read()
    (length,) = struct.unpack("<Q", data[:8])
    entries = json.loads(data[8:8 + length])
    entries.pop("__metadata__", None)
    return {name: (entry["dtype"], entry["shape"],
                   data[8 + length + entry["data_offsets"][0]:8 + length + entry["data_offsets"][1]])
            for name, entry in entries.items()}


def compare(first, second):
    a, b = load(first), load(second)
    for name in sorted(set(a) | set(b)):
        if name not in a or name not in b:
            print(f"{name}: only in {'the first' if name in a else 'the second'}")
        elif a[name][:2] != b[name][:2]:
            print(f"{name}: {a[name][:2]} and {b[name][:2]}")
        elif a[name][2] != b[name][2]:
            print(f"{name}: other values")
    print(f"{sum(a[name] == b.get(name) for name in a)} of {len(a)} and {len(b)} tensors are equal")


if __name__ == "__main__":
    if sys.argv[1] == "--compare":
        compare(*sys.argv[2:])
    else:
        model, state = globals()[sys.argv[1].replace("-", "_")]()
        onnx.save(model.proto, sys.argv[2])
        save(sys.argv[3], state)
