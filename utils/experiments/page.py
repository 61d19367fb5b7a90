"""What utils/headline has measured, as rows with goals, as docs/Headline.md, and as plots."""
import statistics

import plots
from formulas import reached, rho, rho_of_speedup, spread
from measured import wrapped
from pipelining import FLUSHING
from published import CLUSTERS, SOSP_LARGEST, THROUGHPUT_8B
from simulated import kind_of
from throughput import median, worst_spread


def row(name, value, unit="", goal="", holds=None):
    return {"name": name, "value": value, "unit": unit, "goal": goal, "holds": holds}


def rho_in(result):
    """The ratio that the link has, as TCP was measured to get through it."""
    return rho(2, result["parameter_bytes"], statistics.median(result["links"]), statistics.median(result["compute_ms"]) / 1e3)


def calibrated_error(program):
    """Of the simulator in percent, with the times that computations took in the first round, for the others; for itself if it is alone."""
    first, *others = program["runs"]
    return 100 * (first["own_ms"] / statistics.median([run["ms"] for run in others or [first]]) - 1)


def profile_error(result, name):
    """Of the simulator in percent, with the scaled profile."""
    return 100 * (statistics.median(result["programs"][name]["predicted_ms"]) / median(result, name) - 1)


def exposed_part(run):
    """What of a run's time transfers can have cost at most: of the rank with most to do, what it does not compute. The others wait for that
    one in any case, and the last that they wait for is a transfer.
    """
    return min(run["exposed"], 1 - run["busiest"])


def throughput_rows(result):
    title = f"{result['network']}, rho {result['rho']:.2f} ({result['source']})"
    planned, parallel, straight, ddp = (median(result, "planned"), median(result, "data parallel"), median(result, "straight"),
                                        statistics.median(result["ddp_ms"]))
    programs, bound = result["programs"], statistics.median(result["bound_ms"])
    found = [
        row(f"{title}: link, measured", statistics.median(result["links"]) * 8 / 1e6, "Mbit/s"),
        row(f"{title}: rho of the link as measured", rho_in(result)),
        row(f"{title}: planned {programs['planned']['shape']}, ms per minibatch", planned, "ms"),
        row(f"{title}: share of the bound that the profile gives", bound / planned, "", ">= 0.9", bound / planned >= 0.9)]
    over, headline = parallel / planned, result["name"] == "vgg16"
    found.append(row(f"{title}: planned over data parallel, throughput", over, "", ">= 4.5" if headline else "", over >= 4.5 if headline else None))
    best = min(parallel, straight) / planned
    found.append(row(f"{title}: planned over the best of data parallel and straight, throughput", best, "", ">= 0.95", best >= 0.95))
    found.append(row(f"{title}: pdc's data parallelism over DistributedDataParallel, time", parallel / ddp, "", "<= 1", parallel <= ddp))
    less = 100 * (1 - median(result, "planned", "sent_by_transport") / median(result, "data parallel", "sent_by_transport"))
    found.append(row(f"{title}: bytes that the plan saves of data parallelism's", less, "%", ">= 95" if headline else "",
                     less >= 95 if headline else None))
    for name, program in programs.items():
        off = max((run["sent_by_transport"] - program["formula_bytes"]) * run["minibatches"] / 2**20 for run in program["runs"])
        if program["formula_bytes"]:
            found.append(row(f"{title}: {name}, bytes of a run, counted by the transports, less the formula's", off, "MiB", "0 ± 0.01", abs(off) < 0.0101))
    hidden = programs["planned"]["formula_bytes"] / 2 / statistics.median(result["links"]) * 1e3 < bound
    found.append(row(f"{title}: planned, waiting for transfers under way", 100 * median(result, "planned", "exposed"), "%"))
    exposed = 100 * statistics.median(map(exposed_part, programs["planned"]["runs"]))
    found.append(row(f"{title}: planned, exposed communication", exposed, "%", "<= 2" if hidden else "", exposed <= 2 if hidden else None))
    for name in programs:
        error = calibrated_error(programs[name])
        found.append(row(f"{title}: {name}, error of the calibrated simulator", error, "%", "<= 5", abs(error) <= 5))
        found.append(row(f"{title}: {name}, error of the simulator with the profile", profile_error(result, name), "%"))
    return found


