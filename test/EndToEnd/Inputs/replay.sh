#!/usr/bin/env bash
# replay.sh STAGES [NETWORK]: runs of one plan, with overlap and barrier, of 47, 50 and 53 minibatches, against the replay from the
# formulas, bit for bit; over threads and over MPI. Then the same stages under vertical sync and PipeDream-2BW. Of the example, or
# of a network of utils/models/hand_made.py. Stage programs do not depend on the schedule: those of `overlap` run with all files.
set -euo pipefail
stages=$1 network=${2:-}
if [ -n "$network" ]; then
  rm -rf "$WORK"
  "$PYTHON" "$SOURCE/utils/models/hand_made.py" "$network" "$WORK"
  model=$WORK/model.onnx loss=
fi
. "$SOURCE/test/EndToEnd/Inputs/common.sh"
ranks=$(($(echo "$stages" | tr - +)))
generate overlap --replicas="${stages//-/,}" --sync=overlap
build overlap replay
replay() { "$WORK/overlap/out/replay" "$WORK/$1" "$WORK/data" "$WORK/$2" "$3" 3 ${4:-}; }
other() { # PLAN: the same stages run another way
  python3 "$SOURCE/test/EndToEnd/Inputs/stale_plan.py" "$WORK/overlap/plan.json" "$WORK/$1.json" "$1"
  generate "$1" --plan="$WORK/$1.json"
}
other barrier
for sync in overlap barrier; do
  # Without replicas the two differ in nothing.
  [ $sync = barrier ] && cmp -s "$WORK/overlap/schedule.txt" "$WORK/barrier/schedule.txt" && continue
  for minibatches in 47 50 53; do
    train overlap $sync-$minibatches --dir "$WORK/$sync" --steps $minibatches --seed 3
    replay $sync $sync-$minibatches $minibatches ||
      fail "plan $stages, $sync, $minibatches minibatches: not the bits of the formulas"
  done
  train_mpi "$ranks" overlap $sync-mpi --dir "$WORK/$sync" --steps 53 --seed 3 --sync-sends
  same $sync-mpi $sync-53
done
train overlap again --steps 53 --seed 3
same again overlap-53
echo "plan $stages trains the bits of the formulas"

schedules="vertical-sync 2bw"
if [ "$network" = tied ]; then
  grep -q '^shared ' "$WORK/overlap/schedule.txt" || fail "plan $stages shares nothing"
  schedules=2bw # vertical sync does not go with shared parameters
fi
for schedule in $schedules; do
  other $schedule
  grep -q "^weights $([ $schedule = 2bw ] && echo two-versions || echo $schedule)$" "$WORK/$schedule/schedule.txt" ||
    fail "not the weights of $schedule: $(head -2 "$WORK/$schedule/schedule.txt")"
  for epochs in 1 4; do # of 16 minibatches; the last update of 2bw averages what is left
    export=$schedule-$epochs
    train overlap $export --dir "$WORK/$schedule" --epochs $epochs --seed 3
    replay $schedule $export $((16 * epochs)) ||
      fail "plan $stages, $schedule, $epochs epochs: not the bits of the formulas"
  done
  code=0
  replay $schedule $schedule-4 64 version >/dev/null || code=$?
  [ $code -eq 1 ] || fail "the comparison did not notice another version under $schedule (exit $code)"
  train_mpi "$ranks" overlap $schedule-mpi --dir "$WORK/$schedule" --epochs 4 --seed 3 --sync-sends
  same $schedule-mpi $schedule-4
  echo "$schedule trains the bits of the formulas, and no others"
done

# Mistakes that this test must notice, where the plan makes them visible: a gradient at other versions needs stages with
# warm-up, the order of a sum three replicas, the learning rate stages with different replica counts.
notices() {
  local mistake=$1 code=0
  replay overlap overlap-53 53 "$mistake" >/dev/null || code=$?
  [ $code -eq 1 ] || fail "the comparison did not notice the mistake '$mistake' (exit $code)"
  echo "notices $mistake"
}
[ "$stages" = 1-1 ] && { notices version; notices latest; }
[ "$stages" = 3-2 ] && { notices version; notices latest; notices all-reduce; notices learning-rate; }
exit 0
