"""ONNX Runtime as an oracle: forwards, and differences of a loss along a gradient that is to be checked.

Every run is on the CPU with one thread. A parameter becomes an input of the model, so that one session serves all.
"""
import multiprocessing

import numpy
import onnx
import onnxruntime
from onnx import numpy_helper

FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE)


def graphs(graph):
    """The graph and the bodies of its control flow."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from graphs(attribute.g)


def constants(model):
    """Every floating-point constant by its name, wherever the exporter has put it: {name: array}."""
    found = {}
    for graph in graphs(model.graph):
        for tensor in graph.initializer:
            if tensor.data_type in FLOATS:
                found[tensor.name] = numpy_helper.to_array(tensor)
        for node in graph.node:
            value = next((a.t for a in node.attribute if a.name == "value"), None) if node.op_type == "Constant" else None
            if value is not None and value.data_type in FLOATS:
                found[node.output[0]] = numpy_helper.to_array(value)
    return found


def lifted(model, names):
    """A copy in which these constants are inputs with a default."""
    model = onnx.ModelProto.FromString(model.SerializeToString())
    model.ir_version = max(model.ir_version, 4)  # initializers need not be inputs, and may be
    graph, inputs = model.graph, {entry.name for entry in model.graph.input}
    for body in graphs(graph):
        moved = [tensor for tensor in body.initializer if tensor.name in names] if body is not graph else []
        for tensor in moved:
            graph.initializer.append(tensor)
            body.initializer.remove(tensor)
        for node in [node for node in body.node if node.op_type == "Constant" and node.output[0] in names]:
            tensor = next(a.t for a in node.attribute if a.name == "value")
            graph.initializer.append(onnx.TensorProto.FromString(tensor.SerializeToString()))
            graph.initializer[-1].name = node.output[0]
            body.node.remove(node)
    for tensor in graph.initializer:
        if tensor.name in names and tensor.name not in inputs:
            graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
    return model


def forwards(model, feeds):
    """All outputs, with and without ONNX Runtime's own optimisations. In a process of its own, which it ends on some models."""
    mine, theirs = multiprocessing.Pipe(duplex=False)

    def child():
        try:
            theirs.send([session_of(model, optimised).run(None, feeds) for optimised in (True, False)])
        except Exception as failure:  # whatever ONNX Runtime raises
            theirs.send(str(failure).splitlines()[0])
    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    theirs.close()
    try:
        found = mine.recv()
    except EOFError:
        process.join()
        found = f"it ended with signal {-process.exitcode}"
    process.join()
    if isinstance(found, str):
        raise RuntimeError(found)
    return found


def session_of(model, optimised=True):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def relative(value, right):
    """Norm-wise error; absolute where the right value vanishes."""
    value, right = numpy.asarray(value, numpy.float64), numpy.asarray(right, numpy.float64)
    norm = numpy.linalg.norm(right)
    return float(numpy.linalg.norm(value - right) / (norm if norm > 1e-12 else 1.0))


class Differences:
    """Derivatives of loss(outputs) of a model, by central differences over ONNX Runtime's forward in f32.

    A step that is too small drowns in rounding, one that is too large in curvature: of steps from 1/8 to 2^-21 of the
    parameter's norm the two neighbours are taken that are known best. What rounding does to the loss is seen where ONNX
    Runtime's optimisations are left out.
    """
    STEPS = [2.0 ** -k for k in range(3, 22, 2)]
    WELL = 0.05  # the doubt over the derivative

    def __init__(self, model, names, feeds, loss):
        self.session, self.feeds, self.loss = session_of(lifted(model, set(names))), feeds, loss
        self.values = {name: value for name, value in constants(model).items() if name in names}
        level = loss(self.session.run(None, feeds))
        other = loss(session_of(model, optimised=False).run(None, feeds))
        # What the last bits of the inputs do: rounding inside of the model does the like.
        random, ulp = numpy.random.default_rng(0), 2.0 ** -23
        nudged = [{name: numpy.asarray(value * (1 + ulp * random.choice([-1, 1], value.shape)), value.dtype)
                   if value.dtype.kind == "f" else value for name, value in feeds.items()} for _ in range(3)]
        near = [abs(level - loss(self.session.run(None, inputs))) for inputs in nudged]
        self.rounding = max(2 * abs(level - other), 2.0 ** -22 * abs(level), 2 * max(near))

    def along(self, name, direction, pairs=None):
        """The derivative along a direction of norm 1, how far from it it may be (what the two estimates that make it are apart,
        and what rounding does to the loss), and which of the pairs of steps gave it: the smallest steps that give it well,
        since large ones agree with each other beyond a kink, too, or else those with the smallest doubt for its size."""
        value = self.values[name].astype(numpy.float64)
        size = max(numpy.linalg.norm(value), 0.1 * numpy.sqrt(value.size))
        steps = {}

        def at(k):
            if k not in steps:
                steps[k] = self.central(name, value, direction, self.STEPS[k] * size)
            return steps[k]

        found = []
        for k in pairs or range(len(self.STEPS) - 1):
            derivative = (at(k) + at(k + 1)) / 2
            doubt = max(abs(at(k) - at(k + 1)), self.rounding / (self.STEPS[k + 1] * size))
            found.append((doubt / max(abs(derivative), 1e-300), derivative, doubt, k))
        well = [entry for entry in found if entry[0] <= self.WELL]
        _, derivative, doubt, chosen = well[-1] if well else min(found)
        # Steps that f32 can take may be too large for a loss that is steep: then smaller ones differ by more than rounding.
        smaller = [abs(value - derivative) - 4 * self.rounding / (self.STEPS[k] * size) for k, value in steps.items()
                   if k > chosen + 1 or not well]
        return derivative, max(doubt, *smaller) if smaller else doubt, chosen

    def central(self, name, value, direction, step):
        ends = [numpy.asarray(value + sign * step * direction, self.values[name].dtype) for sign in (1, -1)]
        losses = [self.loss(self.session.run(None, {**self.feeds, name: end})) for end in ends]
        moved = float(numpy.vdot(ends[0].astype(numpy.float64) - ends[1], direction))  # as rounded
        return (losses[0] - losses[1]) / moved if moved else 0.0

    def error(self, name, gradient, random, directions=2):
        """The largest error of derivatives along the gradient and in random directions, over the gradient's norm; and
        what of it the differences themselves may be."""
        gradient = gradient.astype(numpy.float64)
        norm, pairs = numpy.linalg.norm(gradient), None
        worst, doubt = 0.0, 0.0
        for number in range(directions + 1):
            direction = gradient if number == 0 and norm > 0 else random.standard_normal(gradient.shape)
            direction = direction / numpy.linalg.norm(direction)
            right = numpy.vdot(gradient, direction)
            found, apart, pair = self.along(name, direction, pairs)
            if pairs and abs(found - right) > 2 * apart:  # the steps of another direction may cross kinks in this one
                found, apart, pair = self.along(name, direction)
            pairs = pairs or [pair]
            worst, doubt = max(worst, abs(found - right)), max(doubt, apart)
        return worst, doubt, norm