def reached_in(result, name):
    """(epochs, seconds) of each seed to the target; None where it is not reached."""
    sign = -1 if result["metric"] == "perplexity" else 1
    return [reached([(e, s, sign * v) for e, s, v in points], sign * result["target"]) for points in result["curves"][name]]


def middle(found):
    """Medians of epochs and seconds; None if a seed has not reached the target."""
    return None if None in found else tuple(statistics.median(values) for values in zip(*found))


def accuracy_rows(result):
    rows, times = [], {name: middle(reached_in(result, name)) for name in result["curves"]}
    for name, time in times.items():
        what = f"{result['title']}: {name}, {result['metric']} {result['target']:g}"
        rows.append(row(f"{what}: seconds", time[1] if time else float("inf"), "s"))
        rows.append(row(f"{what}: epochs", time[0] if time else float("inf"), ""))
    parallel, stashing = times["data parallel"], times["1F1B, stashing"]
    if parallel and stashing:
        faster, epochs = parallel[1] / stashing[1], stashing[0] / parallel[0]
        rows.append(row(f"{result['title']}: 1F1B with stashing over data parallelism, speed to the target", faster, "", ">= 3", faster >= 3))
        rows.append(row(f"{result['title']}: 1F1B with stashing over data parallelism, epochs to the target", epochs, "", "1 ± 0.1", abs(epochs - 1) <= 0.1))
    return rows


def ranking_rows(result):
    return [row(f"{len(result['plans'])} plans, {result['pairs']} pairs that differ by more than the spread: Kendall's tau", result["tau"], "",
                ">= 0.9", result["tau"] >= 0.9)]


def pipelining_rows(result):
    rows = []
    for schedule, runs in result["programs"].items():
        ratio = statistics.median(run["ms"] for run in runs) / statistics.median(result["pytorch_ms"])
        same = schedule == FLUSHING
        rows.append(row(f"{result['network']}, rho {result['rho']:.2f}, two stages: {schedule} over PyTorch's 1F1B, time", ratio, "", "<= 1" if same else "",
                        ratio <= 1 if same else None))
    return rows


def shapes_rows(result):
    rows = []
    for found in result["rows"]:
        paper = found["paper"]
        for source in ("measured", "released"):
            if source in found:
                goal = 5.1 if (paper["machines"], paper["cluster"]) == (8, "B") else None
                value = found[source]["over_data_parallel"]
                rows.append(row(f"VGG-16 on {paper['machines']} machines of cluster {paper['cluster']}, simulated, {source} profile: over data parallelism",
                                value, "", f">= {goal}" if goal else "", value >= goal if goal else None))
    return rows


def rows(result):
    return {"throughput": throughput_rows, "accuracy": accuracy_rows, "ranking": ranking_rows, "pipelining": pipelining_rows,
            "shapes": shapes_rows}[result["kind"]](result)


def table(header, lines):
    return "\n".join(["| " + " | ".join(header) + " |", "|" + "---|" * len(header), *("| " + " | ".join(map(str, line)) + " |" for line in lines)]) + "\n"


def verdicts(results):
    """All rows with a goal."""
    judged = [each for result in results for each in rows(result) if each["goal"]]
    return table(["what", "measured", "goal", ""], [[each["name"], f"{each['value']:.4g} {each['unit']}".strip(), each["goal"],
                                                      "holds" if each["holds"] else "**missed**"] for each in judged])


