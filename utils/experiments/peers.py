"""PyTorch on the same two hosts: DistributedDataParallel, and a newer one's pipelining where that is installed."""
import json
import os
import statistics
import subprocess
import sys

from measured import NEWER_TORCH
from pipelines import PYTHON, root

PORT = 7712


def _run(hosts, python, script, words):
    """The milliseconds of the steps that a script's rank 0 prints; `words` of a rank make its command line."""
    commands = [[*hosts.inside(rank), python, root / "utils/experiments" / script, *words(rank), hosts.address(0), PORT, "eth0"]
                for rank in (0, 1)]
    workers = [subprocess.Popen([*map(str, command)], text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                env={**os.environ, "OMP_NUM_THREADS": "1"}) for command in commands]
    outputs = [worker.communicate() for worker in workers]
    if any(worker.returncode for worker in workers):  # which often fail because the other one did
        sys.exit("utils/headline: PyTorch's workers failed:\n" + "\n".join(errors[-6000:] for _, errors in outputs))
    return json.loads(outputs[0][0].splitlines()[-1])["ms"]


def ddp(hosts, case, steps):
    """Milliseconds per minibatch of one worker: a worker on each host."""
    return statistics.median(_run(hosts, PYTHON, "ddp.py", lambda rank: [case.network, case.size, case.batch, steps, rank, 2])) / 2


def torch_pipelining(hosts, case, plan, steps):
    """Milliseconds per microbatch of 1F1B with flushes, with two stages that are cut as in this plan of pdc."""
    microbatches, nodes = plan["microbatches"], ", ".join(plan["stages"][1]["node_names"])
    words = lambda rank: [case.network, case.size, case.batch, microbatches, steps, rank, nodes]
    return statistics.median(_run(hosts, NEWER_TORCH, "torch_pipelining.py", words)) / microbatches
