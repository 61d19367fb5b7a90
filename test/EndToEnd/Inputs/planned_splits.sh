#!/usr/bin/env bash
# planned_splits.sh NETWORK SPLITS DEVICES: a network of utils/models/hand_made.py in stages with these splits, where the planner cuts, trains near
# the undivided program, over threads and MPI with the same bits. $LOSS: the flag of a network that has logits.
set -euo pipefail
network=$1 splits=$2 devices=$3
rm -rf "$WORK"
"$PYTHON" "$SOURCE/utils/models/hand_made.py" "$network" "$WORK"
. "$SOURCE/test/EndToEnd/Inputs/common.sh"
model=$WORK/model.onnx loss=${LOSS:-}
flags="--schedule=1f1b-flush --microbatches=4 --recompute=none"
run() { train "$1" "weights-$1" --steps 12 --seed 5 --metrics "$WORK/weights-$1.jsonl"; }
generate whole --devices=1 $flags
generate planned --devices="$devices" --split="$splits" $flags
for folder in whole planned; do
  build $folder
  run $folder
done
python3 "$SOURCE/test/EndToEnd/Inputs/close_runs.py" "$WORK/weights-whole" "$WORK/weights-planned" 1e-4 || fail "$splits: far from the undivided program"
train_mpi "$devices" planned weights-mpi --steps 12 --seed 5 --metrics "$WORK/mpi.jsonl"
python3 "$SOURCE/test/EndToEnd/Inputs/same_tensors.py" "$WORK/weights-planned" "$WORK/weights-mpi" || fail "$splits: other bits over MPI"
echo "stages of the splits $(grep -o '"split": "[^"]*"' "$WORK/planned/plan.json" | tr '\n' ' ')train near the undivided program"
