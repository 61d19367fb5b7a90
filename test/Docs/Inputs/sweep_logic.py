"""What utils/models/sweep.py concludes from hand-made cases."""
import pathlib
import sys

import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "utils" / "models"))
from mapping import Mapping, told
from outcome import diagnostics, listed

random = numpy.random.default_rng(0)
weight, bias, other = random.standard_normal((3, 4)), random.standard_normal(4), random.standard_normal(4)
ones = numpy.ones(4)


def show(title, values, parameters, aliases=None, more=()):
    found = Mapping(sorted([*values, *more]), values, parameters, aliases or {name: name for name in parameters})
    print(f"{title}: renamed {found.renamed}, merged {found.merged}, apart {found.parted}, left out {found.missing}, other {found.extra}")
    return found


module = {"fc.weight": weight, "fc.bias": bias}
show("same", module, module)
transposed = show("transposed", {"val_1": weight.T.copy(), "fc.bias": bias}, module)
back = transposed.to_parameters({"val_1": 2 * weight.T, "fc.bias": bias}, module)
print("back in the module's layout:", numpy.array_equal(back["fc.weight"], 2 * weight))
packed = show("packed", {"both": numpy.concatenate([other, bias])}, {"a": bias, "b": other})
back = packed.to_parameters({"both": numpy.arange(8.0)}, {"a": bias, "b": other})
print("taken apart:", back["b"].tolist(), back["a"].tolist())
show("constant", {**module, "val_9": ones}, module)
show("frozen", {"fc.bias": bias}, module)
show("merged", {"a": ones}, {"a": ones, "b": ones.copy()})
show("stored twice", {"fc.weight": weight, "val_2": weight.T.copy()}, {"fc.weight": weight})
show("changed", {"fc.weight": weight * 2, "fc.bias": bias}, module)
show("tied", {"head": weight}, {"table": weight}, {"table": "table", "head": "table"})
show("parted again", {"a": ones}, {"a": ones, "c": ones.copy()}, more=["c"])
copies = show("parted again, transposed", {"val_1": weight.T.copy()}, {"0.w": weight, "1.w": weight.copy()}, more=["val_1.1.w"])
print("each has its own:", {name: parts[0][0] for name, parts in copies.parts.items()})

names = ["val_1", "val_22"]
print("told, all named:", told(names, [("'val_1' and 'val_22' are others", [])]))
print("told, counted:", told(names, [("2 parameters, 'val_1' among them", [])]))
print("told, by two messages:", told([*names, "c"], [("2 things, 'val_1' first", []), ("'c' is left out", [])]))
print("told, in a pattern:", told(["a.b"], [("buffers", ["--freeze='^(a[.]b)$' keeps them"])]))
print("not told, one of two:", told(names, [("1 parameter, 'val_1' among them", [])]))
print("not told, one of two messages short:", told([*names, "c"], [("1 thing, 'val_1' first", []), ("'c' is left out", [])]))
print("not told, another name:", told(["val_2"], [("1 parameter, 'val_22' among them", [])]))
print("not told, silence:", told(names, []))

text = "m.onnx:n: error: 'n' is none\nnote: since\nhelp: type --x\nm.onnx: warning: 1 thing, 'a' among them\n"
print("said:", diagnostics(text, "error"), diagnostics(text, "warning"))
print("\n".join(listed("T", "Text.", [("1 thing, 'a'\ntype 'x'", "one"), ("12 thing, 'b'\ntype 'y'", "two"), ("else", "one")])))
