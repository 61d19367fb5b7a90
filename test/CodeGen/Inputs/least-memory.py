"""least-memory.py PLAN CLUSTER COMMAND…: runs the command with --cluster=CLUSTER, which is that of the plan with ever more memory per
device, from what the plan takes on, until it succeeds."""
import json
import subprocess
import sys

plan_file, cluster_file, *command = sys.argv[1:]
with open(plan_file) as file:
    plan = json.load(file)
cluster = plan["cluster"]
least = max(stage["memory_bytes"] for stage in plan["stages"])
for memory in range(least, 2 * least, least // 1000):
    cluster["device"].update(memory_bytes=memory, reserved_bytes=0)
    with open(cluster_file, "w") as file:
        json.dump(cluster, file)
    if subprocess.run([*command, f"--cluster={cluster_file}"], capture_output=True).returncode == 0:
        sys.exit()
sys.exit("no plan in twice the memory")
