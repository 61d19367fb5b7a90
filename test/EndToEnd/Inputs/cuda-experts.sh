#!/usr/bin/env bash
# Mixtures of experts over two replicas of a team of two that divides samples and experts, for CPUs and for CUDA, whose program runs on the
# stand-in (test/stand-in). Gradients are clipped, so that each member's parts count in the norm.
set -euo pipefail
rm -rf "$WORK"
mkdir -p "$WORK"
"$PYTHON" "$SOURCE/utils/models/hand_made.py" experts "$WORK"
. "$SOURCE/test/EndToEnd/Inputs/common.sh"
model="$WORK/model.onnx" loss= lr=0.05

run() { train "$1" "$2" --steps 4 --seed 7 --metrics "$WORK/$2.jsonl" "${@:3}"; }
plan() { generate "$1" --devices=4 --replicas=2 --split=ep:2 --schedule=1f1b-flush --microbatches=4 --clip-norm=0.5 "${@:2}"; }

plan cpu
build cpu
run cpu cpu-weights
plan cuda --target=cuda
on_stand_in cuda
PDC_STAND_IN_SEED=1 run cuda cuda-weights
python3 "$SOURCE/test/EndToEnd/Inputs/close_runs.py" "$WORK/cpu-weights" "$WORK/cuda-weights" 1e-4
echo "experts over teams of 2: losses and weights of both targets agree"
for seed in 1 2 3; do
  PDC_STAND_IN_DEVICES=4 PDC_STAND_IN_SEED=$seed run cuda "nccl-$seed" --transport=nccl
  same cuda-weights "nccl-$seed"
done
echo "experts over teams of 2: over NCCL no bit is another"
