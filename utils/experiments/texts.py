"""Real text as a data set: the licences that Debian's package base-files brings.

    texts.py DIR [--words=2000] [--time=24]      writes DIR/{train,test}/{input_ids,label}.npy

Words and signs are numbered by how often they occur; 0 is any other. Of each sample of `time` words the labels are the words that follow.
Every tenth sample is for testing.
"""
import argparse
import ast
import collections
import pathlib
import re
import struct
import sys
import sysconfig

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "examples/digits"))
from fetch_data import write_npy  # noqa: E402

LICENCES = pathlib.Path("/usr/share/common-licenses")


def words_of(text):
    """Words in lower case, and signs by themselves."""
    return re.findall(r"[a-z]+(?:'[a-z]+)?|[0-9]+|[^\sa-z0-9]", text.lower())


def numbered(words, count):
    """Each word's rank, 1 to count-1, by how often it occurs, then by the alphabet; 0 for others."""
    frequency = collections.Counter(words)
    ranks = {word: rank + 1 for rank, word in enumerate(sorted(frequency, key=lambda word: (-frequency[word], word))[:count - 1])}
    return [ranks.get(word, 0) for word in words]


def samples(numbers, time):
    """(inputs, labels) of each whole sample."""
    return [(numbers[i:i + time], numbers[i + 1:i + time + 1]) for i in range(0, len(numbers) - time, time)]


def write_samples(folder, numbers, time):
    """Training and test sets of a text's numbers; returns how many samples each has."""
    pairs = samples(numbers, time)
    sets = {"train": [pair for i, pair in enumerate(pairs) if i % 10 != 9], "test": pairs[9::10]}
    for name, chosen in sets.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for file, parts in zip(("input_ids", "label"), zip(*chosen)):
            values = [number for part in parts for number in part]
            write_npy(folder / name / f"{file}.npy", "<i8", (len(parts), time), struct.pack(f"<{len(values)}q", *values))
    return len(sets["train"]), len(sets["test"])


def text_of(licences=LICENCES):
    return "\n".join(path.read_text(encoding="utf-8", errors="replace") for path in sorted(licences.iterdir()) if not path.is_symlink())


def docstrings():
    """Of Python's standard library, in the order of its files."""
    library = pathlib.Path(sysconfig.get_paths()["stdlib"])
    found = []
    for path in sorted(library.glob("*.py")) + sorted(library.glob("[a-z]*/*.py")):
        if "packages" in path.parts[-2]:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8", errors="replace"))
        nodes = [node for node in ast.walk(tree) if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))]
        found += [text for node in nodes if (text := ast.get_docstring(node))]
    return "\n".join(found)


def write(folder, count, time, licences=LICENCES):
    return write_samples(folder, numbered(words_of(text_of(licences)), count), time)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dir", type=pathlib.Path)
    parser.add_argument("--words", type=int, default=2000)
    parser.add_argument("--time", type=int, default=24)
    arguments = parser.parse_args()
    print("%d samples for training, %d for testing" % write(arguments.dir, arguments.words, arguments.time))
