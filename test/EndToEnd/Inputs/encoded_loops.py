"""encoded_loops.py PLAN LOG UPDATES: whether each rank of a plan with several stages per rank, whose tensors are all encoded, has sent the bytes
of its messages to the other one: 4 rows of 16 columns as int8, a scale for each row, and for each of the 3 columns that may stay its number and
what it contains. The parts of a gradient are added up from the last stage that reads the value to the one that makes it."""
import json
import re
import sys

ROWS, COLUMNS, KEPT = 4, 16, 3
CODED = ROWS * COLUMNS + 4 * ROWS + KEPT * (4 + 4 * ROWS)
plan, updates = json.load(open(sys.argv[1])), int(sys.argv[3])
rank_of = {host["stage"]: entry["rank"] for entry in plan["ranks"] for host in entry["hosts"]}
messages, ways = [], {}
for tensor in plan["tensors"]:
    messages.append((tensor["from"], tensor["to"]))
    ways.setdefault(tensor["name"], {tensor["from"]}).add(tensor["to"])
for way in map(sorted, ways.values()):
    messages += zip(reversed(way[1:]), reversed(way[:-1]))
expected = [0, 0]
for sender, receiver in messages:
    expected[rank_of[sender]] += CODED * updates * plan["microbatches"] if rank_of[sender] != rank_of[receiver] else 0
sent = [int(size) for size in re.findall(r"has sent (\d+) bytes", open(sys.argv[2]).read())]
print(f"{len(ways)} tensors: {'sent as the formula says' if sent == expected else f'sent {sent}, by the formula {expected}'}")
