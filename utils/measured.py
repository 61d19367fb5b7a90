"""Numbers that scripts of this folder measure, kept in docs/measured/PART.json, and the parts of documents that are written from them.

An entry is one line of a part's table: {"key", "machine", "versions", "date", "cells", "rows"}. Rows are what --json of
the scripts writes: {"name", "value", "unit", "goal", "holds"}. Entries are measured on different days and machines; the
page has one table for each machine and its versions. It begins with one matrix of all machines. A part may have a figure,
{"file", "title", "axis", "keys"}, of "curves", lists of points, of its entries.

    utils/measured.py          writes docs/Results.md and its figures again from what is kept
    utils/measured.py --check  ends with 1 where these are not what is kept
"""
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import textwrap
import time

root = pathlib.Path(__file__).resolve().parent.parent
sys.path.append(str(root / "utils/experiments"))
import plots  # noqa: E402

# A newer PyTorch than Debian's: another peer where it is installed (utils/venv torch).
NEWER_TORCH = pathlib.Path(os.environ.get("PDC_TORCH", root / "build/torch-venv/bin/python"))
PAGE, KEPT = pathlib.Path("docs/Results.md"), pathlib.Path("docs/measured")
WITHOUT_AVX512 = ", without AVX-512"


def machine():
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    has_avx512 = any(line.startswith("flags") and "avx512f" in line.split() for line in lines)
    # Virtual machines call all of them 'AMD EPYC'; from family 26 on they multiply twice as much per cycle as those before.
    family = next((line.split(":")[1].strip() for line in lines if line.startswith("cpu family")), "0")
    name = f"{names[0] if names else platform.machine()}{f', family {family}' if int(family) > 25 else ''}"
    return f"{name}, {os.cpu_count()} cores{'' if has_avx512 else WITHOUT_AVX512}"


def versions(*packages):
    """Of the compiler and of Debian's packages, and of PyTorch where that is not Debian's."""
    compiler = subprocess.run(["g++", "-dumpfullversion"], text=True, stdout=subprocess.PIPE, check=True).stdout.strip()
    if not packages:  # dpkg-query would list all
        return f"g++ {compiler}"
    queried = subprocess.run(["dpkg-query", "-W", "-f", "${Package} ${Version}, ", *packages], text=True, stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL, check=False).stdout
    return f"g++ {compiler}, {queried}".rstrip(", ")


def newer_torch():
    """The version of the newer PyTorch; None where there is none."""
    if not NEWER_TORCH.exists():
        return None
    return subprocess.run([NEWER_TORCH, "-c", "import torch; print(torch.__version__)"], text=True, stdout=subprocess.PIPE, check=True).stdout.strip()


def with_part(page, part, script, text):
    """The page with the part that `script` writes: where it was, or at the end."""
    begin, end = f"<!-- {part}: written by {script} -->\n", f"<!-- end of {part} -->\n"
    if begin not in page:
        return f"{page.rstrip()}\n\n{begin}{text}{end}"
    before, rest = page.split(begin, 1)
    return f"{before}{begin}{text}{end}{rest.split(end, 1)[1]}"


def part_of(page, part, script):
    """What with_part has put there; empty if nothing."""
    return page.partition(f"<!-- {part}: written by {script} -->\n")[2].partition(f"<!-- end of {part} -->\n")[0]


def table(header, lines):
    """Lines that were measured before a column was added are empty there."""
    lines = [line + [""] * (len(header) - len(line)) for line in lines]
    return "\n".join(["| " + " | ".join(header) + " |", "|" + "---|" * len(header), *("| " + " | ".join(line) + " |" for line in lines)])


def wrapped(text):
    """Prose in lines of at most 120 columns, as utils/check-prose wants it; blank lines divide paragraphs."""
    # A piece of code is not broken: its spaces are hidden from the wrapping.
    hidden = re.sub(r"`[^`]*`", lambda code: code.group().replace(" ", "\0"), text)
    items = [textwrap.fill(" ".join(part.split()), 119, subsequent_indent="  " if part.startswith("- ") else "", break_long_words=False,
                           break_on_hyphens=False) for part in re.split(r"\n\s*\n|\n(?=- )", hidden)]
    return "".join(("" if number == 0 else "\n" if item.startswith("- ") and items[number - 1].startswith("- ") else "\n\n") + item
                   for number, item in enumerate(items)).replace("\0", " ")


def missed(entries):
    rows = [row for entry in entries for row in entry["rows"] if row["holds"] is False]
    return "".join(wrapped(f"- {row['name']}: {row['value']:.4g}{' ' if row['unit'] else ''}{row['unit']}, goal "
                           f"{row['goal'].replace('<=', '≤').replace('>=', '≥')}") + "\n" for row in rows)


def text_of(kept):
    """A part of the page: one table per machine, what misses its goal below."""
    text = f"## {kept['title']}\n\n{wrapped(kept['text'])}\n"
    if figure := kept.get("figure"):
        text += f"\n![{figure['title']}]({figure['file']})\n"
    where = lambda entry: f"{entry['machine']}; {entry['versions']}"
    for place in dict.fromkeys(map(where, kept["entries"])):
        entries = [entry for entry in kept["entries"] if where(entry) == place]
        dates = sorted({entry["date"] for entry in entries})
        where_and_when = wrapped(f"Machine: {place}; {' and '.join(dates)}.")
        text += f"\n{table(kept['header'], [entry['cells'] for entry in entries])}\n\n{where_and_when}\n"
        text += f"\nGoals that are missed there:\n\n{misses}" if (misses := missed(entries)) else "\nAll goals are reached there.\n"
    return text