def throughput_section(results):
    cell = lambda result, name: f"{median(result, name):.0f} ({100 * worst_spread(result, name):.0f} %)"
    times = table(["network", "ρ", "as in", "batch", "F + B", "link, Mbit/s", "ρ measured", "core, ms per MB", "one host", "data parallel", "DDP", "straight", "planned", "plan", "bound",
                   "planned over data parallel"],
                  [[result["network"], f"{result['rho']:.2f}", result["source"], result["batch"], f"{statistics.median(result['compute_ms']):.0f}",
                    f"{statistics.median(result['links']) * 8 / 1e6:.0f}", f"{rho_in(result):.2f}", f"{1e9 * result['core_s_per_byte']:.2f}", cell(result, "one host"), cell(result, "data parallel"),
                    f"{statistics.median(result['ddp_ms']):.0f}", cell(result, "straight"), cell(result, "planned"),
                    result["programs"]["planned"]["shape"], f"{statistics.median(result['bound_ms']):.0f}",
                    f"{median(result, 'data parallel') / median(result, 'planned'):.2f}"] for result in results])
    moved = table(["network", "ρ", "program", "formula, MB", "transports, MB", "interfaces, MB", "waiting for transfers under way", "waiting for the other rank",
                   "neither", "busiest rank computes", "error with the profile", "error, calibrated", "rounds"],
                  [[result["network"], f"{result['rho']:.2f}", name, f"{program['formula_bytes'] / 1e6:.2f}",
                    f"{median(result, name, 'sent_by_transport') / 1e6:.2f}", f"{median(result, name, 'sent_by_interface') / 1e6:.2f}",
                    *(f"{100 * median(result, name, part):.1f} %" for part in ("exposed", "waiting", "other", "busiest")),
                    f"{profile_error(result, name):+.1f} %",
                    f"{calibrated_error(program):+.1f} %", len(program["runs"])]
                   for result in results for name, program in result["programs"].items()])
    reduced = "".join(f"- {network} is reduced: {words}.\n" for network, words in {result["network"]: result["reduced"] for result in results if result["reduced"]}.items())
    return ("## Throughput\n\n" + wrapped(
        "Milliseconds per minibatch of one worker's size: medians over the rounds, and the largest over the smallest, less 1.\n\n"
        "- `one host` is the same program without a link.\n"
        "- `data parallel` is pdc's program on two hosts: synchronous, with one all-reduce per update.\n"
        "- `DDP` is PyTorch's DistributedDataParallel over gloo.\n"
        "- `straight` is the best plan without replicas, `planned` the planner's choice.\n"
        "- `bound` is a time that no plan beats, given the times of the profile.\n"
        "- `core` is the time that a megabyte, sent or received, takes from the core that computes, as `pipeline --link` measured it over this link. The planner "
        "counts it.\n\n"
        "The machine is shared, and its speed varies. Right before the runs, F + B is measured again with the program of one host, on both hosts at once and without "
        "communication. This measurement sets the link and scales the profile.") + "\n\n"
        f"![Throughput over data parallelism's](headline-throughput.svg)\n\n{times}\n{reduced}\n"
        "## Bytes, and where the time goes\n\n" + wrapped(
        "Bytes that all ranks send per minibatch, in three ways:\n\n"
        "- by the formulas of [Semantics](Semantics.md#bytes);\n"
        "- as the transports count them, in hundredths of a MiB;\n"
        "- as the kernel's interface counters see them, with headers of TCP, IP and Ethernet, connections and control messages.\n\n"
        "Shares of both ranks' time come from the trace of the run, from its middle half. Exposed communication is at most the time in which the busiest rank does "
        "not compute: the other rank waits for the busiest one in any case.\n\n"
        "The simulator receives the times of the scaled profile. For the calibrated error it receives the times of the computations in the first round, and predicts "
        "the other rounds (or the first, if it is alone).") + "\n\n" + moved)


def accuracy_section(result):
    def times(found):
        if None in found:
            return "not reached"
        epochs, seconds = zip(*found)
        return f"{statistics.median(epochs):.1f} ({min(epochs):.1f} to {max(epochs):.1f}) | {statistics.median(seconds):.2f} ({min(seconds):.2f} to {max(seconds):.2f})"

    lines = []
    for name, curves in result["curves"].items():
        cells = times(reached_in(result, name))
        lines.append([name, cells if "|" in cells else f"{cells} | ", f"{statistics.median([points[-1][2] for points in curves]):.4g}"])
    seeds = len(next(iter(result["curves"].values())))
    return (f"## Time to accuracy: {result['title']}\n\n" + wrapped(
        f"Training until the held-out {result['metric']} is {result['target']:g}: {seeds} seed{'s' if seeds > 1 else ''} (order of samples, and Dropout), batch "
        f"{result['batch']} per worker, ρ = {result['rho']:g}, link {statistics.median(result['links']) * 8 / 1e6:.0f} Mbit/s. The pipeline drains and is evaluated after "
        f"each epoch; the time of evaluations does not count. The table has medians, smallest and largest values."
        f"{'' if not result['chosen'] else chr(10) * 2 + result['chosen']}") + "\n\n"
            f"![{result['metric']} against seconds and epochs](headline-{result['name']}.svg)\n\n"
            + table(["training", "epochs", "seconds", f"{result['metric']} at the end"], lines))


