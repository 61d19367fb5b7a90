"""weightless.py NAME OUT.onnx [TOKENS]: a language model of a published size whose parameters have names and shapes only.

    gpt2         0.12 · 10⁹ parameters: GPT-2 small (Radford et al. 2019), with biases and a tied classifier
    gpt2-medium  0.35 · 10⁹ parameters
    llama-1.3b   1.35 · 10⁹ parameters: RMS norms, rotary positions, SwiGLU, in the sizes of Sheared-LLaMA-1.3B (arXiv:2310.06694)
    llama-tiny   as the one before, in two narrow layers

Parameters are inputs whose name is a path, as `torch.onnx.export(…, export_params=False)` writes them: `pdc --init` draws their
values. So the file has kilobytes, whatever the size of the model. Its input is `input`, its output `logits`. Needs the onnx package.
"""
import sys

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

SIZES = {"gpt2": dict(words=50257, width=768, layers=12, heads=12),
         "gpt2-medium": dict(words=50257, width=1024, layers=24, heads=16),
         "llama-1.3b": dict(words=32000, width=2048, layers=24, heads=16, hidden=5504),
         "llama-tiny": dict(words=96, width=64, layers=2, heads=4, hidden=176)}


class Decoder:
    def __init__(self, tokens, words, width, layers, heads, hidden=None):
        self.tokens, self.words, self.width, self.heads = tokens, words, width, heads
        self.nodes, self.parameters, self.constants = [], [], []
        x = (self.gpt2 if hidden is None else self.llama)(layers, hidden)
        self.nodes[-1].output[0] = "logits"
        assert x == self.nodes[-1].name

    def op(self, kind, name, inputs, **attributes):
        self.nodes.append(helper.make_node(kind, inputs, [name], name, **attributes))
        return name

    def weight(self, name, *shape):
        self.parameters.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        return name

    def constant(self, name, values):
        self.constants.append(numpy_helper.from_array(values, name))
        return name

    def linear(self, name, x, inputs, outputs, bias=True):
        """With weights [inputs, outputs], as an exporter stores them."""
        y = self.op("MatMul", f"{name}.product", [x, self.weight(f"{name}.weight", inputs, outputs)])
        return self.op("Add", name, [y, self.weight(f"{name}.bias", outputs)]) if bias else y

    def embedding(self, name, x, count):
        return self.op("Gather", f"{name}.rows", [self.weight(f"{name}.weight", count, self.width), x])

    def attention(self, name, parts, **more):
        return self.op("Attention", name, parts, q_num_heads=self.heads, kv_num_heads=self.heads, is_causal=1, **more)

    def gpt2(self, layers, _):
        def norm(name, x):
            weights = [self.weight(f"{name}.{part}", self.width) for part in ("weight", "bias")]
            return self.op("LayerNormalization", name, [x, *weights], axis=-1)

        width = self.width
        places = self.constant("places", numpy.arange(self.tokens))
        x = self.op("Add", "embedded", [self.embedding("wte", "input", self.words), self.embedding("wpe", places, 1024)])
        for i in range(layers):
            block = f"h.{i}"
            y = self.linear(f"{block}.attn.c_attn", norm(f"{block}.ln_1", x), width, 3 * width)
            outputs = [f"{block}.attn.{part}" for part in "qkv"]
            self.nodes.append(helper.make_node("Split", [y], outputs, f"{block}.attn.split", axis=-1, num_outputs=3))
            y = self.linear(f"{block}.attn.c_proj", self.attention(f"{block}.attn.sum", outputs), width, width)
            x = self.op("Add", f"{block}.middle", [x, y])
            y = self.op("Gelu", f"{block}.mlp.act", [self.linear(f"{block}.mlp.c_fc", norm(f"{block}.ln_2", x), width, 4 * width)],
                        approximate="tanh")
            x = self.op("Add", f"{block}.end", [x, self.linear(f"{block}.mlp.c_proj", y, 4 * width, width)])
        table = self.op("Transpose", "classifier", ["wte.weight"], perm=[1, 0])
        return self.op("MatMul", "head", [norm("ln_f", x), table])

    def llama(self, layers, hidden):
        def norm(name, x):
            return self.op("RMSNormalization", name, [x, self.weight(f"{name}.weight", self.width)], axis=-1, epsilon=1e-5)

        def linear(name, x, inputs, outputs):
            return self.linear(name, x, inputs, outputs, bias=False)

        width, half = self.width, self.width // self.heads // 2
        angles = numpy.outer(numpy.arange(self.tokens), 10000.0 ** (-numpy.arange(half) / half)).astype(numpy.float32)
        turns = [self.constant(name, values[None]) for name, values in (("cos", numpy.cos(angles)), ("sin", numpy.sin(angles)))]
        x = self.embedding("model.embed_tokens", "input", self.words)
        for i in range(layers):
            block = f"model.layers.{i}"
            y = norm(f"{block}.input_layernorm", x)
            q, k, v = (linear(f"{block}.self_attn.{part}_proj", y, width, width) for part in "qkv")
            q, k = (self.op("RotaryEmbedding", f"{part}.rotated", [part, *turns], num_heads=self.heads) for part in (q, k))
            y = linear(f"{block}.self_attn.o_proj", self.attention(f"{block}.self_attn.sum", [q, k, v]), width, width)
            x = self.op("Add", f"{block}.middle", [x, y])
            y = norm(f"{block}.post_attention_layernorm", x)
            gate, up = (linear(f"{block}.mlp.{part}_proj", y, width, hidden) for part in ("gate", "up"))
            gate = self.op("Mul", f"{block}.mlp.silu", [gate, self.op("Sigmoid", f"{block}.mlp.sigmoid", [gate])])
            y = linear(f"{block}.mlp.down_proj", self.op("Mul", f"{block}.mlp.gated", [gate, up]), hidden, width)
            x = self.op("Add", f"{block}.end", [x, y])
        return linear("lm_head", norm("model.norm", x), width, self.words)

    def save(self, path):
        inputs = [helper.make_tensor_value_info("input", TensorProto.INT64, ["N", self.tokens]), *self.parameters]
        outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", self.tokens, self.words])]
        graph = helper.make_graph(self.nodes, "decoder", inputs, outputs, self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)])
        model.ir_version = 8
        onnx.save(model, str(path))


def save(name, path, tokens=128):
    Decoder(tokens, **SIZES[name]).save(path)


if __name__ == "__main__":
    save(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
