"""graph_with_numpy.py BUILD FOLDER: a graph whose nodes and edges are one sample, trained as a whole, against formulas in NumPy.

y = the sum of (x w)[from] over the edges that lead to each node; the loss is the mean of (y - target)².
"""
import pathlib
import re
import subprocess
import sys

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

build, folder = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
NODES, EDGES, STEPS, RATE = 6, 9, 4, 0.25
rng = numpy.random.default_rng(5)
w = (rng.standard_normal((4, 3)) * 0.5).astype(numpy.float32)
data = {"x": rng.standard_normal((NODES, 4)).astype(numpy.float32), "edges": rng.integers(0, NODES, (2, EDGES)),
        "target": rng.standard_normal((NODES, 3)).astype(numpy.float32)}

nodes = [helper.make_node("MatMul", ["x", "w"], ["h"], "product"), helper.make_node("Split", ["edges"], ["from", "to"], "split"),
         helper.make_node("Squeeze", ["from", "zero"], ["f"]), helper.make_node("Gather", ["h", "f"], ["sent"], "gather"),
         helper.make_node("Squeeze", ["to", "zero"], ["t"]), helper.make_node("Unsqueeze", ["t", "one"], ["places"]),
         helper.make_node("Mul", ["h", "nothing"], ["empty"]),
         helper.make_node("ScatterND", ["empty", "places", "sent"], ["y"], "scatter", reduction="add")]
info = lambda name, shape, element=TensorProto.FLOAT: helper.make_tensor_value_info(name, element, shape)
graph = helper.make_graph(nodes, "nodes", [info("x", ["nodes", 4]), info("edges", [2, "edges"], TensorProto.INT64)],
                          [info("y", ["nodes", 3])],
                          [numpy_helper.from_array(value, name) for name, value in
                           {"w": w, "zero": numpy.array([0]), "one": numpy.array([1]), "nothing": numpy.float32(0)}.items()])
(folder / "data").mkdir(parents=True)
onnx.save(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 16)]), folder / "model.onnx")
for name, value in data.items():
    numpy.save(folder / "data" / f"{name}.npy", value)


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{command[0]} exits with {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def expected():
    adjacency = numpy.zeros((NODES, NODES))
    for source, target in data["edges"].T:
        adjacency[target, source] += 1
    weights, losses = w.astype(float), []
    for _ in range(STEPS + 1):
        rows = adjacency @ data["x"]
        error = rows @ weights - data["target"]
        losses.append((error ** 2).mean())
        weights = weights - RATE * rows.T @ (2 * error / error.size)
    return losses


run(build / "bin/pdc", folder / "model.onnx", "-o", folder / "run", f"--dim=nodes={NODES}", f"--dim=edges={EDGES}", "--loss=mse",
    f"--optimizer=sgd,lr={RATE}", "--batch-axis=x:none", "--batch-axis=edges:none", "--profile=analytic")
run("cmake", "-S", folder / "run", "-B", folder / "run/out", "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={build}")
run("cmake", "--build", folder / "run/out", "--target", "pipeline")
said = run(folder / "run/out/pipeline", "--dir", folder / "run", "--threads", "--data", folder / "data", f"--epochs={STEPS}",
           "--eval", folder / "data", "--metrics", folder / "metrics.jsonl")
found = [float(loss) for loss in re.findall(r'"loss": ?([0-9.e+-]+)', (folder / "metrics.jsonl").read_text())][:STEPS]
losses = expected()
if len(found) != STEPS or not numpy.allclose(found, losses[:STEPS], rtol=1e-5):
    sys.exit(f"the losses are {found}, expected {losses[:STEPS]}\n{said}")
if f"test loss {losses[STEPS]:.4f}" not in said:
    sys.exit(f"the loss after the training is {losses[STEPS]}\n{said}")
print(f"{STEPS} epochs of one sample and an evaluation have the losses of the formulas")
