"""The arithmetic of utils/headline: ratios of communication to computation, bytes, agreement of two rankings."""
import itertools
import re
import statistics


def published_profile(text):
    """Seconds of computation per minibatch, and bytes of parameters, of one of PipeDream's profiles (graph.txt)."""
    compute = parameters = 0
    for line in text.splitlines():
        found = re.search(r"forward_compute_time=([\d.]+), backward_compute_time=([\d.]+), .*parameter_size=([\d.]+)", line)
        if found and "Input" not in line:
            compute += float(found[1]) + float(found[2])
            parameters += float(found[3])
    return compute / 1e3, parameters


def rho(workers, parameter_bytes, bytes_per_s, compute_s):
    """Time that a link takes for an all-reduce of all parameters over a worker's computation per minibatch."""
    return 2 * (workers - 1) / workers * parameter_bytes / bytes_per_s / compute_s


def link_for(ratio, workers, parameter_bytes, compute_s):
    """Bytes per second of the link that gives this ratio."""
    return rho(workers, parameter_bytes, 1, compute_s) / ratio


def rho_of_speedup(workers, speedup):
    """The ratio that a published speedup of synchronous data parallelism over one worker says, if its communication hides nothing:
    N workers finish N minibatches in (1 + rho) of one worker's time for one.
    """
    return workers / speedup - 1


def bytes_per_minibatch(plan):
    """What all ranks send (docs/Semantics.md, "Bytes"): cut tensors and their gradients, and all-reduces, 2(r-1)|w| per update of r
    minibatches. |w| is what has gradients, once each: `parameter_bytes` has the statistics of BatchNorm too, which are not reduced, and
    `gradient_bytes` one accumulator per use of a parameter.
    """
    cut = sum(tensor["bytes"] * (2 if tensor["has_gradient"] else 1) for tensor in plan["tensors"])
    reduced = sum(2 * (stage["replicas"] - 1) * stage.get("reduced_bytes", stage["gradient_bytes"]) / stage["replicas"] for stage in plan["stages"])
    return cut + reduced


def core_bytes(plan):
    """Of each stage: bytes of values and of their gradients that a replica sends and receives per minibatch, and bytes per all-reduce.
    Exact where each tensor goes to one stage.
    """
    values, gradients = [0] * len(plan["stages"]), [0] * len(plan["stages"])
    for tensor in plan["tensors"]:
        for end in (tensor["from"], tensor["to"]):
            values[end] += tensor["bytes"]
            gradients[end] += tensor["bytes"] if tensor["has_gradient"] else 0
    reduced = [4 * (replicas - 1) / replicas * stage["parameter_bytes"] for stage in plan["stages"] for replicas in [stage["replicas"]]]
    return list(zip(values, gradients, reduced))


def spread(values):
    """Largest over smallest, less 1."""
    return max(values) / min(values) - 1


def kendall_tau(predicted, measured):
    """Agreement of two rankings, from -1 to 1, and the number of pairs that it is about. `measured`: a list of repetitions for each.
    A pair counts if its medians differ by more than the repetitions of either do; a tie in the prediction of such a pair agrees half.
    """
    agree = pairs = 0
    for (p, ms), (q, ns) in itertools.combinations(list(zip(predicted, measured, strict=True)), 2):
        m, n = statistics.median(ms), statistics.median(ns)
        if max(m, n) / min(m, n) - 1 <= max(spread(ms), spread(ns)):
            continue
        pairs += 1
        agree += ((p - q) * (m - n) > 0) - ((p - q) * (m - n) < 0)
    return (agree / pairs if pairs else 1.0), pairs


def reached(curve, target):
    """(epochs, seconds) of the first point (epochs, seconds, value) of a curve whose value is at least `target`; None if none is."""
    return next(((epochs, seconds) for epochs, seconds, value in curve if value >= target), None)
