"""What utils/bench-auto says in docs/Results.md and docs/Splitting.md."""
import measured
from splits import LINKS, MICROBATCHES, TITLES, is_undivided

GOAL, PEER_GOAL, WINS = 0.97, 0.5, 3
HEADER = ["network, link", "`auto`, predicted, ms", "measured, ms", "fastest by hand, measured, ms", "share of it", "fastest without splits, ms", "faster by",
          "fastest of PyTorch, ms", "time over PyTorch's"]
PAGE, PART, SCRIPT = "docs/Splitting.md", "results", "utils/bench-auto"


class Cell:
    """A network at a link: times are the fastest of the rounds, because what else a machine does only adds to them."""

    def __init__(self, of):
        self.of = of
        self.ms = {title: min(times) for title, times in of.get("runs", {}).items() if times}
        self.auto = self.ms["auto"]
        self.best = min(self.ms, key=self.ms.get)
        undivided = [title for title in self.ms if ":" not in self.name(title)]
        self.undivided = min(undivided, key=self.ms.get)
        self.peer = min(of["peers"], key=of["peers"].get) if of.get("peers") else None

    def name(self, title):
        return self.of["auto"]["title"] if title == "auto" else title

    def predicted(self, title):
        """None of a plan that ran for other links' sake, and is not among those by hand."""
        return (self.of["auto"] if title == "auto" else self.of["plans"].get(title, {})).get("predicted_ms")

    def share(self):
        return self.ms[self.best] / self.auto

    def faster(self):
        return self.ms[self.undivided] / self.auto

    def over_peer(self):
        return self.auto / self.of["peers"][self.peer] if self.peer else None


def cells(found):
    return {(each["name"], link): Cell(each["links"][link]) for each in found for link in LINKS if each["links"].get(link, {}).get("runs", {}).get("auto")}


def row(name, value, goal, holds):
    return {"name": name, "value": value, "unit": "", "goal": goal, "holds": holds}


def rows_of(title, cell):
    rows = [row(f"{title}: share of the fastest plan by hand", cell.share(), f">= {GOAL}", cell.share() >= GOAL)]
    return rows + ([row(f"{title}: time over the fastest of PyTorch", cell.over_peer(), f"<= {PEER_GOAL}", cell.over_peer() <= PEER_GOAL)] if cell.peer else [])


def wins(of):
    won = sum(cell.auto < cell.ms[cell.undivided] for cell in of.values() if not is_undivided(cell.of["auto"]["plan"]))
    return row("`auto` is faster than the fastest plan without splits: networks and links", won, f">= {WINS}", won >= WINS)


def rows(found):
    of = cells(found)
    return [each for (name, link), cell in of.items() for each in rows_of(f"{TITLES[name]}, {link}", cell)] + ([wins(of)] if of else [])


def entries(found):
    of = cells(found)
    for number, ((name, link), cell) in enumerate(of.items()):
        title, auto = f"{TITLES[name]}, {link}", cell.of["auto"]
        each = next(one for one in found if one["name"] == name)
        said = [title, f"{auto['title']}: {auto['predicted_ms']:.0f}", f"{cell.auto:.0f}", f"{cell.name(cell.best)}: {cell.ms[cell.best]:.0f}", f"{cell.share():.2f}",
                f"{cell.name(cell.undivided)}: {cell.ms[cell.undivided]:.0f}", f"{cell.faster():.2f}",
                *([f"{cell.peer}: {cell.of['peers'][cell.peer]:.0f}", f"{cell.over_peer():.2f}"] if cell.peer else ["", ""])]
        yield {"key": title, "cells": said, "rows": rows_of(title, cell) + ([wins(of)] if number == 0 else []), "machine": each["machine"], "date": each["date"],
               "versions": each["versions"] + (f", PyTorch {each['torch']}" if "torch" in each else "")}


def error(found):
    """Largest and mean error of the predictions of all that ran, in percent."""
    errors = [100 * abs(cell.predicted(title) / ms - 1) for cell in cells(found).values() for title, ms in cell.ms.items()
              if cell.predicted(title)]
    return max(errors), sum(errors) / len(errors), len(errors)


def text(found):
    worst, mean, count = error(found)
    return ("Two hosts with a core each, two processes on each, which share its core, and links of 250 Mbit/s, 1 and 10 Gbit/s between the hosts (network namespaces); "
            f"an update is of {MICROBATCHES} microbatches under `1f1b-flush`, Adam: `utils/bench-auto`. `auto` is what `--split=auto` chooses with measured links and profiles. By hand "
            "are every uniform split, cut into 1, 2 or 4 stages and number of replicas that fit: all are predicted; run are `auto`, the three others that are predicted to be fastest, "
            "and the fastest without splits. `tp:2 × 2, none` has two replicas of a team of two in its first stage, and a single process in its second.\n\nTimes of an update are medians of a "
            f"run, the least of two runs. Over all {count} runs, predictions are off by {mean:.0f} % in the mean, {worst:.0f} % at most.\n\nPyTorch's are DDP, FSDP2 (`fsdp`), tensor parallelism "
            "(`tp`), 1F1B (`pp`) and their combinations, eager, over gloo, as its documentation shows them; it has no recipe for tensor parallelism of convolutions and of experts.")


def where(found):
    """The page of docs/Splitting.md."""
    of = cells(found)
    lines = []
    for name, title in TITLES.items():
        said = [f"{of[name, link].of['auto']['title']} ({of[name, link].faster():.2f})" if (name, link) in of else "" for link in LINKS]
        lines.append([title, "2 × 2, measured", *said])
        beyond = next((each.get("beyond", {}) for each in found if each["name"] == name), {})
        for workers, by_link in sorted(beyond.items(), key=lambda item: int(item[0])):
            lines.append([title, f"{int(workers) // 2} × 2, predicted", *(f"{by_link[link]['title']} ({by_link[link]['faster']:.2f})" if link in by_link else "" for link in LINKS)])
    text = ("Which split wins where, as `--split=auto` chooses: its splits and replicas, stage by stage, and in brackets the time of the fastest plan without splits over its own. `2 × 2`: "
            "two hosts of two processes, which share a core of their host, measured ([Results.md](Results.md)). Beyond, it is predicted from the same profiles and links, for hosts whose "
            "devices have cores of their own, with a microbatch for each device.")
    return f"{measured.wrapped(text)}\n\n{measured.table(['network', 'hosts × devices', *LINKS], lines)}\n"


def write(found):
    found = [each for each in found if each["links"]]
    measured.keep("bench-auto", SCRIPT, "What `--split=auto` chooses", text(found), HEADER, list(entries(found)), [f"{TITLES[name]}, {link}" for name in TITLES for link in LINKS])
    file = measured.root / PAGE
    file.write_text(measured.with_part(file.read_text(), PART, SCRIPT, where(found)))
