"""The tables of docs/Reliability.md that utils/faults writes: what the outcomes of its attempts amount to."""
import pathlib
import statistics

PAGE = pathlib.Path(__file__).resolve().parent.parent.parent / "docs/Reliability.md"
WATCHDOG = 8  # seconds
CUT_WATCHDOG = 20  # TCP sends again after up to twice the time that a link was cut
KILLED = ["1-1-1", "2-1", "2-2"]
DIVIDED = "1-1-tp2"  # each stage over a team of two
EVERY, AFTER = 10, 4  # steps between checkpoints, where their cost is measured; those of them in which one is taken and written


def rows_of(state):
    """Rows of the table: kind, what, measured, goal, whether it holds (None: no goal)."""
    rows = []
    kind = None

    def row(name, value, goal="", holds=None):
        rows.append((kind, name, value, goal, holds))

    def wrong(name, outcomes):
        count = sum(outcome["problem"] is not None for outcome in outcomes)
        row(f"… that {name}", str(count), "0", count == 0)

    def seconds(outcomes):
        return [outcome["seconds"] for outcome in outcomes]

    kind = "kill"
    if kills := state.of("kill"):
        by_plan = ", ".join(f"{sum(o['plan'] == plan for o in kills)} of {plan}" for plan in KILLED)
        row("`kill -9` of a random rank at a random moment: runs", f"{len(kills)} ({by_plan})", "300", len(kills) >= 300)
        row("… during training, resumed from a checkpoint",
            f"{sum(o.get('action') is not None for o in kills)}, {sum(o.get('from', 0) > 0 for o in kills)}")
        wrong("did not end with 75, name the rank, or resume to the same bits", kills)
        row("… until every process was gone: median, longest",
            f"{statistics.median(seconds(kills)):.2f} s, {max(seconds(kills)):.2f} s", "≤ 10 s", max(seconds(kills)) <= 10)
    kind = "member"
    if members := state.of("member"):
        row("`kill -9` of a random member of two stages' teams of 2: runs", str(len(members)), "50", len(members) >= 50)
        row("… during training, resumed from a checkpoint",
            f"{sum(o.get('action') is not None for o in members)}, {sum(o.get('from', 0) > 0 for o in members)}")
        wrong("did not end with 75, name the process, or resume to the same bits", members)
        row("… until every process was gone: median, longest",
            f"{statistics.median(seconds(members)):.2f} s, {max(seconds(members)):.2f} s", "≤ 10 s", max(seconds(members)) <= 10)
    kind = "stop"
    if stops := state.of("stop"):
        row(f"SIGSTOP of a rank for 1 to 60 s, watchdog {WATCHDOG} s: runs", str(len(stops)), "50", len(stops) >= 50)
        ended = [o for o in stops if o.get("ended")]
        row("… that went on, that the watchdog ended", f"{len(stops) - len(ended)}, {len(ended)}")
        wrong("neither went on to the same bits nor ended by the watchdog, or ended before its limit", stops)
        if ended:
            row("… from the stop until the watchdog had ended the run: shortest, longest",
                f"{min(seconds(ended)):.1f} s, {max(seconds(ended)):.1f} s", f"≥ {WATCHDOG} s", min(seconds(ended)) >= WATCHDOG)
    kind = "restart"
    if restarts := state.of("restart"):
        row("two kills in one `pdc-run --max-restarts=3`: runs", str(len(restarts)))
        wrong("did not end by themselves with the same bits", restarts)
    kind = "link"
    if links := state.of("link"):
        short, good = [o for o in links if not o["for_good"]], [o for o in links if o["for_good"]]
        row("two hosts, 100 Mbit/s, link cut for 5 s: runs", str(len(short)))
        wrong("did not go on to the same bits", short)
        if good:
            row(f"… cut for good, watchdog {CUT_WATCHDOG} s: runs", str(len(good)))
            wrong("did not end with 75, name the host's rank, or left a process on either host", good)
            row("… until every process was gone on both hosts: longest", f"{max(seconds(good)):.1f} s")
    kind = "disk"
    if disks := state.of("disk"):
        row("checkpoints on a disk that becomes full: runs", str(len(disks)))
        wrong("lost a checkpoint, crashed, or trained other bits", disks)
    kind = "data"
    if data := state.of("data"):
        row("a file of the data set is truncated or written to: runs", str(len(data)))
        wrong("did not end with 65, name the file, or resume to the same bits", data)
    kind = "files"
    if files := state.of("files"):
        row("10,000 damaged shards and manifests: not seen", str(sum(o["problem"] is not None for o in files)), "0",
            not any(o["problem"] for o in files))
    kind = "models"
    if models := state.of("models"):
        count = sum(o["models"] for o in models)
        row("random models as pipelines under asan+ubsan, against the interpreter and finite differences: models",
            f"{count:,} of {sum(o['stages'] for o in models):,} stages", "2,000", count >= 2000)
        row("… hundreds of which a model failed, or that ended with a report", str(sum(o["problem"] is not None for o in models)), "0",
            not any(o["problem"] for o in models))
    kind = "plans"
    if plans := state.of("plans"):
        run, checked = plans[-1]["run"], plans[-1]["checked"]
        row("random plans under asan+ubsan: trained over MPI with synchronous sends, checked for deadlocks", f"{run:,}, {checked:,}",
            "500, 100,000", run >= 500 and checked >= 100_000)
        wrong("ended with other weights than the replay's, a deadlock or a report", plans[-1:])
    kind = "overhead"
    pairs = [o for o in state.of("overhead") if o["problem"] is None]
    if pairs:
        size, step = pairs[0]["bytes"] / 1e6, statistics.median(o["off"] for o in pairs) / 1e3
        within = {way: [value for o in pairs for value in o[f"{way}_cycles"]] for way in ("on", "off")}
        mean = {way: statistics.fmean(values) for way, values in within.items()}
        error = {way: statistics.stdev(values) / len(values) ** 0.5 for way, values in within.items()}
        row(f"checkpoints of {size:.0f} MB each {EVERY} steps of {step:.2f} s, two ranks on two cores: what the {AFTER} steps at each take more "
            f"than the others after it, of all {EVERY}; mean of {len(within['on'])} and standard error",
            f"{mean['on']:+.2f} ± {error['on']:.2f} %", "≤ 2 %", mean["on"] <= 2)
        row(f"… the same steps of runs without checkpoints ({len(within['off'])})", f"{mean['off']:+.2f} ± {error['off']:.2f} %")
        added = [100 * (o["on"] / o["off"] - 1) for o in pairs]
        row(f"… all steps against those of runs without checkpoints, median of {len(pairs)} pairs in turns",
            f"{statistics.median(added):+.2f} % ({min(added):+.2f} to {max(added):+.2f})")
    return rows


