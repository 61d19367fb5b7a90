# Sourced by splits_resume.sh and positions_resume.sh, which have generated `whole` and `team` in $WORK: the programs of one process and of a
# team train near each other, and checkpoints go from the team to one process and back, bit for bit.
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
python3 "$SOURCE/test/EndToEnd/Inputs/close_runs.py" "$WORK/weights-whole" "$WORK/weights-team" 1e-4
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
