#!/usr/bin/env bash
# lora_int8.sh: adapters on frozen weights of 8 bits: the first loss is that of these weights, the checkpoint holds the adapters, and the merged
# model has what was trained.
set -euo pipefail
rm -rf "$WORK"
"$PYTHON" "$SOURCE/utils/models/hand_made.py" bytes "$WORK"
. "$SOURCE/test/EndToEnd/Inputs/common.sh"
model=$WORK/model.onnx optimizer=adam,lr=0.01
flags=(--devices=1 --schedule=1f1b-flush --microbatches=4 --quantize=int8)
generate plain "${flags[@]}" '--freeze=weight|wte'
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
"$PYTHON" "$SOURCE/test/EndToEnd/Inputs/lora_int8.py" "$model" "$WORK/weights" "$WORK/merged.onnx"
"$BUILD/bin/pdc-ckpt" to-onnx "$WORK/checkpoints" --model "$model" --base "$WORK/tuned" -o "$WORK/again.onnx"
cmp "$WORK/merged.onnx" "$WORK/again.onnx" || fail "pdc-ckpt writes another model"
"$BUILD/bin/pdc-ckpt" to-onnx "$WORK/checkpoints" --model "$model" -o "$WORK/other.onnx" && fail "the checkpoint's weights are not in the model"
echo "a checkpoint gives the same model"
