#!/usr/bin/env bash
# resume.sh NETWORK: a network of utils/models/hand_made.py is trained for 8 updates uncut; then a run of two stages is
# interrupted after 4 of them and goes on in three stages. Weights and running statistics must
# be those of the uncut run, also in the ONNX file that pdc-ckpt writes. $FLAGS: further flags of pdc.
set -euo pipefail
network=$1
rm -rf "$WORK"
"$PYTHON" "$SOURCE/utils/models/hand_made.py" "$network" "$WORK"
. "$SOURCE/test/EndToEnd/Inputs/common.sh"
model=$WORK/model.onnx
loss=
flags=(--schedule=1f1b-flush --microbatches=4 ${FLAGS:-})

generate uncut --devices=1 "${flags[@]}"
for cut in 1 1,3; do
  python3 "$SOURCE/test/EndToEnd/Inputs/cut_plan.py" "$WORK/uncut/plan.json" "$WORK/plan.json" "$cut" 1f1b-flush 4
  generate "cut-$cut" --plan="$WORK/plan.json" ${FLAGS:-}
done
for folder in cut-1 cut-1,3; do build "$folder"; done

"$BUILD/bin/pdc-run" "$WORK/uncut" --data "$WORK/data" --steps 8 --seed 5 --export-weights "$WORK/whole" \
  --export "$WORK/whole.onnx" >"$WORK/whole.log" 2>&1 || { cat "$WORK/whole.log" >&2; fail "the uncut run"; }
train cut-1 half --steps 4 --seed 5 --checkpoint-dir "$WORK/checkpoints" --checkpoint-every 3
[ "$(ls "$WORK/checkpoints")" = "$(printf 'checkpoint-%010d\n' 12 16)" ] || fail "other checkpoints: $(ls "$WORK/checkpoints")"
train cut-1,3 resumed --steps 8 --seed 5 --checkpoint-dir "$WORK/checkpoints" --resume
tensors() { python3 "$SOURCE/test/EndToEnd/Inputs/same_tensors.py" "$WORK/$1" "$WORK/$2"; }
tensors whole resumed || fail "the resumed run differs"
tensors whole half >/dev/null && fail "the comparison notices nothing"

"$BUILD/bin/pdc-ckpt" verify "$WORK/checkpoints"
"$BUILD/bin/pdc-ckpt" to-onnx "$WORK/checkpoints" --model "$model" -o "$WORK/resumed.onnx"
cmp "$WORK/whole.onnx" "$WORK/resumed.onnx" || fail "another ONNX file"
echo "$network: a run that went on under another cut is the undisturbed one"