def accuracy_plot(result):
    panels = [(label, [(name, [(point[index], point[2]) for point in points]) for name, curves in result["curves"].items() for points in curves])
              for label, index in (("seconds", 1), ("epochs", 0))]
    return plots.curves(f"{result['title']}: {result['metric']}", panels, list(result["curves"]), result["target"])


def throughput_plot(results):
    groups = []
    for result in results:
        parallel = median(result, "data parallel")
        values = [parallel / statistics.median(result["ddp_ms"]), 1.0, parallel / median(result, "straight"), parallel / median(result, "planned"),
                  parallel / statistics.median(result["bound_ms"])]
        groups.append((f"{result['network']}, rho {result['rho']:.2f}", values))
    return plots.bars("Throughput over that of pdc's data parallelism, two hosts", groups, ["PyTorch's DDP", "data parallel", "straight", "planned", "bound"])


def ranking_section(result):
    lines = [[f"{plan['rho']:g}", plan["plan"], f"{plan['predicted_ms']:.2f}", ", ".join(f"{ms:.2f}" for ms in plan["ms"])] for plan in result["plans"]]
    return ("## Ranking of plans\n\n" + wrapped(
        f"{len(result['plans'])} plans at three links: every cut of the network for digits into two stages, data parallelism, and one host. Each is predicted with the "
        f"measured profile, and run. Kendall's τ is **{result['tau']:.3f}** (goal: at least 0.9), over the {result['pairs']} pairs whose measured times differ by more than "
        "the spread of the repetitions.") + "\n\n"
            + table(["ρ", "plan", "predicted, ms", "measured, ms"], lines))


def pipelining_section(results):
    cell = lambda values: f"{statistics.median(values):.0f} ({100 * spread(values):.0f} %)"
    lines = []
    for result in results:
        times = [[run["ms"] for run in runs] for runs in result["programs"].values()]
        torch = result["pytorch_ms"]
        lines.append([result["network"], f"{result['rho']:.2f}", result["batch"], f"{statistics.median(result['links']) * 8 / 1e6:.0f}", cell(torch),
                      *(f"{cell(ms)} | {statistics.median(torch) / statistics.median(ms):.2f}" for ms in times)])
    header = [part for schedule in results[0]["programs"] for part in (schedule, "PyTorch over it")]
    versions = " and ".join(sorted({result["pytorch"] for result in results}))
    return ("## PyTorch's pipelining\n\n" + wrapped(
        f"Two stages on two hosts, {results[0]['microbatches']} microbatches per update. Milliseconds per microbatch: medians over the rounds, and their range.\n\n"
        f"- `PyTorch's 1F1B` is that of torch.distributed.pipelining (PyTorch {versions}, over gloo). The pipeline drains after each update. PyTorch has no partitioner, so it "
        "gets pdc's cut, at the first module with parameters behind it.\n"
        "- `1F1B-flush` is pdc's program of the same schedule.\n"
        "- `1F1B, stashing` is pdc's default; it never drains.") + "\n\n"
            + table(["network", "ρ", "batch", "link, Mbit/s", "PyTorch's 1F1B", *header], lines))