# How the first row of each kind begins; its other rows begin with "…".
FIRST_ROW = {"kill": "`kill -9` of a random rank", "member": "`kill -9` of a random member", "stop": "SIGSTOP", "restart": "two kills",
             "link": "two hosts", "disk": "checkpoints on a disk", "data": "a file of the data set", "files": "10,000 damaged",
             "models": "random models", "plans": "random plans", "overhead": "checkpoints of"}


def kind_of(name):
    return next(kind for kind, begin in FIRST_ROW.items() if name.startswith(begin))


def write_docs(rows, kinds):
    """The rows of `kinds` in the table of docs/Reliability.md."""
    before, rest = PAGE.read_text().split("<!-- results: written by utils/faults -->\n")
    table, after = rest.split("<!-- end of results -->")
    lines = {kind: [] for kind in FIRST_ROW}
    for line in table.splitlines()[2:]:
        name = line.removeprefix("| ")
        kind = kind if name.startswith("…") else kind_of(name)
        lines[kind].append(line)
    for kind in kinds:
        if new := [f"| {name} | {value} | {goal} |" for of, name, value, goal, _ in rows if of == kind]:
            lines[kind] = new
    table = "\n".join(["| what | measured | goal |", "|---|---|---|", *(line for kind in FIRST_ROW for line in lines[kind])])
    PAGE.write_text(f"{before}<!-- results: written by utils/faults -->\n{table}\n<!-- end of results -->{after}")
