"""split_times.py PLAN COMMAND…: what the plan says that members wait, beside what it says with --cluster of a slower link."""
import json
import pathlib
import subprocess
import sys

fast = json.loads(pathlib.Path(sys.argv[1]).read_text())
cluster = fast["cluster"]
cluster["levels"][0]["bandwidth_bytes_per_s"] /= 100
slow_file = pathlib.Path(sys.argv[1]).parent / "slow.json"
slow_file.write_text(json.dumps(cluster))
slow = json.loads(subprocess.run([*sys.argv[2:], f"--cluster={slow_file}", "--emit=plan"], check=True, capture_output=True).stdout)
for direction, times in {"forward": ["forward_ms"], "backward": ["input_gradient_ms", "weight_gradient_ms"]}.items():
    waits = [plan["stages"][0][f"{direction}_team_ms"] for plan in (fast, slow)]
    computed = [sum(plan["stages"][0][time] for time in times) - wait for plan, wait in zip((fast, slow), waits)]
    assert 0 < waits[0] < waits[1], waits
    assert abs(computed[0] - computed[1]) < 1e-6, computed
print("on a link of a hundredth of the bandwidth members wait longer\nand compute as long")
