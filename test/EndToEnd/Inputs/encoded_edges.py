"""encoded_edges.py bytes PLAN LOG STEPS COLUMNS | losses A B MOST: whether a run has sent what int8 rows of the encoded tensors take, by
the formula, or how far the losses of two runs are apart."""
import json
import re
import sys

lines = lambda path: [json.loads(line) for line in open(path)]
if sys.argv[1] == "bytes":
    rows, columns, steps, kept = 32, 32, int(sys.argv[4]), int(sys.argv[5])
    plan = json.load(open(sys.argv[2]))
    tensors = [tensor for tensor in plan["tensors"] if "codec" in tensor]
    tied = sum(shared["bytes"] for shared in plan["shared_parameters"])  # each version goes forth, each gradient back
    # Integers, a scale for each row, and for each column that may stay its number and what it contains; forth and back.
    expected = rows * columns + 4 * rows + kept * (4 + 4 * rows)
    assert tensors and all(tensor["bytes"] == expected for tensor in tensors), (expected, tensors)
    sent = [int(bytes) for bytes in re.findall(r"has sent (\d+) bytes", open(sys.argv[3]).read())]
    print(f"{len(tensors)} tensors: {'sent as the formula says' if sent == [steps * (len(tensors) * expected + tied)] * 2 else (sent, expected)}")
else:
    a, b = ([line["loss"] for line in lines(path) if "loss" in line] for path in sys.argv[2:4])
    apart = max(abs(x - y) for x, y in zip(a, b))
    print("losses are " + ("equal" if apart == 0 else "near" if apart <= float(sys.argv[4]) else f"apart by {apart}"))
