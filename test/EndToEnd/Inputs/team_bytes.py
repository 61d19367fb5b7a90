"""team_bytes.py formula PLAN NETWORK MEMBERS | positions PLAN NETWORK MEMBERS | run PLAN LOG: the bytes that plan.json says a member sends to its team per minibatch, all stages
together, against Megatron-LM's sums counted by hand for the small networks of utils/models, against DeepSpeed-Ulysses' formula where
members divide positions, or against what a run has counted."""
import json
import re
import sys

BATCH, POSITIONS, WIDTH, LAYERS, ROTARY = 4, 8, 32, 2, 16
# Per minibatch: sums of [batch, positions, width]; sums and gathers of other sizes, in numbers.
HIDDEN = BATCH * POSITIONS * WIDTH
BLOCKS = LAYERS * (2 + 2)       # after attention and MLP, and before them in the backward
LOSS = BATCH * POSITIONS * 4    # the largest logit of a position; then three terms of its loss
NETWORKS = {
    # Tables of words and positions; the input gradient of the last layer.
    "gpt2": ((BLOCKS + 2) * HIDDEN + POSITIONS * WIDTH + LOSS, 0),
    # Tables of words, types and positions; input gradients of the last layer and of the one before it, whose result is gathered.
    "bert-base": ((BLOCKS + 4) * HIDDEN + POSITIONS * WIDTH + LOSS, HIDDEN),
    # The table of words; the input gradient of the last layer. Each member has a half of the rotary table.
    "llama": ((BLOCKS + 2) * HIDDEN + LOSS, POSITIONS * ROTARY),
}

planned = sum(stage["team_bytes"] for stage in json.load(open(sys.argv[2]))["stages"])
if sys.argv[1] == "formula":
    summed, gathered = NETWORKS[sys.argv[3]]
    members = int(sys.argv[4])
    expected = 4 * (2 * summed + gathered) * (members - 1) / members
    print(f"{sys.argv[3]} over {members}: {planned} bytes planned, {expected:g} by the formula: {'equal' if planned == expected else 'NOT equal'}")
elif sys.argv[1] == "positions":
    members = int(sys.argv[4])
    around_attention = 2 * LAYERS * 4 * HIDDEN / members * (members - 1) / members  # forward and backward
    mean = 1 + (members - 2)  # of the loss: one number to everyone else at most
    expected = 4 * (around_attention + mean)
    print(f"{sys.argv[3]} over {members}: {planned} bytes planned, {expected:g} by Ulysses' formula: {'equal' if planned == expected else 'NOT equal'}")
else:
    lines = re.findall(r"a member sends (\S+) bytes per minibatch, (\S+) planned", open(sys.argv[3]).read())
    sent, said = (sum(int(line[i]) for line in lines) for i in (0, 1))
    print(f"{len(lines)} teams: " + ("sent as planned" if lines and sent == said == planned else f"sent {sent}, told {said}, planned {planned}"))
