"""Models with annotations for devices, as the onnx package itself writes them: python annotate.py FOLDER.

An MLP of four layers, fc1 … fc4, each with a Relu behind it but for the last. Every file is one case of
annotated-by-others.test."""
import pathlib
import sys

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

FOLDER = pathlib.Path(sys.argv[1])
LAYERS = {"fc1": (12, 16), "fc2": (16, 12), "fc3": (12, 16), "fc4": (16, 10)}


def model():
    random = numpy.random.default_rng(1)
    nodes, weights, value = [], [], "x"
    for name, shape in LAYERS.items():
        weights.append(numpy_helper.from_array(random.normal(size=shape).astype(numpy.float32), name + ".weight"))
        nodes.append(helper.make_node("MatMul", [value, name + ".weight"], [name + ".out"], name))
        value = name + ".out"
        if name != "fc4":
            nodes.append(helper.make_node("Relu", [value], [name + ".relu"], name + ".relu"))
            value = name + ".relu"
    info = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "mlp", [info("x", TensorProto.FLOAT, ["batch", 12])],
                              [info(value, TensorProto.FLOAT, ["batch", 10])], weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=11)
    made.configuration.add(name="two", num_devices=2)
    return made


def stages(made, configuration="two", **of):
    for node in made.graph.node:
        if node.name.replace(".", "_") in of:
            node.device_configurations.add(configuration_id=configuration, pipeline_stage=of[node.name.replace(".", "_")])
    return made


def shard(made, node, tensor, axis, shards, size=None, configuration="two"):
    node = next(n for n in made.graph.node if n.name == node)
    if not node.device_configurations:
        node.device_configurations.add(configuration_id=configuration)
    spec = node.device_configurations[0].sharding_spec.add(tensor_name=tensor)
    dim = spec.sharded_dim.add(axis=axis).simple_sharding.add(num_shards=shards)
    if size is not None:
        dim.dim_value = size
    return made


def save(name, made, check=True):
    onnx.save(made, FOLDER / f"{name}.onnx")
    if check:
        onnx.checker.check_model(str(FOLDER / f"{name}.onnx"))


STRAIGHT = dict(fc1=3, fc1_relu=3, fc2=3, fc2_relu=3, fc3=7, fc3_relu=7, fc4=7)
save("stages", stages(model(), **STRAIGHT))
save("uneven", stages(model(), fc1=0, fc2=1, fc3=1, fc4=1))
# Relu belongs to the layer before it; two layers say nothing.
save("some", stages(model(), fc2=0, fc3=1))
save("backwards", stages(model(), fc1=1, fc2=0, fc3=1, fc4=1))
save("torn", stages(model(), fc1=0, fc1_relu=1, fc2=1, fc3=1, fc4=1))
save("unknown", stages(model(), configuration="tow", fc1=0), check=False)
megatron = stages(model(), **STRAIGHT)
megatron.configuration[0].num_devices = 4
for layer, axis, size in (("fc1", 1, 16), ("fc2", 0, 16), ("fc3", -1, None), ("fc4", -2, 16)):
    shard(megatron, layer, layer + ".weight", axis, 2, size)
save("megatron", megatron)
save("half", shard(shard(model(), "fc1", "fc1.weight", 1, 2), "fc2", "fc2.weight", 0, 2))
save("odd", shard(model(), "fc4", "fc4.weight", 1, 3, 10))
save("other-axis", shard(shard(model(), "fc1", "fc1.weight", 0, 2), "fc2", "fc2.weight", 0, 2))
save("two-teams", shard(shard(model(), "fc1", "fc1.weight", 1, 2), "fc3", "fc3.weight", 1, 4))
save("two-axes", shard(shard(model(), "fc1", "fc1.weight", 1, 2), "fc2", "fc2.weight", 0, 2))
both = shard(model(), "fc1", "fc1.weight", 1, 2)
both.graph.node[0].device_configurations[0].sharding_spec[0].sharded_dim.add(axis=0).simple_sharding.add(num_shards=2)
save("two-axes", both)
value = shard(shard(model(), "fc1", "fc1.weight", 1, 2), "fc2", "fc2.weight", 0, 2)
save("value", shard(value, "fc2.relu", "fc2.relu", 0, 2))
several = stages(model(), **STRAIGHT)
several.configuration.add(name="four", num_devices=4)
stages(several, configuration="four", fc1=0, fc1_relu=0, fc2=1, fc2_relu=1, fc3=2, fc3_relu=2, fc4=3)
save("several", several)
