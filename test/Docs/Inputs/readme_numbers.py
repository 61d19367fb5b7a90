"""readme_numbers.py SOURCE: README's table of rivals has the numbers of docs/measured and docs/PlannerModels.md; prints its lines."""
import json
import pathlib
import re
import statistics
import sys

root = pathlib.Path(sys.argv[1])
page = (root / "README.md").read_text()
lines = {line.split("|")[1].strip(): line for line in page.splitlines() if line.startswith("| ") and line.count("|") == 5}
measured = root / "docs/measured"
failed = False


def expect(rival, *texts):
    """The one line about a rival has all texts."""
    global failed
    line = next(line for name, line in lines.items() if name.startswith(rival))
    missing = [text for text in texts if text not in line]
    failed = failed or bool(missing)
    print(f"{rival}: {'lacks ' + ', '.join(missing) if missing else ', '.join(texts)}")


def span(values):
    return f"{min(values):.2f} to {max(values):.2f}"


entries = json.loads((measured / "bench.json").read_text())["entries"]
newest = [entry for entry in entries if "family 26" in entry["machine"]]
value = lambda entry, ending: next(row["value"] for row in entry["rows"] if row["name"].endswith(ending))
steps = [value(entry, ": step, over PyTorch") for entry in newest if entry["key"].endswith(", 1")]
expect("PyTorch 1.13 on a CPU", span(steps), f"({len(steps)} networks, 1 thread)", "AMD EPYC, family 26")
expect("PyTorch 1.13's memory", span([value(entry, ": peak memory over PyTorch") for entry in newest]))
if any("newer PyTorch" in entry["versions"] for entry in entries) == ("no newer PyTorch on a CPU" in page):
    failed = True
    print("README's limits say whether docs/measured/bench.json has a newer PyTorch, and are wrong")

gpu = json.loads((measured / "gpu/numbers.json").read_text())
ratios = [row["pdc_ms"] / min(way["ms"] for way in row["pytorch"].values()) for row in gpu["networks"].values()]
expect(f"PyTorch {'.'.join(gpu['torch'].split('.')[:2])} on a GPU", span(ratios), f"({len(ratios)} networks)", gpu["gpu"].split(",")[0])

vgg16 = json.loads((measured / "headline/vgg16.json").read_text())
ms = {name: statistics.median(run["ms"] for run in program["runs"]) for name, program in vgg16["programs"].items()}
sent = {name: statistics.median(run["sent_by_transport"] for run in program["runs"]) for name, program in vgg16["programs"].items()}
expect("data parallelism on two hosts", f"two hosts, {statistics.median(vgg16['links']) * 8 / 1e6:.0f} Mbit/s",
       f"{ms['data parallel'] / ms['planned']:.1f} × as fast as with pdc's", f"{statistics.median(vgg16['ddp_ms']) / ms['planned']:.1f} × as with PyTorch",
       f"{100 * (1 - sent['planned'] / sent['data parallel']):.1f} % fewer bytes")
peers = [json.loads(file.read_text()) for file in sorted((measured / "headline").glob("*-pytorch.json"))]
faster = [statistics.median(peer["pytorch_ms"]) / statistics.median(run["ms"] for run in peer["programs"]["1F1B-flush"]) for peer in peers]
expect("PyTorch 2.15's 1F1B", f"{min(faster):.1f} to {max(faster):.1f} × as fast ({len(faster)} networks)")

planning = (root / "docs/PlannerModels.md").read_text()
tables = {title: [[cell.strip() for cell in line.strip("|").split("|")] for line in rest.split("\n\n")[1].splitlines()]
          for title, rest in re.findall(r"^\*\*`(pipedream-code|piper)`: against [^\n]*\*\*\n(\n.*?\n)\n", planning, re.M | re.S) for rest in ["\n\n" + rest.strip()]}
ours, theirs = [], []
for header, _, *rows in tables.values():
    for row in rows:
        cell = dict(zip(header, row))
        if not re.match("equal|smaller", cell["agrees"]) or cell["certificate"] not in ("proven", "no plan"):
            failed = True
            print(f"not equal and proven: {row}")
        ours.append(float(cell["pdc (CPU s)"]))
        theirs += [float(text) for name in cell if name.startswith("theirs (") and name.endswith("s)") and re.fullmatch(r"[\d.]+", text := cell[name])
                   and name != "theirs (ms)"]
expect("the planners", f"at most {max(ours):.2f} s", f"up to {max(theirs):.0f} s")
sys.exit(failed)
