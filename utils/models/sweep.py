#!/usr/bin/env python3
"""Exports many architectures with PyTorch's exporters, and compares what pdc trains with PyTorch and ONNX Runtime.

    build/exporters-venv/bin/python utils/models/sweep.py [--only=NAME]… [--exporter=default|unoptimised|older]… [--jobs=2]
        [--work=build/sweep] [--build=build/release] [--programs=all|some|none] [--flag=FLAG]… [--again] [--docs=docs/Models.md] [--list]

`utils/venv exporters` makes the environment. Each case, an architecture with a setting of the exporter, runs in a process of its
own for at most --timeout seconds; --work keeps what was exported and, in results.json, what was found with these binaries, so that
a run goes on where another ended (--again: from the beginning). A case is

    equal    the module's own parameters are trained, under their names; loss, gradients and a step of AdamW are PyTorch's
    told     something trains in another way, a warning names it, and the gradients are right all the same
    refused  with a reason

and `silent` is everything else: a number that differs, a difference without a warning, an end without a message. Ends with 1 where
there is one.
"""
import argparse
import json
import logging
import multiprocessing
import os
import pathlib
import signal
import sys
import traceback
import warnings
import zlib
from concurrent import futures

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "utils")]
EXPORTERS = {"default": "default", "unoptimised": "`optimize=False`", "older": "`dynamo=False`"}
# Of every architecture one export trains in a program; these are left to the interpreter, because their programs take long.
SCRIPT = "utils/models/sweep.py"


def child(connection, name, exporter, options):
    """In a process of its own."""
    try:
        import torch
        from sweep_case import checked
        torch.set_num_threads(1)
        with_program = options.programs == "all" or (options.programs == "some" and chosen(name) == exporter)
        binaries = None if options.export_only else options.build / "bin"
        row = checked(name, exporter, options.work / name / exporter, binaries, with_program, options.flag)
    except BaseException:  # a fault of the script, or pdc's end without a message
        row = {"verdict": "silent", "faults": [traceback.format_exc().strip().splitlines()[-1][:600]], "trace": traceback.format_exc()}
    connection.send(row)
    connection.close()


def chosen(name):
    """The export that trains in a program too."""
    return list(EXPORTERS)[zlib.crc32(name.encode()) % 3]


def attempt(case, options):
    name, exporter = case
    context = multiprocessing.get_context("fork")  # the parent has imported what takes seconds to import
    mine, theirs = context.Pipe(duplex=False)
    process = context.Process(target=child_in_group, args=(theirs, name, exporter, options))
    process.start()
    theirs.close()
    if mine.poll(options.timeout):
        try:
            row = mine.recv()
        except EOFError:
            row = {"verdict": "silent", "faults": ["the process ended without a result"]}
    else:
        row = {"verdict": "silent", "faults": [f"took more than {options.timeout} s"]}
        os.killpg(process.pid, signal.SIGKILL)
    process.join()
    return {"name": name, "exporter": exporter, **row}


def child_in_group(*arguments):
    os.setpgid(0, 0)
    quiet = os.open(os.devnull, os.O_WRONLY)  # the exporters print graphs
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    child(*arguments)


def version_of(options):
    """Of what a result depends on besides the export."""
    files = [options.build / "bin" / name for name in ("pdc", "pdc-eval", "pdc-run")]
    files += [pathlib.Path(__file__).parent / name for name in ("sweep_case.py", "mapping.py", "oracle.py", "outcome.py")]
    return sum(zlib.crc32(file.read_bytes()) for file in files if file.exists()) + zlib.crc32(repr(options.flag).encode())


def said(row):
    faults = row.get("faults", [])
    faults = "; ".join(faults[:4]) + (f" … {len(faults) - 4} more" if len(faults) > 4 else "")
    told = ", ".join(f"{count} {kind}" for kind, count in row.get("differences", {}).items())
    refused = "; ".join(" / ".join([message, *helps]) for message, helps in row.get("errors", [])[:1])
    return f"{row['name']:<28} {row['exporter']:<12} {row['verdict']:<12} {faults or told or refused or row.get('reason', '')}"


def sweep(cases, options):
    kept_in = options.work / "results.json"
    kept = json.loads(kept_in.read_text()) if kept_in.exists() and not options.again else {}
    version = version_of(options)
    rows = {tuple(key.split("/")): row for key, row in kept.items() if row["version"] == version}
    left = [case for case in cases if case not in rows]
    with futures.ThreadPoolExecutor(options.jobs) as pool:
        for done in futures.as_completed([pool.submit(attempt, case, options) for case in left]):
            row = {**done.result(), "version": version}
            rows[row["name"], row["exporter"]] = row
            print(said(row), flush=True)
            kept[f"{row['name']}/{row['exporter']}"] = row
            kept_in.with_suffix(".new").write_text(json.dumps(kept, indent=1))
            kept_in.with_suffix(".new").rename(kept_in)
    return [rows[case] for case in cases]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", metavar="NAME")
    parser.add_argument("--exporter", action="append", choices=list(EXPORTERS))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--timeout", type=int, default=600, metavar="SECONDS")
    parser.add_argument("--programs", choices=["all", "some", "none"], default="some", help="which cases also train in a program")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build" / "sweep")
    parser.add_argument("--again", action="store_true", help="keep nothing of earlier runs but the exported models")
    parser.add_argument("--flag", action="append", default=[], help="that pdc is given too, to see that the comparison notices it")
    parser.add_argument("--export-only", action="store_true", help="which needs no pdc")
    parser.add_argument("--docs", type=pathlib.Path, help="the page that receives the table")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    warnings.filterwarnings("ignore")
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    from sweep_networks import NETWORKS
    if options.list:
        print("\n".join(f"{name:<28} {title}" for name, (title, _) in NETWORKS.items()))
        return
    if unknown := set(options.only or []) - set(NETWORKS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; --list lists the architectures")
    import sweep_case  # noqa: F401, what children need
    import torchvision  # noqa: F401
    import transformers  # noqa: F401
    options.build, options.work = options.build.resolve(), options.work.resolve()
    options.work.mkdir(parents=True, exist_ok=True)
    cases = [(name, exporter) for name in options.only or NETWORKS for exporter in options.exporter or EXPORTERS]
    if options.export_only:
        with futures.ThreadPoolExecutor(options.jobs) as pool:
            for row in pool.map(lambda case: attempt(case, options), cases):
                print(said(row), flush=True)
        return
    rows = sweep(cases, options)
    counts = {verdict: sum(row["verdict"] == verdict for row in rows) for verdict in ("equal", "told", "refused", "not exported", "silent")}
    print(f"{len(rows)} cases: " + ", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    if options.docs:
        from measured import with_part
        from sweep_page import document
        options.docs.write_text(with_part(options.docs.read_text(), "sweep", SCRIPT, document(rows, EXPORTERS)))
    sys.exit(counts["silent"] > 0)


if __name__ == "__main__":
    main()
