"""texts.py SOURCE WORK: utils/experiments/texts.py by example."""
import pathlib
import struct
import sys

sys.path.insert(0, str(pathlib.Path(sys.argv[1], "utils/experiments")))
import texts  # noqa: E402

work = pathlib.Path(sys.argv[2])
print("words:", *texts.words_of("The  cat 's\nthe dog, 2."))
print("numbered:", *texts.numbered("a b c a d e".split(), 4))
print("samples:", texts.samples([1, 2, 3, 4, 5, 6], 2))
(work / "licences/one").write_text(" ".join(f"word{letter}" for letter in "abcdefghijklmnopqrstuvwxy"))
(work / "licences/again").symlink_to(work / "licences/one")  # a licence under another name counts once
print("%d samples for training, %d for testing" % texts.write(work, 50, 2, work / "licences"))
found = texts.docstrings()
print("docstrings:", "Text wrapping and filling." in found, "def wrap" not in found and found == texts.docstrings())


def numbers(file):
    data = (work / "train" / file).read_bytes()
    length = struct.unpack("<H", data[8:10])[0]
    return struct.unpack(f"<{(len(data) - 10 - length) // 8}q", data[10 + length:])


inputs, labels = numbers("input_ids.npy"), numbers("label.npy")
print("label 0 follows input 0:", inputs[1] == labels[0] and len(inputs) == len(labels) == 22)
