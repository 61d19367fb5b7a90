#!/usr/bin/env bash
# replay.sh STAGES [NETWORK]: runs of one plan, with overlap and barrier, of 47, 50 and 53 minibatches, against the replay from the
# formulas, bit for bit; over threads and over MPI. Then the same stages under vertical sync and PipeDream-2BW. Of the example, or
# of a network of utils/models/hand_made.py.
set -euo pipefail
stages=$1 network=${2:-}
if [ -n "$network" ]; then
  rm -rf "$WORK"
  "$PYTHON" "$SOURCE/utils/models/hand_made.py" "$network" "$WORK"
  model=$WORK/model.onnx loss=
fi
. "$SOURCE/test/EndToEnd/Inputs/common.sh"
ranks=$(($(echo "$stages" | tr - +)))
for sync in overlap barrier; do
  compile "$sync" "$stages" --sync=$sync
  { cmake -S "$SOURCE/test/EndToEnd/replay" -B "$WORK/$sync-replay" -G Ninja -DCMAKE_PREFIX_PATH="$BUILD" \
      -DRUN_DIR="$WORK/$sync" -DSOURCE_DIR="$SOURCE" && cmake --build "$WORK/$sync-replay"; } >"$WORK/replay.log" 2>&1 ||
    { cat "$WORK/replay.log" >&2; fail "the replay does not build"; }
  for minibatches in 47 50 53; do
    train $sync $sync-$minibatches --steps $minibatches --seed 3
    "$WORK/$sync-replay/replay" "$WORK/$sync" "$WORK/data" "$WORK/$sync-$minibatches" $minibatches 3 ||
      fail "plan $stages, $sync, $minibatches minibatches: not the bits of the formulas"
  done
  train_mpi "$ranks" $sync $sync-mpi --steps 53 --seed 3 --sync-sends
  same $sync-mpi $sync-53
  train $sync $sync-again --steps 53 --seed 3
  same $sync-again $sync-53
done
echo "plan $stages trains the bits of the formulas"

# Stage programs do not depend on the schedule: those of `overlap` run with the files of another one.
schedules="vertical-sync 2bw"
if [ "$network" = tied ]; then
  grep -q '^shared ' "$WORK/overlap/schedule.txt" || fail "plan $stages shares nothing"
  schedules=2bw # vertical sync does not go with shared parameters
fi
for schedule in $schedules; do
  python3 "$SOURCE/test/EndToEnd/Inputs/stale_plan.py" "$WORK/overlap/plan.json" "$WORK/$schedule.json" $schedule
  generate $schedule --plan="$WORK/$schedule.json"
  grep -q "^weights $([ $schedule = 2bw ] && echo two-versions || echo $schedule)$" "$WORK/$schedule/schedule.txt" ||
    fail "not the weights of $schedule: $(head -2 "$WORK/$schedule/schedule.txt")"
  for epochs in 1 4; do # of 16 minibatches; the last update of 2bw averages what is left
    export=$schedule-$epochs
    train overlap $export --dir "$WORK/$schedule" --epochs $epochs --seed 3
    replay="$WORK/overlap-replay/replay $WORK/$schedule $WORK/data $WORK/$export $((16 * epochs)) 3"
    $replay || fail "plan $stages, $schedule, $epochs epochs: not the bits of the formulas"
  done
  code=0
  $replay version >/dev/null || code=$?
  [ $code -eq 1 ] || fail "the comparison did not notice another version under $schedule (exit $code)"
  train_mpi "$ranks" overlap $schedule-mpi --dir "$WORK/$schedule" --epochs 4 --seed 3 --sync-sends
  same $schedule-mpi $schedule-4
  echo "$schedule trains the bits of the formulas, and no others"
done

# Mistakes that this test must notice, where the plan makes them visible: a gradient at other versions needs stages with
# warm-up, the order of a sum three replicas, the learning rate stages with different replica counts.
notices() {
  local mistake=$1 code=0
  "$WORK/overlap-replay/replay" "$WORK/overlap" "$WORK/data" "$WORK/overlap-53" 53 3 "$mistake" >/dev/null || code=$?
  [ $code -eq 1 ] || fail "the comparison did not notice the mistake '$mistake' (exit $code)"
  echo "notices $mistake"
}
[ "$stages" = 1-1 ] && { notices version; notices latest; }
[ "$stages" = 3-2 ] && { notices version; notices latest; notices all-reduce; notices learning-rate; }
exit 0
