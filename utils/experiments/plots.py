"""Plots as SVG, which follow the reader's light or dark theme: bars, curves, and a map of who wins where."""
import html
import math

STYLE = ("svg{background:#fff}text{font:12px sans-serif;fill:#222}.title{font-weight:bold}.frame{fill:none;stroke:#777}.grid{stroke:#ddd}"
         ".line{fill:none;stroke-width:2}.thin{stroke-width:1;stroke-opacity:.45}.a{--c:#0072b2}.b{--c:#d55e00}.c{--c:#009e73}.d{--c:#aa3377}"
         ".e{--c:#777}.line{stroke:var(--c)}.fill{fill:var(--c)}@media(prefers-color-scheme:dark){svg{background:#16181c}text{fill:#ddd}"
         ".frame{stroke:#888}.grid{stroke:#3a3d44}.a{--c:#56b4e9}.b{--c:#ff9f40}.c{--c:#3fd0a0}.d{--c:#e58fc0}.e{--c:#aaa}}")
COLOURS = "abcde"


def text(x, y, words, anchor="middle", extra=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{extra}>{html.escape(str(words))}</text>'


def page(width, height, title, parts):
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}" role="img">'
            f"<title>{html.escape(title)}</title><style>{STYLE}</style>\n" + "\n".join(parts) + "\n</svg>\n")


def legend(x, y, names):
    parts = []
    for colour, name in zip(COLOURS, names):
        parts += [f'<rect x="{x:.1f}" y="{y - 9:.1f}" width="12" height="10" class="fill {colour}"/>', text(x + 17, y, name, "start")]
        x += 34 + 7 * len(name)
    return parts


def round_up(value):
    """The smallest of 1, 2, 5 times a power of ten that is at least `value`."""
    power = 10 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value * (1 - 1e-9))


def bars(title, groups, series):
    """`groups`: (label, values), a value per series (None: no bar). Horizontal, because labels are long."""
    left, width, high, gap, top = 250, 520, 14, 14, 52
    most = round_up(max(value for _, values in groups for value in values if value is not None))
    parts, y = [text(left + width / 2, 20, title, extra=' class="title"'), *legend(left, 40, series)], top
    bottom = top + sum(high * len(series) + gap for _ in groups)
    for tick in range(6):
        x = left + width * tick / 5
        parts += [f'<line x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{bottom}" class="grid"/>', text(x, bottom + 16, f"{most * tick / 5:g}")]
    for label, values in groups:
        parts.append(text(left - 8, y + high * len(series) / 2 + 4, label, "end"))
        for colour, value in zip(COLOURS, values):
            if value is not None:
                parts += [f'<rect x="{left}" y="{y}" width="{width * value / most:.1f}" height="{high - 2}" class="fill {colour}"/>',
                          text(left + width * value / most + 4, y + high - 4, f"{value:.2f}", "start")]
            y += high
        y += gap
    return page(left + width + 60, bottom + 30, title, parts)


def curves(title, panels, names, target=None):
    """`panels`: (label of the axis, [(name, [(x, y), …]), …]), beside each other; several curves may have one name. `target`: a level."""
    left, width, height, top, gap = 56, 360, 240, 52, 70
    parts = [text(left + (len(panels) * (width + gap) - gap) / 2, 20, title, extra=' class="title"'), *legend(left, 40, names)]
    values = [y for _, lines in panels for _, points in lines for _, y in points]
    low, high = min(values), max(values)
    high = high if high > low else low + 1
    for panel, (label, lines) in enumerate(panels):
        x0, far = left + panel * (width + gap), round_up(max(x for _, points in lines for x, _ in points))

        def place(x, y):
            return x0 + width * x / far, top + height * (1 - (y - low) / (high - low))

        parts.append(f'<rect x="{x0}" y="{top}" width="{width}" height="{height}" class="frame"/>')
        for tick in range(6):
            parts.append(text(x0 + width * tick / 5, top + height + 16, f"{far * tick / 5:g}"))
            parts.append(text(x0 - 5, place(0, low + (high - low) * tick / 5)[1] + 4, f"{low + (high - low) * tick / 5:.2f}", "end"))
        parts.append(text(x0 + width / 2, top + height + 34, label))
        if target is not None:
            y = place(0, target)[1]
            parts.append(f'<line x1="{x0}" y1="{y:.1f}" x2="{x0 + width}" y2="{y:.1f}" class="frame" stroke-dasharray="4 3"/>')
        for name, points in lines:
            path = " ".join("{:.1f},{:.1f}".format(*place(*point)) for point in points)
            parts.append(f'<polyline points="{path}" class="line {COLOURS[names.index(name)]}"/>')
    return page(left + len(panels) * (width + gap), top + height + 48, title, parts)


def winners(title, rows, columns, cells, names):
    """A map: for each row and column (label, index of who wins or None, words)."""
    left, top, width, height = 110, 62, 92, 34
    parts = [text(left + width * len(columns) / 2, 20, title, extra=' class="title"'), *legend(left, 40, names)]
    for column, label in enumerate(columns):
        parts.append(text(left + width * (column + 0.5), top - 6, label))
    for row, label in enumerate(rows):
        y = top + height * row
        parts.append(text(left - 8, y + height / 2 + 4, label, "end"))
        for column in range(len(columns)):
            who, words = cells[row][column]
            parts.append(f'<rect x="{left + width * column}" y="{y}" width="{width - 2}" height="{height - 2}" fill-opacity=".35" '
                         f'class="fill {COLOURS[who]}"/>')
            parts.append(text(left + width * (column + 0.5), y + height / 2 + 4, words))
    return page(left + width * len(columns) + 10, top + height * len(rows) + 10, title, parts)
