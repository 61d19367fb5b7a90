"""traces.py SOURCE: utils/experiments/traces.py by example."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(sys.argv[1], "utils/experiments")))
import traces  # noqa: E402


def event(name, rank, begin_ms, ms, category="compute"):
    return {"name": name, "cat": category, "ph": "X", "pid": rank, "tid": 0, "ts": 1e3 * begin_ms, "dur": 1e3 * ms}


def plan(warmup):
    return {"stages": [{"warmup": warmup, "replicas": 1, "forward_ms": 0, "input_gradient_ms": 0, "weight_gradient_ms": 0, "update_ms": 0}]}


def run(minibatches):
    """Forward 4 ms, backward 5, update 1; the first minibatches take longer, the last two are a drain."""
    at, found = 0, []
    for b in range(minibatches):
        forward = 15 if b < 2 else 0 if b >= minibatches - 2 else 4
        found += [event(f"0F{b}", 0, at, forward), event(f"0B{b}", 0, at + forward, 5), event(f"0U{b + 1}", 0, at + forward + 5, 1)]
        at += forward + 6
    return found


trace = run(12)
print(f"12 minibatches, the first slow, the last two faster: {traces.steady_ms(plan(2), trace):.1f} ms")
window, finished = traces.steady_window(plan(2), trace)
ends = {b: end for _, kind, b, _, _, end in traces.computations(trace) if kind == "B"}
print(f"from the end of minibatch {next(b for b, end in ends.items() if end == window[0])} on, {finished} minibatches")
stage = traces.with_times_of(plan(2), trace, window)["stages"][0]
print(f"forward {stage['forward_ms']:.1f}, backward {stage['input_gradient_ms']:.1f}, update {stage['update_ms']:.1f}")
print(f"with the slow start: forward {traces.with_times_of(plan(2), trace)['stages'][0]['forward_ms']:.1f}")
halves = traces.with_times_of(plan(0), [event("0I0", 0, 0, 3), event("0W0", 0, 3, 2)])["stages"][0]
print(f"halves of a backward: {halves['input_gradient_ms']:.1f} and {halves['weight_gradient_ms']:.1f}")
two = [event(f"0B{2 * k + rank}", rank, 20 * k, 20) for k in range(6) for rank in (0, 1)]
print(f"two replicas that take 20 ms for one each: {traces.steady_ms(plan(0), two):.1f} ms")
# Two microbatches per update, 10 ms each, and 5 ms in which the pipeline is filled again.
flushed = [event(f"0B{k}", 0, 25 * (k // 2) + 5 + 10 * (k % 2), 10) for k in range(14)]
print(f"flushed, a microbatch: {traces.steady_ms({**plan(1), 'microbatches': 2}, flushed):.1f} ms, of updates that are whole: "
      f"{traces.steady_window({**plan(1), 'microbatches': 2}, flushed)[1] / 2:g}")
uneven = [event(f"{rank}B{k}", rank, 20 * k, 20 if rank else 12) for k in range(8) for rank in (0, 1)]
print(f"ranks that compute for 0.6 and all of the time: {traces.busiest(plan(0), uneven):.1f}")
print(f"the first alone: {traces.busiest(plan(0), [each for each in uneven if each['pid'] == 0]):.2f}")
try:
    traces.steady_ms(plan(2), run(3))
except ValueError as error:
    print("refused:", error)
waits = [event("?1RF0<0", 1, 0, 9, "wait"), event("0SF0>1", 0, 0, 9, "send")]
print("waits and transfers are no computations:", len(list(traces.computations(waits))))
