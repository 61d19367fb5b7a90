"""plans_return.py MODEL SPLIT FLAG ...: a plan of the model with these flags is written into a copy and read back, with
its metadata and without the split there. Prints the stages where they are the same."""
import json
import pathlib
import subprocess
import sys

model, split, *flags = sys.argv[1:]
flags = ["--profile=analytic", *flags]
copy, unsaid = (str(pathlib.Path(model).with_suffix(f".{name}.onnx")) for name in ("copy", "unsaid"))


def plan(*words):
    done = subprocess.run(["pdc", *words, *flags, "--emit=plan"], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    stages = json.loads(done.stdout)["stages"]
    return [(stage["nodes"], stage.get("split", "none").removesuffix(",all")) for stage in stages], done.stderr


asked = [model, "--devices=8", f"--split={split}"]
wanted, _ = plan(*asked)
subprocess.run(["pdc", *asked, *flags, "--emit=annotated-onnx", "-o", copy], check=True, capture_output=True)
data = pathlib.Path(copy).read_bytes()
pathlib.Path(unsaid).write_bytes(data.replace(b"pdc.split", b"ppp.split"))
for name in (copy, unsaid):
    read, said = plan(name, "--plan=model")
    if read != wanted or "warning" in said:
        sys.exit(f"{name}: {wanted} became {read}\n{said}")
print(f"{split}: {len(wanted)} stages,", "blocks in factors" if b"\x08\x03\x18\x01" in data else "one factor")
