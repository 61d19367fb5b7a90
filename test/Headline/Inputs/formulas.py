"""formulas.py SOURCE: utils/experiments/formulas.py by example."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(sys.argv[1], "utils/experiments")))
import formulas  # noqa: E402
import pipelines  # noqa: E402

vgg, seconds = 553430176, 0.149  # bytes, of a V100
print(f"rho of VGG-16 on 8 machines: {formulas.rho(8, vgg, 1.25e9, seconds):.2f}")
print(f"the link for it: {formulas.link_for(formulas.rho(8, vgg, 1.25e9, seconds), 8, vgg, seconds):.0f}")
print(f"two machines pay half of what very many pay: {formulas.rho(1e9, 100, 1, 1) / formulas.rho(2, 100, 1, 1):.2f}")
print(f"a speedup of 1.36 on 8: {formulas.rho_of_speedup(8, 1.36):.2f}")
graph = """node1 -- Input0 -- forward_compute_time=9.0, backward_compute_time=9.0, activation_size=1.0, parameter_size=9.000
node2 -- Linear(2, 3) -- forward_compute_time=3.500, backward_compute_time=6.000, activation_size=5.0, parameter_size=1000.000
node3 -- ReLU() -- forward_compute_time=0.500, backward_compute_time=0.500, activation_size=5.0, parameter_size=0.000
\tnode1 -- node2
"""
print("a profile without its input: %.4f s, %.0f bytes" % formulas.published_profile(graph))


def plan(tensors, *stages):
    return {"tensors": [{"bytes": size, "has_gradient": back} for size, back in tensors],
            "stages": [{"replicas": replicas, "gradient_bytes": gradients, "parameter_bytes": gradients + 77} for replicas, gradients in stages]}


print(f"a straight pipeline moves what is cut, there and back: {formulas.bytes_per_minibatch(plan([(100, True), (50, False)], (1, 10), (1, 20))):.0f}")
print(f"two replicas move all gradients once per minibatch: {formulas.bytes_per_minibatch(plan([], (2, 4000))):.0f}")
twice = plan([], (2, 4000))
twice["stages"][0]["reduced_bytes"] = 2000
print(f"a parameter with two uses is reduced once: {formulas.bytes_per_minibatch(twice):.0f}")
if formulas.bytes_per_minibatch(plan([], (2, 0))) == 0:
    print("statistics of BatchNorm are not moved")

cut = {"stages": [{"replicas": 2, "parameter_bytes": 100}, {"replicas": 1, "parameter_bytes": 50}], "tensors": [
    {"from": 0, "to": 1, "bytes": 8, "has_gradient": True}, {"from": 0, "to": 1, "bytes": 5, "has_gradient": False}]}
print("values, gradients and all-reduces that a replica sends and receives:", formulas.core_bytes(cut))
slow = pipelines.with_link({"stages": [{"all_reduce_ms": 10, "exposed_sync_ms": 4}, {}], "cluster": {"levels": [{"bandwidth_bytes_per_s": 8e6}]}}, 4e6)
print(f"half the link: all-reduces of {slow['stages'][0]['all_reduce_ms']:.0f} ms and {slow['stages'][1]['all_reduce_ms']:.0f} ms, "
      f"{slow['cluster']['levels'][0]['bandwidth_bytes_per_s']:.0f} bytes/s")
late = pipelines.with_link({"stages": [{"replicas": 3, "all_reduce_ms": 10}], "cluster": {"levels": [{"bandwidth_bytes_per_s": 8e6, "latency_s": 1e-3}]}}, 4e6)
print(f"latency stays, of 4 steps 1 ms each: {late['stages'][0]['all_reduce_ms']:.0f} ms")


def tau(predicted, measured):
    value, pairs = formulas.kendall_tau(predicted, measured)
    return f"{round(value, 2)} of {pairs} pairs"


exact = [[1.0, 1.0], [2.0, 2.0], [4.0, 4.0]]
print("the same ranking:", tau([10, 20, 30], exact))
print("the opposite:", tau([30, 20, 10], exact))
print("one pair of three turned round:", tau([20, 10, 30], exact))
print("a pair closer than its spread does not count:", tau([2, 1, 3], [[1.0, 1.2], [1.1, 1.3], [4.0, 4.0]]))
print("a tie in the prediction counts for nothing:", tau([1, 1, 2], exact))
print("no pairs:", tau([1], [[1.0]]))
points = [(1, 2.0, 0.5), (2, 3.5, 0.91), (3, 5.0, 0.95)]
print("reached after %d epochs and %.1f s" % formulas.reached(points, 0.9))
print("never reached:", formulas.reached(points, 0.99))
