#!/usr/bin/env bash
# experts_bytes.sh: what plans say that members of a team send that divides samples and experts, against the formula; and what they have sent,
# against the plan.
set -euo pipefail
rm -rf "$WORK"
"$PYTHON" "$SOURCE/utils/models/hand_made.py" experts "$WORK"
. "$SOURCE/test/EndToEnd/Inputs/common.sh"
bytes() { python3 "$SOURCE/test/EndToEnd/Inputs/team_bytes.py" "$@"; }
model=$WORK/model.onnx loss=
for members in 2 4; do
  generate over-$members --devices=$members --split=ep:$members
  bytes experts "$WORK/over-$members/plan.json" experts $members
done
# run NAME FLAGS…: five minibatches.
run() {
  generate "$@"
  build "$1"
  "$WORK/$1/out/pipeline" --dir "$WORK/$1" --threads --data synthetic --samples 8 --steps 5 >"$WORK/$1.log" 2>&1 || { cat "$WORK/$1.log" >&2; fail "$1 does not run"; }
  bytes run "$WORK/$1/plan.json" "$WORK/$1.log"
}
run two --devices=2 --split=ep:2
run four --devices=4 --split=ep:4
run two-stages --devices=4 --replicas=1,1 --split=ep:2 --recompute=all
