"""type_names.py ROOT: types that are defined twice under one name, in one namespace.

Two such types in one program are undefined behaviour, which compilers and linkers do not report: of functions that both have, such as
those of std::vector of them, the linker takes one. Looked at are the headers, and the sources outside anonymous namespaces, of the
compiler and of the runtime. One definition per library for CPU and CUDA is allowed: no program has both.
"""
import collections
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
DEFINITION = re.compile(r"(?:struct|class|enum class|enum) (\w+)(?: final)?(?: :[^;{]*)? \{")
found = collections.defaultdict(list)
files = 0
for folder in ("include", "lib", "runtime", "tools"):
    for path in sorted(root.glob(f"{folder}/**/*")):
        if path.suffix not in (".h", ".cpp", ".cu", ".cuh"):
            continue
        files += 1
        target = next((part for part in ("cpu", "cuda") if part in path.parts or path.suffix in (".cu", ".cuh") and part == "cuda"), "")
        namespaces = []
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if opened := re.match(r"namespace ?([\w:]*) \{", line):
                namespaces.append(opened[1] or "anonymous")
            elif line.startswith("} // namespace"):
                namespaces.pop()
            elif (definition := DEFINITION.match(line)) and "anonymous" not in namespaces:
                found["::".join([*namespaces, definition[1]])].append((path.relative_to(root), number, target))
double = False
for name, places in sorted(found.items()):
    targets = {target for _, _, target in places}
    if len(places) > 1 and not (len(places) == 2 and targets == {"cpu", "cuda"}):
        double = True
        print(f"{name} is defined in " + " and ".join(f"{path}:{number}" for path, number, _ in places))
print(f"{len(found)} types in {files} files")
sys.exit(double)
