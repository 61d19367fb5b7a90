#!/usr/bin/env bash
# Recomputation changes no bit: weights and running statistics of stages that recompute against those of stages that keep.
set -euo pipefail
. "$SOURCE/test/EndToEnd/Inputs/common.sh"
"$PYTHON" "$SOURCE/utils/models/export.py" norm-and-drop "$WORK/model.onnx" >/dev/null 2>&1 || fail "PyTorch could not export"
generate() {
  local folder=$1
  shift
  "$BUILD/bin/pdc" "$WORK/model.onnx" -o "$WORK/$folder" --batch=4 --profile=analytic --loss=softmax-cross-entropy \
    --optimizer=momentum,lr=0.01,momentum=0.9 "$@" >"$WORK/$folder.log" 2>&1 || { cat "$WORK/$folder.log" >&2; fail "pdc $*"; }
}
arenas() { python3 -c 'import json, sys; print(sum(s["memory_bytes"] for s in json.load(open(sys.argv[1]))["stages"]))' "$WORK/$1/plan.json"; }
nodes() { python3 -c 'import json, sys; print([s["nodes"] for s in json.load(open(sys.argv[1]))["stages"]])' "$WORK/keep-$1/plan.json"; }
for schedule in 1f1b 1f1b-flush; do
  flags=(--schedule=$schedule)
  # Several minibatches in flight in both stages, so that there is something to save.
  if [ $schedule = 1f1b ]; then flags+=(--warmup=6,3); else flags+=(--microbatches=4); fi
  generate keep-$schedule --replicas=1,1 --recompute=none "${flags[@]}"
  diff <(nodes 1f1b) <(nodes $schedule) >/dev/null || fail "the stages of $schedule are others"
  # The same plan, with stages that recompute.
  python3 - "$WORK/keep-$schedule/plan.json" "$WORK/again-$schedule.json" <<'PYTHON'
import json
import sys
plan = json.load(open(sys.argv[1]))
for stage in plan["stages"]:
    stage["recompute"] = True
json.dump(plan, open(sys.argv[2], "w"))
PYTHON
  generate again-$schedule --plan="$WORK/again-$schedule.json" "${flags[@]}"
  for way in keep again; do
    [ $schedule = 1f1b ] && build $way-1f1b # these stage programs run under both schedules
    train $way-1f1b weights-$way-$schedule --dir "$WORK/$way-$schedule" --steps 20 --seed 5
  done
  python3 "$SOURCE/test/EndToEnd/Inputs/same_tensors.py" "$WORK/weights-keep-$schedule" "$WORK/weights-again-$schedule" &&
    echo "$schedule: the same bits"
  [ "$(arenas again-$schedule)" -lt "$(arenas keep-$schedule)" ] && echo "$schedule: less memory"
done
# Other random numbers must be noticed.
train again-1f1b weights-other --steps 20 --seed 6
python3 "$SOURCE/test/EndToEnd/Inputs/same_tensors.py" "$WORK/weights-keep-1f1b" "$WORK/weights-other" >/dev/null &&
  fail "the comparison notices nothing"
echo "notices other random numbers"