def shapes_section(result):
    lines = []
    for found in result["rows"]:
        paper = found["paper"]
        line = [f"{paper['machines']}, {paper['cluster']}", f"{rho_of_speedup(paper['machines'], paper['data_parallel']):.2f}",
                f"{paper['data_parallel']:.2f}", f"{paper['pipedream']:.2f} ({paper['plan']})", f"{paper['over_data_parallel']:.2f}"]
        for source in ("released", "measured"):
            got = found.get(source)
            line += [f"{got['data_parallel']:.2f}", f"{got['planned']:.2f} ({got['shape']})", f"{got['over_data_parallel']:.2f}"] if got else ["", "not measured", ""]
        lines.append(line)
    swept = "".join(
        f"**{network}**\n\n" + table(["workers", *(f"{gbits:g} Gb/s" for gbits in result["gbits"])],
                                      [[workers, *(f"{shape}: {gain:.2f}" for shape, gain in cells)] for workers, cells in zip(result["workers"], found)]) + "\n"
        for network, found in result["sweep"].items())
    return ("## Beyond two hosts: the papers' clusters, simulated\n\n" + wrapped(
        "Speedups of VGG-16 over one machine. The paper's numbers are from arXiv 1806.03377, Table 1 (Section 5.2): times to accuracy on cluster A "
        f"({CLUSTERS['A']}) and cluster B ({CLUSTERS['B']}).\n\n"
        "The link is so fast that synchronous data parallelism is as slow as in the paper if none of its communication is hidden (one bucket of gradients): ρ = N / speedup − 1. "
        "The simulation makes the same assumption.\n\n"
        "Times come from PipeDream's released profile (64 samples, to judge by its activations), and from the profile measured here (batch 4 on a core, so activations are a "
        "sixteenth in relation to weights).") + "\n\n"
            + table(["machines, cluster", "ρ", "paper: data parallel", "paper: PipeDream", "ratio", "released profile: data parallel", "planned", "ratio",
                     "measured profile: data parallel", "planned", "ratio"], lines)
            + "\n" + wrapped(f"For AlexNet and ResNet-50 the paper states the throughput over data parallelism on 8 machines of cluster B: {THROUGHPUT_8B['AlexNet']} and "
                             f"{THROUGHPUT_8B['ResNet-50']} (Section 5.2). SOSP 2019 states {SOSP_LARGEST} as the largest speedup to accuracy (abstract).") + "\n\n"
            "### Where pipelines win\n\n" + wrapped("PipeDream's released profiles on one level of workers. A cell has the replicas of each stage that the planner chooses, and the throughput "
                                                    "over data parallelism.") + "\n\n"
            "![What the planner chooses](headline-sweep.svg)\n\n" + swept)


def sweep_plot(result):
    network = "VGG-16"
    cells = [[(kind_of(shape), f"{shape}: {gain:.1f}") for shape, gain in found] for found in result["sweep"][network]]
    return plots.winners(f"{network}: the planner's choice, and its throughput over data parallelism's", [f"{workers} workers" for workers in result["workers"]],
                         [f"{gbits:g} Gb/s" for gbits in result["gbits"]], cells, ["data parallelism", "straight pipeline", "stages with replicas"])


DIFFERS = "## What differs from the papers\n\n" + wrapped("""
- Two hosts are two network namespaces of one machine, a core each. The kernel (tbf) limits the links, which carry TCP. The hosts share memory and its bandwidth. The papers
  had GPUs in machines of their own.
- The core that computes also sends and receives. The time that this takes from it is measured with the link, and the planner counts it.
- The batch per worker is small because a core is slow. So weights are more, and activations less of the traffic than in the papers. The link is slowed until the ratio ρ of
  communication to computation is theirs.
- Networks train on noise where only speed is measured. Time to accuracy is measured with small networks and data sets.
- `data parallel` is synchronous (BSP in the papers). pdc and DistributedDataParallel reduce gradients in buckets during the backward.
- The papers' numbers were copied without the papers' pages at hand, and checked against a second-hand summary only.
""".strip()) + "\n"


def machines(results):
    """Where and when parts were measured."""
    places = dict.fromkeys(result["machine"] for result in results)
    return "; ".join(f"{place}; {' and '.join(sorted({result['date'] for result in results if result['machine'] == place}))}" for place in places)


def minutes(results):
    """What parts took."""
    timed = {result["name"]: result["seconds"] / 60 for result in results if "seconds" in result}
    if not timed:
        return ""
    return wrapped(f"Measuring took, in minutes, with profiling and building: {', '.join(f'{name} {each:.1f}' for name, each in timed.items())}; "
                   f"{sum(timed.values()):.0f} for {'all parts' if len(timed) == len(results) else 'these'}.") + "\n\n"