# Networks of the matrix: title, key in the part `bench`, key in the GPU's numbers.
MATRIX = [("ResNet-18", "resnet18", None), ("ResNet-50", "resnet50", "resnet50"), ("VGG-16", "vgg16", "vgg16"), ("AlexNet", "alexnet", None),
          ("transformer, 6 layers, d 256", "transformer", None), ("GPT-2 small", "gpt2", "gpt2"), ("BERT-base", None, "bert-base"),
          ("LSTM language model", "lstm", None), ("GNMT-8", None, "gnmt8")]


def value_of(entry, ending):
    """The row of an entry whose name ends so, with two digits; empty if there is none."""
    return next((f"{row['value']:.2f}" for row in entry["rows"] if row["name"].endswith(ending)), "") if entry else ""


def matrix(base):
    """Time and memory of a training step over the peer's: one line per network, one column per processor and peer."""
    kept = json.loads((base / KEPT / "bench.json").read_text())["entries"]
    entries = {(entry["key"], entry["machine"]): entry for entry in kept}
    places = sorted({entry["machine"] for entry in kept}, key=lambda place: max(entry["date"] for entry in kept if entry["machine"] == place), reverse=True)
    header, columns = ["network"], []
    for place in places:
        versions = [entry["versions"] for entry in kept if entry["machine"] == place]
        peers = [("PyTorch " + re.search(r"(?<!newer )PyTorch (\d+\.\d+)", versions[-1])[1], ": step, over PyTorch")]
        if newer := [found[1] for text in versions if (found := re.search(r"newer PyTorch (\d+\.\d+)", text))]:
            peers.append((f"PyTorch {newer[-1]}", ": step, over newer PyTorch"))
        # The peak is that of the first peer; the newest processor stands for all.
        peers += [(f"{peers[0][0]}, memory", ": peak memory over PyTorch")] if place == places[0] else []
        for peer, ending in peers:
            header.append(f"{place}; {peer}")
            columns.append(lambda cpu, gpu, place=place, ending=ending: " · ".join(
                filter(None, (value_of(entries.get((f"{cpu}, {threads}", place)), ending) for threads in (1, 2)))))
    if (file := base / KEPT / "gpu/numbers.json").exists():
        numbers = json.loads(file.read_text())
        header.append(f"{numbers['gpu'].split(',')[0]}; PyTorch {numbers['torch'].split('+')[0]}, eager or `torch.compile`")
        columns.append(lambda cpu, gpu: f"{numbers['networks'][gpu]['pdc_ms'] / min(way['ms'] for way in numbers['networks'][gpu]['pytorch'].values()):.2f}"
                       if gpu in numbers["networks"] else "")
    lines = [[title, *(column(cpu, gpu) for column in columns)] for title, cpu, gpu in MATRIX]
    text = wrapped("A training step of pdc on one device, divided by the step of PyTorch (the faster one of eager and compiled on the GPU). Below 1, pdc is "
                   "faster; in the column for memory, it needs less. Two numbers are for 1 · 2 threads. Sections below have the milliseconds, the spread, the exact "
                   "versions and the goals that are missed.")
    return f"{text}\n\n{table(header, lines)}\n"


def figure_of(kept):
    """The curves of the newest machine, those of an entry in one colour; of entries with the figure's "keys", if it has any."""
    newest = max(kept["entries"], key=lambda entry: entry["date"])["machine"]
    keys = kept["figure"].get("keys")
    entries = [entry for entry in kept["entries"] if entry["machine"] == newest and (not keys or entry["key"] in keys)]
    lines = [(entry["key"], points) for entry in entries for points in entry["curves"]]
    return plots.curves(kept["figure"]["title"], [(kept["figure"]["axis"], lines)], [entry["key"] for entry in entries])


def page_of(base):
    """What is kept below `base` in its page."""
    page = (base / PAGE).read_text()
    if part_of(page, "matrix", "utils/measured.py"):
        page = with_part(page, "matrix", "utils/measured.py", matrix(base))
    for file in sorted((base / KEPT).glob("*.json")):
        kept = json.loads(file.read_text())
        page = with_part(page, file.stem, kept["script"], text_of(kept))
    return page


def written(base):
    """{file: its text} of the page and its figures."""
    kept = [json.loads(file.read_text()) for file in sorted((base / KEPT).glob("*.json"))]
    return {PAGE: page_of(base), **{PAGE.parent / each["figure"]["file"]: figure_of(each) for each in kept if "figure" in each}}


def write(base):
    for file, text in written(base).items():
        (base / file).write_text(text)


def keep(part, script, title, text, header, entries, order=(), base=root, figure=None):
    """Keeps entries, which take the place of older ones with their keys, and writes the page. `order` lists keys; others come last.
    Processors have entries of their own: other kernels compute there, or the same ones otherwise."""
    file = base / KEPT / f"{part}.json"
    old = json.loads(file.read_text())["entries"] if file.exists() else []
    kind = lambda entry: (entry["key"], entry["machine"])
    merged = {kind(entry): entry for entry in old} | {kind(entry): {"date": time.strftime("%Y-%m-%d"), **entry} for entry in entries}
    place = {key: number for number, key in enumerate(order)}
    ordered = sorted(merged.values(), key=lambda entry: place.get(entry["key"], len(place)))
    file.parent.mkdir(exist_ok=True)
    kept = {"script": script, "title": title, "text": text, "header": header, **({"figure": figure} if figure else {}), "entries": ordered}
    file.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    write(base)


if __name__ == "__main__":
    base = pathlib.Path(sys.argv[sys.argv.index("--base") + 1]) if "--base" in sys.argv else root
    if "--check" in sys.argv:
        for file, text in written(base).items():
            if not (base / file).exists() or text != (base / file).read_text():
                sys.exit(f"utils/measured.py: {file} is not what {KEPT} says; run utils/measured.py")
    else:
        write(base)
