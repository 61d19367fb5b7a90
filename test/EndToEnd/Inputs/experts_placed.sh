#!/usr/bin/env bash
# experts_placed.sh: a team of two trains a network of experts, which lie where the loads of a run say, near one process. Checkpoints and
# exports go to one process and back, to the same team in the file's order and in another one, and to other splits, bit for bit.
set -euo pipefail
rm -rf "$WORK"
"$PYTHON" "$SOURCE/utils/models/hand_made.py" experts "$WORK"
. "$SOURCE/test/EndToEnd/Inputs/common.sh"
model=$WORK/model.onnx loss=
update=(--schedule=1f1b-flush --microbatches=2 --clip-norm=0.5)
generate whole --devices=1 "${update[@]}"
tensors() { python3 "$SOURCE/test/EndToEnd/Inputs/same_tensors.py" "$WORK/$1" "$WORK/$2"; }

# What an evaluation writes is taken; a folder has it in metrics.jsonl.
"$BUILD/bin/pdc-run" "$WORK/whole" --data "$WORK/data" --steps 2 --seed 5 --eval "$WORK/data" --eval-every 2 --metrics "$WORK/metrics.jsonl" >"$WORK/log" 2>&1 ||
  { cat "$WORK/log" >&2; fail "the run with evaluations"; }
"$BUILD/bin/pdc" "$model" --batch=4 --profile=analytic --devices=2 --split=ep:2 --expert-loads="$WORK" --explain | grep -A1 'placed  '

# Other loads of the same layers, by which both change their order.
python3 - "$WORK" <<'PYTHON'
import json, pathlib, sys
work = pathlib.Path(sys.argv[1])
layers = list([row for row in map(json.loads, open(work / "metrics.jsonl")) if "loads" in row][-1]["loads"])
for name, shares in (("skewed", [0.4, 0.35, 0.15, 0.1]), ("other", [0.05, 0.3, 0.25, 0.4])):
    loads = {layer: {"dropped": 0, "shares": shares, "fullest": 4 * max(shares)} for layer in layers}
    (work / f"{name}.jsonl").write_text(json.dumps({"step": 2, "test_loss": 1, "loads": loads}) + "\n")
PYTHON
generate team --devices=2 --split=ep:2 --expert-loads="$WORK/skewed.jsonl" "${update[@]}"
grep 'constexpr std::int32_t order' "$WORK"/team/stage*.cpp
. "$SOURCE/test/EndToEnd/Inputs/team_resume.sh"
while read -r devices flags; do
  generate other --devices="$devices" $flags "${update[@]}"
  run other 10 weights-read-by-other --checkpoint-dir "$WORK/of-team" --resume # which goes no step on
  tensors weights-team-10 weights-read-by-other || fail "$flags has read other weights than placed experts have written"
  echo "read by ${flags/$WORK\//}"
  rm -r "$WORK/other" "$WORK/weights-read-by-other"
done <<EOF
2 --split=ep:2
2 --split=ep:2 --expert-loads=$WORK/other.jsonl
4 --split=ep:4 --expert-loads=$WORK/other.jsonl
2 --split=tp:2,all
EOF

# Weights that lie otherwise than tokens are sent are noticed.
sed -i 's/^\(constexpr std::int32_t order0\[\] = {\).*/\12, 1, 0, 3};/' "$WORK"/team/stage*.cpp
run team 6 weights-wrong
python3 "$SOURCE/test/EndToEnd/Inputs/close_runs.py" "$WORK/weights-whole" "$WORK/weights-wrong" 1e-4 >/dev/null 2>&1 && fail "the comparison notices nothing"
echo "a wrong order is noticed"
