"""team_bytes.py formula PLAN NETWORK MEMBERS | positions PLAN NETWORK MEMBERS | experts PLAN NETWORK MEMBERS | run PLAN LOG: the bytes that
plan.json says a member sends to its team per minibatch, all stages together, against Megatron-LM's sums counted by hand for the small
networks of utils/models, against DeepSpeed-Ulysses' formula where members divide positions, against GShard's all-to-alls where they
divide experts, or against what a run has counted."""
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
elif sys.argv[1] == "experts":
    # Of hand_made.py: 4 samples of 6 tokens of 16 numbers; 4 experts with 10 slots, of which each token chooses 2, and a layer with 2
    # slots for each sample, of which each token chooses 1.
    members = int(sys.argv[4])
    tokens, width, experts, chosen, samples = 24, 16, 4, 2, 4
    others = (members - 1) / members
    slots = {"flat": experts * 10 * width, "grouped": experts * samples * 2 * width}
    between_groups = 4 * slots["grouped"] / members
    # Without groups members gather tokens, or exchange features for tokens, and these for experts: forward and backward, to them and back.
    gathered, exchanged = 4 * tokens * width, 4 * (tokens * width + slots["flat"]) / members
    probabilities = 2 * tokens * experts                # where they are looked up, and their gradients
    counts = chosen * 2 * tokens * experts / members    # exchanged for running sums over all tokens, and back
    firsts = 2 * experts                                # how many tokens each expert has as the first choice, summed
    choices = 2 * (2 * tokens * chosen * 2)             # experts and slots in 64 bits, at dispatch and at combine
    gates = 2 * tokens * chosen                         # and their gradients
    flat = min(gathered, exchanged) + probabilities + counts + firsts + choices + gates
    # The gates of the layer with groups: where to look them up, in 64 bits; what was found; the gradients of the probabilities.
    grouped = between_groups + 2 * tokens + tokens + tokens * experts
    loss = 1 + (members - 2)                            # the mean, as above
    expected = 4 * (others * (flat + grouped) + loss)
    print(f"experts over {members}: {planned} bytes planned, {expected:g} by the formula: {'equal' if planned == expected else 'NOT equal'}")
else:
    lines = re.findall(r"a member sends (\S+) bytes per minibatch, (\S+) planned", open(sys.argv[3]).read())
    sent, said = (sum(int(line[i]) for line in lines) for i in (0, 1))
    print(f"{len(lines)} teams: " + ("sent as planned" if lines and sent == said == planned else f"sent {sent}, told {said}, planned {planned}"))
