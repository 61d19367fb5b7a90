"""What the trace of a run says: how long its computations took, and how fast it was."""
import json
import re
import statistics


def computations(trace):
    """(stage, kind, minibatch, rank, begin, end) of each forward, backward and update, in milliseconds."""
    for event in trace:
        if (match := re.fullmatch(r"(\d+)([FBIWU])(\d+)", event.get("name", ""))) and event.get("ph") == "X":
            begin = event["ts"] / 1e3
            yield int(match[1]), match[2], int(match[3]), event.get("pid", 0), begin, begin + event["dur"] / 1e3


def with_times_of(plan, trace, window=None):
    """The plan with the mean times of a run's own computations, of those that begin in `window` (milliseconds) if there is one; B is a
    whole backward, I and W are its halves.
    """
    plan = json.loads(json.dumps(plan))
    durations = {}
    for stage, kind, _, _, begin, end in computations(trace):
        if window is None or window[0] <= begin < window[1]:
            durations.setdefault((stage, kind), []).append(end - begin)
    for index, stage in enumerate(plan["stages"]):
        def mean(kind):
            return statistics.mean(durations.get((index, kind), [0]))
        stage["forward_ms"], stage["update_ms"] = mean("F"), mean("U")
        stage["input_gradient_ms"], stage["weight_gradient_ms"] = mean("B") + mean("I"), mean("W")
        stage.pop("all_reduce_core_ms", None)  # in B and U
    return plan


def steady_window(plan, trace):
    """From when to when the pipeline is full and warm, in milliseconds, and how many minibatches it finishes then. A quarter of the run is
    left out, in which memory is touched for the first time; at the end, what is left when no forward comes any more. With microbatches it
    is of whole updates, because a pipeline that is flushed stands still between them.
    """
    microbatches = plan.get("microbatches", 1)
    ends = {}
    for stage, kind, _, rank, _, end in computations(trace):
        if stage == 0 and kind in "BW":
            ends.setdefault(rank, []).append(end)
    windows, finished = [], 0
    for times in ends.values():
        first, last = max(1, len(times) // 4), len(times) - 1 - plan["stages"][0]["warmup"]
        first, last = first + (-first - 1) % microbatches, last - (last + 1) % microbatches
        if last <= first:
            raise ValueError(f"a run of {len(times)} minibatches per replica is too short for a steady state")
        times.sort()
        windows.append((times[first], times[last]))
        finished += last - first
    return (min(begin for begin, _ in windows), max(end for _, end in windows)), finished


def busiest(plan, trace):
    """The largest part of that window that a rank computes for. What it does not compute bounds what transfers cost: other ranks wait for it
    in any case.
    """
    (first, last), _ = steady_window(plan, trace)
    busy = {}
    for _, _, _, rank, begin, end in computations(trace):
        busy[rank] = busy.get(rank, 0) + max(0, min(end, last) - max(begin, first))
    return max(busy.values()) / (last - first)


def steady_ms(plan, trace):
    """Milliseconds per minibatch in that window."""
    (begin, end), finished = steady_window(plan, trace)
    return (end - begin) / finished
