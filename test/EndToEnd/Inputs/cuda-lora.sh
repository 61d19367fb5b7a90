#!/usr/bin/env bash
# Adapters in programs for CUDA, in f32 and bf16, run on the stand-in for CUDA (test/stand-in).
set -euo pipefail
rm -rf "$WORK"
mkdir -p "$WORK"
"$PYTHON" "$SOURCE/utils/models/hand_made.py" skips "$WORK"
. "$SOURCE/test/EndToEnd/Inputs/common.sh"
model="$WORK/model.onnx" loss= lr=0.05
lora=--lora=rank=2,alpha=6,dropout=0.1,targets=all-linear
run() { train "$1" "$1-weights" --seed 7 --steps 8 --metrics "$WORK/$1-weights.jsonl"; }
close() { python3 "$SOURCE/test/EndToEnd/Inputs/close_runs.py" "$WORK/$1-weights" "$WORK/$2-weights" "$3"; }

generate cpu --target=cpu --replicas=1 $lora
build cpu
run cpu
generate f32 --target=cuda --replicas=1 $lora
on_stand_in f32
run f32
close cpu f32 1e-4
echo "f32: adapters for CUDA are those of the CPU"
generate bf16 --target=cuda --replicas=1 --precision=bf16 $lora
on_stand_in bf16
run bf16
close f32 bf16 3e-2
close f32 bf16 1e-5 >/dev/null 2>&1 && fail "nothing was rounded to bf16"
echo "bf16: adapters are close to those of f32, and not the same"
for stages in 1 1,1; do
  generate "stages-$stages" --target=cuda --replicas=$stages --precision=bf16 --schedule=1f1b-flush --microbatches=2 $lora
  on_stand_in "stages-$stages"
  PDC_STAND_IN_SEED=3 run "stages-$stages"
done
close stages-1 stages-1,1 0
echo "bf16: two stages train the bits of one"
