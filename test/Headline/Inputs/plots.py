"""plots.py SOURCE: utils/experiments/plots.py, parsed again."""
import pathlib
import sys
import xml.etree.ElementTree as tree

sys.path.insert(0, str(pathlib.Path(sys.argv[1], "utils/experiments")))
import plots  # noqa: E402

SVG = "{http://www.w3.org/2000/svg}"


def of(picture, element, kind=""):
    return [each for each in picture.iter(SVG + element) if kind in each.get("class", "").split() or not kind]


picture = tree.fromstring(plots.bars("a < b", [("one & two", [1.0, 0.5]), ("three", [None, 0.25]), ("four", [0.125, 0.2])], ["x", "y"]))
marks = [each for each in of(picture, "rect", "fill") if each.get("height") == "12" or each.get("x") == "250"]
colours = {each.get("class") for each in marks}
widths = [float(each.get("width")) for each in of(picture, "rect", "b") if each.get("x") == "250"]
print(f"bars: {len([each for each in marks if each.get('x') == '250'])} bars of {len(colours)} colours in '{picture.find(SVG + 'title').text}', "
      f"the longest {max(widths):.0f} wide")
print("ends of the axis:", *(f"{plots.round_up(value):g}" for value in (0.7, 1.5, 2.01, 7, 11, 0.3)))
curves = plots.curves("t", [("seconds", [("x", [(0, 0.0), (2, 0.5)]), ("y", [(1, 1.0), (4, 0.75)])]), ("epochs", [("x", [(0, 0.0), (1, 1.0)])])], ["x", "y"], 0.9)
picture = tree.fromstring(curves)
lines, frames = of(picture, "polyline"), of(picture, "rect", "frame")
print(f"curves: {len(lines)} lines of {len({line.get('class') for line in lines})} colours, in {len(frames)} frames, a target in each"
      if len(of(picture, "line", "frame")) == len(frames) else "no target")
inside = True
for line, frame in zip(lines, (frames[0], frames[0], frames[1])):
    left, top, width, height = (float(frame.get(side)) for side in ("x", "y", "width", "height"))
    for x, y in (map(float, corner.split(",")) for corner in line.get("points").split()):
        inside &= left - 0.1 <= x <= left + width + 0.1 and top - 0.1 <= y <= top + height + 0.1
print("inside their frames:", inside)
cells = [[(0, "4: 1.0"), (1, "1-1: 2.0"), (2, "3-1: 1.5")]] * 2
picture = tree.fromstring(plots.winners("t", ["2 workers", "4 workers"], ["1", "2", "3"], cells, ["p", "q", "r"]))
print(f"winners: {len([each for each in of(picture, 'rect', 'fill') if each.get('fill-opacity')])} cells, labels "
      + ", ".join(each.text for each in of(picture, "text") if "workers" in each.text))
