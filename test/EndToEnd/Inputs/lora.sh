#!/usr/bin/env bash
# A language model with a tied classifier gets adapters for all its layers: the first update has the loss of the model without them,
# nothing else changes, a checkpoint holds nothing else, and the ONNX file has the model's own graph with merged weights.
set -euo pipefail
rm -rf "$WORK"
"$PYTHON" "$SOURCE/utils/models/hand_made.py" bytes "$WORK"
. "$SOURCE/test/EndToEnd/Inputs/common.sh"
model=$WORK/model.onnx optimizer=adam,lr=0.01
flags=(--devices=1 --schedule=1f1b-flush --microbatches=4)
generate plain "${flags[@]}"
generate tuned "${flags[@]}" --lora=rank=2,alpha=6,targets=all-linear
for folder in plain tuned; do
  build $folder
  train $folder first-$folder --steps 1 --seed 3 --metrics "$WORK/$folder.jsonl"
done
losses() { grep -o '"loss": [^,]*' "$WORK/$1.jsonl"; }
diff <(losses plain) <(losses tuned) || fail "other losses at update 0"
echo "update 0 has the loss of the model without adapters"
"$BUILD/bin/pdc-run" "$WORK/tuned" --data "$WORK/data" --steps 12 --seed 3 --export-weights "$WORK/weights" --export "$WORK/merged.onnx" \
  --checkpoint-dir "$WORK/checkpoints" --metrics "$WORK/tuned.jsonl" >"$WORK/run.log" 2>&1 || { cat "$WORK/run.log" >&2; fail "pdc-run"; }
"$PYTHON" "$SOURCE/test/EndToEnd/Inputs/lora_files.py" "$model" "$WORK/weights" "$WORK"/checkpoints/checkpoint-* "$WORK/merged.onnx"
"$BUILD/bin/pdc-ckpt" to-onnx "$WORK/checkpoints" --model "$model" -o "$WORK/again.onnx"
cmp "$WORK/merged.onnx" "$WORK/again.onnx" || fail "pdc-ckpt writes another model"

# Weights that the run began with, and the model does not have.
generate other "${flags[@]}" --lora=rank=2,alpha=6,targets=all-linear --init-from="$WORK/first-plain"
build other
train other other-weights --steps 2 --seed 3 --checkpoint-dir "$WORK/other-checkpoints"
"$BUILD/bin/pdc-ckpt" to-onnx "$WORK/other-checkpoints" --model "$model" -o "$WORK/other.onnx" && fail "other weights are taken"
"$BUILD/bin/pdc-ckpt" to-onnx "$WORK/other-checkpoints" --model "$model" --base "$WORK/other" -o "$WORK/other.onnx"
"$BUILD/bin/pdc-ckpt" to-onnx "$WORK/other-weights" --model "$model" -o "$WORK/other-again.onnx"
cmp "$WORK/other.onnx" "$WORK/other-again.onnx" || fail "--base gives another model"
