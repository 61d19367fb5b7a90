"""Networks with BatchNorm as an export for inference has them: its statistics stay what they are, and where it follows a
convolution it is folded into that, whose weights are then other numbers under another name."""
import onnx
import torch
from onnx import numpy_helper
from torch import nn
from torch.fx.experimental import optimization


def has_batch_norm(module):
    return any(isinstance(part, nn.BatchNorm2d) for part in module.modules())


def with_statistics(module, inputs):
    """Puts the module into inference mode, with the statistics of `inputs`."""
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.momentum = 1.0
    with torch.no_grad():
        module(*inputs)
    module.eval()


def folded(module):
    return optimization.fuse(module.eval())


def as_exported(module, path):
    """The weights of what the model at `path`, an export of `module` for inference, is compared with. The exporter rounds
    differently where it folds: its numbers are taken, which hardly differ."""
    if not has_batch_norm(module):
        return module.state_dict()
    module = folded(module)
    graph = onnx.load(path).graph
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    nodes = [node for node in graph.node if node.op_type == "Conv"]
    parts = [module.get_submodule(node.target) for node in module.graph.nodes if node.op == "call_module"]
    convolutions = [part for part in parts if isinstance(part, nn.Conv2d)]
    if len(nodes) != len(convolutions):
        raise ValueError(f"{path} has {len(nodes)} convolutions, the network {len(convolutions)}")
    with torch.no_grad():
        for node, part in zip(nodes, convolutions):
            values = [part.weight, *([part.bias] if part.bias is not None else [])]
            for name, value in zip(node.input[1:], values, strict=True):
                exported = torch.tensor(stored[name])
                torch.testing.assert_close(exported, value.data, rtol=1e-4, atol=1e-5)
                value.copy_(exported)
    return module.state_dict()
