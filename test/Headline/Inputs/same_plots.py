"""same_plots.py DOCS AGAIN: ends with 1 where the plots of docs/Headline.md are not those that were written again."""
import pathlib
import sys

old, new = ({file.name: file.read_bytes() for file in pathlib.Path(folder).glob("headline-*.svg")} for folder in sys.argv[1:])
sys.exit(", ".join(sorted(set(old) ^ set(new)) + [name for name in old if name in new and old[name] != new[name]]) or 0)