def matrix(results):
    """The page's answer, one line per network and link."""
    of = lambda kind: [result for result in results if result["kind"] == kind]
    pipelining = {(result["network"], result["rho"]): statistics.median(result["pytorch_ms"]) / statistics.median(run["ms"] for run in result["programs"][FLUSHING])
                  for result in of("pipelining")}
    lines = []
    for result in of("throughput"):
        planned, sent = median(result, "planned"), [median(result, name, "sent_by_transport") for name in ("planned", "data parallel")]
        peer = pipelining.get((result["network"], result["rho"]))
        lines.append([result["network"], f"{result['rho']:.2f}", f"{median(result, 'data parallel') / planned:.2f}", f"{100 * (1 - sent[0] / sent[1]):.1f} %",
                      f"{statistics.median(result['ddp_ms']) / planned:.2f}", f"{peer:.2f}" if peer else "", f"{statistics.median(result['bound_ms']) / planned:.2f}"])
    return table(["network", "ρ", "× pdc's data parallelism", "fewer bytes", "× PyTorch's DDP", "× PyTorch's 1F1B, same schedule", "share of the bound"], lines)


def document(results, absent):
    """docs/Headline.md; `absent`: parts that were not measured."""
    of = lambda kind: [result for result in results if result["kind"] == kind]
    judged = [each for result in results for each in rows(result) if each["goal"]]
    missed = [each for each in judged if not each["holds"]]
    text = "# Pipelines against data parallelism\n\n" + wrapped(
        "Is a pipeline faster than data parallelism when the network is slow? PipeDream (arXiv 1806.03377, SOSP 2019) claims up to 5 times, with up to 95 % less communication. Here "
        "the planned pipeline of pdc and its rivals train on two hosts with one core each.") + "\n\n"
    if of("throughput"):
        text += matrix(results) + "\n" + wrapped(
            "A number with × is the throughput of the planned pipeline over that of the rival. ρ is the ratio of communication to computation, taken from a published experiment. "
            "The [glossary](Glossary.md) explains the terms. `share of the bound` compares the pipeline with a time that no plan beats, given the times of the profile.") + "\n\n"
    text += wrapped(f"{len(judged) - len(missed)} of {len(judged)} goals hold{'; missed:' if missed else '.'}") + "\n\n"
    if missed:
        text += wrapped("\n".join(f"- {each['name']}: {each['value']:.4g} {each['unit']}".strip() + f", goal {each['goal']}" for each in missed)) + "\n\n"
    text += wrapped(
        "`sudo ./utils/headline` repeats everything on this page, and `utils/headline --docs` writes the page. `sudo ./utils/headline --quick` repeats VGG-16 alone, once. Both need "
        "root, because they make network namespaces.\n\n"
        "The link of an experiment has the bandwidth that gives its ratio ρ = (2(r−1)/r · |w| / link) / (F + B), with r workers, |w| bytes of trained parameters, and a worker's "
        "measured computation F + B per minibatch.") + "\n\n"
    if absent:
        text += wrapped(f"Not measured yet: {', '.join(absent)}.") + "\n\n"
    text += minutes(results)
    if of("throughput"):
        text += throughput_section(of("throughput")) + "\n"
    if of("pipelining"):
        text += pipelining_section(of("pipelining")) + "\n"
    for kind, section in (("accuracy", accuracy_section), ("ranking", ranking_section), ("shapes", shapes_section)):
        text += "".join(section(result) + "\n" for result in of(kind))
    return text + DIFFERS + "\n## All goals\n\n" + verdicts(results) + "\n" + wrapped(f"Machine: {machines(results)}.") + "\n"


def write(folder, results, absent):
    (folder / "Headline.md").write_text(document(results, absent))
    if throughput := [result for result in results if result["kind"] == "throughput"]:
        (folder / "headline-throughput.svg").write_text(throughput_plot(throughput))
    for result in results:
        if result["kind"] == "accuracy":
            (folder / f"headline-{result['name']}.svg").write_text(accuracy_plot(result))
        if result["kind"] == "shapes":
            (folder / "headline-sweep.svg").write_text(sweep_plot(result))
