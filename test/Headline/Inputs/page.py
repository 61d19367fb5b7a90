"""page.py SOURCE FOLDER: utils/experiments/page.py with numbers that nobody has measured; prints all rows with a goal."""
import pathlib
import sys

sys.path[:0] = [str(pathlib.Path(sys.argv[1], folder)) for folder in ("utils/experiments", "utils")]
import page  # noqa: E402
from published import TABLE_1  # noqa: E402


def program(shape, ms, formula, sent=None, own=None, exposed=0.0, busiest=0.9):
    run = {"minibatches": 1, "ms": ms, "own_ms": own or ms, "compute_ms": 20.0, "sent_by_transport": formula if sent is None else sent, "sent_by_interface": 1.05 * formula,
           "exposed": exposed, "waiting": 0.01, "other": 0.0, "busiest": busiest}
    return {"shape": shape, "formula_bytes": formula, "predicted_ms": [0.9 * ms], "runs": [run, run]}


throughput = {"kind": "throughput", "name": "vgg16", "network": "VGG-16", "source": "a paper", "reduced": "smaller images", "rho": 5.2, "batch": 4,
              "compute_ms": [150.0], "parameter_bytes": 1e6, "bound_ms": [95.0], "core_s_per_byte": 4e-10, "links": [1e8], "ddp_ms": [400.0, 400.0], "seconds": 330.0, "date": "2026-01-01",
              "programs": {"one host": program("1", 150.0, 0), "data parallel": program("2", 500.0, 100 * 2**20),
                           "straight": program("1-1", 110.0, 100), "planned": program("1-1", 100.0, 3 * 2**20, 4 * 2**20, 96.0, 0.03, 0.99)}}
throughput["programs"]["planned"]["formula_bytes"] = 3 * 2**20
curves = {"data parallel": [[1, 3.0, 0.5], [2, 6.0, 0.96]], "1F1B, stashing": [[1, 0.5, 0.4], [3, 1.5, 0.97]], "2BW": [[1, 0.5, 0.4]],
          "1F1B-flush": [[1, 0.5, 0.99]]}
accuracy = {"kind": "accuracy", "name": "digits", "title": "Digits", "chosen": "The target came first.", "rho": 5.2, "metric": "accuracy", "target": 0.95, "batch": 32, "samples": 100,
            "links": [1e6], "curves": {name: [points, points] for name, points in curves.items()}, "date": "2026-01-02"}
ranking = {"kind": "ranking", "name": "ranking", "tau": 1.0, "pairs": 3, "date": "2026-01-02",
           "plans": [{"plan": f"cut {cut}", "rho": 1.0, "link": 1e6, "predicted_ms": cut, "ms": [cut, cut]} for cut in (1, 2, 3)]}
pipelining = {"kind": "pipelining", "name": "vgg16-pytorch", "pytorch": "9.9", "network": "VGG-16", "rho": 5.2, "batch": 4, "microbatches": 4, "links": [1e8],
              "pytorch_ms": [200.0, 300.0], "programs": {"1F1B-flush": [{"ms": 300.0}, {"ms": 310.0}], "1F1B, stashing": [{"ms": 100.0}, {"ms": 100.0}]},
              "date": "2026-01-02"}
row = next(row for row in TABLE_1 if (row.machines, row.cluster) == (8, "B"))
simulated = {"rho": 4.88, "shape": "7-1", "data_parallel": 1.35, "planned": 6.83, "over_data_parallel": 5.06}
shapes = {"kind": "shapes", "name": "shapes", "rows": [{"paper": row._asdict(), "released": simulated}], "workers": [4], "gbits": [1, 10],
          "sweep": {"VGG-16": [[["3-1", 2.0], ["4", 1.0]]]}, "date": "2026-01-02"}

runs = [{"exposed": 0.03, "busiest": busiest} for busiest in (0.9, 0.99)]
print("exposed, one rank waits for the other, or for transfers:", *(f"{100 * page.exposed_part(run):.0f} %" for run in runs))
results = [{**result, "machine": "a processor"} for result in (throughput, accuracy, ranking, pipelining, shapes)]
for each in (each for result in results for each in page.rows(result)):
    if each["goal"]:
        print(f"{each['name']}: {each['value']:.4g}, goal {each['goal']}: {each['holds']}")
page.write(pathlib.Path(sys.argv[2]), results, ["alexnet", "text"])
