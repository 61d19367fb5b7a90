#!/usr/bin/env bash
# positions_resume.sh: a language model, whose positions two processes divide, trains through pdc-run near the undivided program, each with
# 2 minibatches per update and clipped gradients; two replicas of such a team train near both. Checkpoints go from the team to one process and back, bit for bit.
set -euo pipefail
rm -rf "$WORK"
"$PYTHON" "$SOURCE/utils/models/hand_made.py" bytes "$WORK"
. "$SOURCE/test/EndToEnd/Inputs/common.sh"
model=$WORK/model.onnx loss=--loss=softmax-cross-entropy:logits
update=(--schedule=1f1b-flush --microbatches=2 --clip-norm=0.5)
generate whole --devices=1 "${update[@]}"
generate team --devices=2 --split=sp:2 "${update[@]}"
generate replicas --devices=4 --split=sp:2 --replicas=2 "${update[@]}"
tensors() { python3 "$SOURCE/test/EndToEnd/Inputs/same_tensors.py" "$WORK/$1" "$WORK/$2"; }
# run FOLDER STEPS NAME FLAGS…
run() {
  local folder=$1 steps=$2 name=$3
  shift 3
  "$BUILD/bin/pdc-run" "$WORK/$folder" --data "$WORK/data" --steps "$steps" --seed 5 --export-weights "$WORK/$name" \
    --export "$WORK/$name.onnx" --metrics "$WORK/$name.jsonl" "$@" >"$WORK/$name.log" 2>&1 || { cat "$WORK/$name.log" >&2; fail "$folder, $name"; }
}

run whole 6 weights-whole --checkpoint-dir "$WORK/of-whole"
run team 6 weights-team --checkpoint-dir "$WORK/of-team"
run replicas 6 weights-replicas
python3 "$SOURCE/test/EndToEnd/Inputs/close_runs.py" "$WORK/weights-whole" "$WORK/weights-team" 1e-4
python3 "$SOURCE/test/EndToEnd/Inputs/close_runs.py" "$WORK/weights-whole" "$WORK/weights-replicas" 1e-4
"$BUILD/bin/pdc-ckpt" verify "$WORK/of-team" >/dev/null

# Without a step more, a run has what it has read.
run whole 6 weights-read-by-whole --checkpoint-dir "$WORK/of-team" --resume
tensors weights-team weights-read-by-whole || fail "one process has read other weights than the team has written"
cmp "$WORK/weights-team.onnx" "$WORK/weights-read-by-whole.onnx" || fail "the team's ONNX file differs"
run team 6 weights-read-by-team --checkpoint-dir "$WORK/of-whole" --resume
tensors weights-whole weights-read-by-team || fail "the team has read other weights than one process has written"
tensors weights-whole weights-team >/dev/null && fail "the comparison notices nothing"
echo "checkpoints of a team and of one process are read by either"

# The optimizer's state goes along.
run team 10 weights-team-10
run team 10 weights-team-resumed --checkpoint-dir "$WORK/of-team" --resume
tensors weights-team-10 weights-team-resumed || fail "the resumed run differs"
echo "a team that went on is the undisturbed one"
