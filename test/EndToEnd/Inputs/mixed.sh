#!/usr/bin/env bash
# mixed.sh NETWORK CUT SPLITS FINER FINER_SPLITS: stages of one plan with different splits, of a network of utils/models/hand_made.py
# (or `digits`). CUT names the groups at which stages begin, SPLITS the split of each stage; FINER cuts the same groups with the same
# splits into more stages. All are cuts of the undivided program's plan. $LOSS: the flag of a network that has logits.
#
#   - the mixed program trains near the undivided one
#   - under every flushing schedule, over threads, MPI and TCP, and cut finer: the same bits
#   - 1f1b and 2bw: the same bits over threads and MPI, near the undivided program with the same cut and schedule
set -euo pipefail
network=$1 cut=$2 splits=$3 finer=$4 finer_splits=$5
rm -rf "$WORK"
[ "$network" = digits ] || "$PYTHON" "$SOURCE/utils/models/hand_made.py" "$network" "$WORK"
. "$SOURCE/test/EndToEnd/Inputs/common.sh"
[ "$network" = digits ] || { model=$WORK/model.onnx loss=${LOSS:-}; }
microbatches=4
flags="--schedule=1f1b-flush --microbatches=$microbatches --recompute=none"

tensors() { python3 "$SOURCE/test/EndToEnd/Inputs/same_tensors.py" "$WORK/$1" "$WORK/$2"; }
close() { python3 "$SOURCE/test/EndToEnd/Inputs/close_runs.py" "$WORK/$1" "$WORK/$2" "$3"; }
losses() { grep -o '"loss": [^,]*' "$WORK/$1.jsonl"; }
same_run() {
  diff <(losses "$1") <(losses "$2") >/dev/null || fail "$2: other losses than $1"
  tensors "$1" "$2" >"$WORK/compared" || fail "$2: other bits than $1: $(cat "$WORK/compared")"
}
# planned FOLDER CUT SCHEDULE FLAGS…: the program of the undivided plan in stages.
planned() {
  local folder=$1 cut=$2 schedule=$3
  shift 3
  python3 "$SOURCE/test/EndToEnd/Inputs/cut_plan.py" "$WORK/uncut/plan.json" "$WORK/$folder.json" "$cut" "$schedule" $microbatches
  generate "$folder" --plan="$WORK/$folder.json" "$@"
}
run() {
  local folder=$1 name=$2
  shift 2
  train "$folder" "$name" --steps 12 --seed 5 --metrics "$WORK/$name.jsonl" "$@"
}
processes() { grep -o '"devices": \[[^]]*\]' "$WORK/$1/plan.json" | tr -cd ',[' | wc -c; }

generate uncut --devices=1 $flags
build uncut
run uncut weights-uncut

planned mixed "$cut" 1f1b-flush --split="$splits"
build mixed
run mixed weights-mixed
close weights-uncut weights-mixed "${TOLERANCE:-1e-4}" || fail "$splits: far from the undivided program"
tensors weights-uncut weights-mixed >/dev/null && fail "$splits changes nothing"
echo "$splits trains near the undivided program"

for schedule in gpipe zb-h1; do
  planned mixed-$schedule "$cut" $schedule --split="$splits"
  [ $schedule = gpipe ] || build mixed-$schedule
  program=mixed
  [ $schedule = gpipe ] || program=mixed-$schedule
  run $program weights-$schedule --dir "$WORK/mixed-$schedule"
  same_run weights-mixed weights-$schedule
done
planned finer "$finer" 1f1b-flush --split="$finer_splits"
build finer
run finer weights-finer
same_run weights-mixed weights-finer
echo "$splits under all schedules, and cut finer: the same bits"

count=$(processes mixed)
for way in mpi tcp; do
  arguments=(--steps 12 --seed 5 --metrics "$WORK/weights-$way.jsonl")
  [ $way = tcp ] || arguments+=(--sync-sends)
  train_$way "$count" mixed weights-$way "${arguments[@]}"
  same_run weights-mixed weights-$way
done
echo "$splits over $count processes, by MPI and TCP: the same bits"

for schedule in 1f1b 2bw; do
  planned plain-$schedule "$cut" $schedule
  planned mixed-$schedule "$cut" $schedule --split="$splits"
  build plain-$schedule
  build mixed-$schedule
  run plain-$schedule weights-plain-$schedule
  run mixed-$schedule weights-mixed-$schedule
  close weights-plain-$schedule weights-mixed-$schedule "${TOLERANCE:-1e-4}" || fail "$splits, $schedule"
  train_mpi "$count" mixed-$schedule weights-mpi-$schedule --steps 12 --seed 5 --metrics "$WORK/weights-mpi-$schedule.jsonl"
  same_run weights-mixed-$schedule weights-mpi-$schedule
done
echo "$splits under 1f1b and 2bw: near the undivided program, the same bits over MPI"
