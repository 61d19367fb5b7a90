#!/usr/bin/env bash
# quickstart.sh SCRATCH: runs utils/quickstart as a user does, and looks at what it prints and leaves.
set -euo pipefail
work=$1
mkdir -p "$work"
cd "$SOURCE"
./utils/quickstart --no-install >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
python3 - "$work/log" <<'PYTHON'
import re, sys
text = open(sys.argv[1]).read()
rows = re.findall(r"^ +(\d) +\d +[\d.]+ +[\d.]+ +(\d+) +(\d+) ", text, re.M)
if len(rows) != 4 or any(predicted != allocated for _, predicted, allocated in rows):
    sys.exit(f"the table of the stages is not what it should be: {rows}\n{text}")
print("arena of 4 stages as predicted")
print(re.search(r"^test accuracy [\d.]+$", text, re.M).group(0))
PYTHON
python3 - build/quickstart/report.html <<'PYTHON'
import sys
page = open(sys.argv[1]).read()
for part in ["<h3>Stage 3", "Measured", 'id="loss"', 'id="comparison"', "test accuracy", "data parallelism", "/stem/stem.0/Conv"]:
    if part not in page:
        sys.exit("the report lacks " + part)
print("the report shows the run")
PYTHON
code=0
python=$(./utils/venv onnxruntime 2>"$work/venv.log") || code=$?
[ $code -ne 77 ] || { echo "skipped: ONNX Runtime cannot be installed"; exit 0; }
[ $code -eq 0 ] || { cat "$work/venv.log"; exit 1; }
"$python" - "$work/log" <<'PYTHON'
import re, sys
import numpy, onnxruntime
folder = "build/quickstart/data/test"
session = onnxruntime.InferenceSession("build/quickstart/trained.onnx", providers=["CPUExecutionProvider"])
logits, = session.run(["logits"], {"input": numpy.load(f"{folder}/input.npy").astype(numpy.float32)})
accuracy = float((logits.argmax(axis=1) == numpy.load(f"{folder}/label.npy")).mean())
said = float(re.search(r"test accuracy ([\d.]+)", open(sys.argv[1]).read()).group(1))
if abs(accuracy - said) > 0.00005:
    sys.exit(f"ONNX Runtime: {accuracy:.4f}, the run said {said:.4f}")
print(f"the same accuracy in ONNX Runtime: {accuracy:.4f}")
PYTHON
