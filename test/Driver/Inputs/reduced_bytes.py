"""reduced_bytes.py DIR: whether plan.json's reduced_bytes of stage 0 are those of the trained parameters in stage0.cpp, and how often each is used."""
import json
import math
import pathlib
import re
import sys

folder = pathlib.Path(sys.argv[1])
stage = json.loads((folder / "plan.json").read_text())["stages"][0]
text = (folder / "stage0.cpp").read_text()
rows = re.search(r"ParameterRow parameters\[\] = \{\n(.*?)\n\};", text, re.DOTALL)[1].splitlines()
uses = len(re.search(r"GradientRow gradients\[\] = \{\n(.*?)\n\};", text, re.DOTALL)[1].splitlines())
shapes = [re.search(r"Element::f32, \{([\d, ]*)\}.*, true[,}]", row) for row in rows]
trained = sum(4 * math.prod(map(int, shape[1].split(","))) for shape in shapes if shape)
if stage["reduced_bytes"] == trained:
    print("reduced: what the trained rows of the stage have")
else:
    print(f"reduced: {stage['reduced_bytes']} bytes, the trained rows have {trained}")
print(f"{len(rows)} parameters with {uses} uses")
for other in ("parameter_bytes", "gradient_bytes"):
    print(f"{other}: {'more' if stage[other] > trained else 'as many'}")
