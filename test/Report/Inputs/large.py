"""A plan of STAGES stages with NODES nodes each: large.py STAGES NODES."""
import json
import sys

stages, nodes = int(sys.argv[1]), int(sys.argv[2])
made = [
    {
        "nodes": list(range(s * nodes, (s + 1) * nodes)),
        "node_names": ["/layer%d/node%d/%s" % (s, n, "x" * 300) for n in range(nodes)],
        "replicas": 1, "warmup": min(stages - 1 - s, 12), "sync_delay": 0,
        "forward_ms": 1, "input_gradient_ms": 1, "weight_gradient_ms": 1, "update_ms": 0.1,
        "parameter_bytes": 1000, "gradient_bytes": 1000, "saved_bytes": 1000, "scratch_bytes": 1000,
    }
    for s in range(stages)
]
plan = {
    "model": "large", "schedule": "1f1b", "weights": "stash", "sync": "overlap", "microbatches": 1,
    "stages": made,
    "tensors": [{"name": "t%d" % s, "from": s, "to": s + 1, "bytes": 1000, "has_gradient": True} for s in range(stages - 1)],
    "ranks": [{"rank": s, "devices": [s], "hosts": [{"stage": s, "replica": 0}]} for s in range(stages)],
    "cluster": {"levels": [{"name": "all", "count": stages, "bandwidth_bytes_per_s": 1e10, "latency_s": 1e-6}],
                "device": {"name": "V100-16GB"}},
}
json.dump(plan, sys.stdout)
