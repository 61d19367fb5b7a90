"""predicted_memory.py PLAN.json: what the planner's sum (include/pdc/Cost/Pipeline.h, 1f1b with stashed weights) makes of each
stage, over the arena that the plan states after code was generated."""
import collections
import json
import sys

plan = json.load(open(sys.argv[1]))
crossing = collections.defaultdict(int)  # (stage, kind): bytes
users = collections.defaultdict(list)
for tensor in plan["tensors"]:
    users[tensor["from"], tensor["name"], tensor["bytes"], tensor["has_gradient"]].append(tensor["to"])
for (sender, _, size, has_gradient), stages in users.items():
    crossing[sender, "sent"] += size
    before = sender
    for stage in sorted(stages):
        crossing[stage, "in"] += size
        if has_gradient:
            crossing[stage, "gradient out"] += size
            crossing[before, "gradient past" if stage > before + 1 else "gradient in"] += size
        before = stage
for number, stage in enumerate(plan["stages"]):
    slots = stage["warmup"] + 1
    total = (stage["parameter_bytes"] * slots + stage["gradient_bytes"] * (stage["sync_delay"] + 1) + stage.get("optimizer_bytes", 0) + stage.get("frozen_bytes", 0)
             + (stage["saved_bytes"] + crossing[number, "sent"]) * slots + stage["scratch_bytes"] + stage.get("handover_bytes", 0)
             + crossing[number, "in"] * (slots + 1) + crossing[number, "gradient out"] * 2
             + crossing[number, "gradient in"] * 2 + crossing[number, "gradient past"] * max(2, slots))
    print(f"stage {number}: {total / stage['memory_bytes']:.3f} of the arena")
