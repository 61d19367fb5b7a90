"""links.py SOURCE [--allow-missing=NAME]: links of README.md, CONTRIBUTING.md and docs/ lead to files and headings that are there.

An anchor is made from a heading as GitHub does: small letters, no punctuation, hyphens for spaces.
"""
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1]).resolve()
allowed = {argument.split("=", 1)[1] for argument in sys.argv[2:]}
pages = [root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").rglob("*.md"))]


def anchors(page):
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


links, broken = 0, []
for page in pages:
    for target in re.findall(r"\]\(([^)\s]+)\)|(?:src|srcset)=\"([^\"]+)\"", page.read_text()):
        target = target[0] or target[1]
        if re.match(r"https?:", target):
            continue
        links += 1
        file, _, anchor = target.partition("#")
        path = (page.parent / file).resolve() if file else page
        if not path.exists() and path.name not in allowed:
            broken.append(f"{page.relative_to(root)}: {target}: there is no such file")
        elif anchor and path.exists() and anchor not in anchors(path):
            broken.append(f"{page.relative_to(root)}: {target}: there is no such heading")
print("\n".join(broken) if broken else f"{links} links lead somewhere")
sys.exit(bool(broken))
