#!/usr/bin/env bash
# Law 1: every tensor of every cut against the uncut program, by name.
set -euo pipefail
. "$SOURCE/test/EndToEnd/Inputs/common.sh"
flags=(--schedule=1f1b-flush --microbatches=4)
for stages in 1 1-1 1-1-1 1-1-1-1; do
  compile "cut-$stages" $stages "${flags[@]}"
  train "cut-$stages" "weights-$stages" --steps 20 --seed 5
done
compare() { python3 "$SOURCE/test/EndToEnd/Inputs/same_tensors.py" "$WORK/weights-1" "$WORK/$1"; }
compare weights-1-1 && echo "2 stages: the bits of the uncut program"
compare weights-1-1-1 && echo "3 stages: the bits of the uncut program"
compare weights-1-1-1-1 && echo "4 stages: the bits of the uncut program"
# GPipe runs the same microbatches in another order.
compile cut-gpipe 1-1-1 --schedule=gpipe --microbatches=4
train cut-gpipe weights-gpipe --steps 20 --seed 5
grep -q '^schedule gpipe' "$WORK/cut-gpipe/schedule.txt" || fail "not gpipe: $(head -1 "$WORK/cut-gpipe/schedule.txt")"
compare weights-gpipe && echo "gpipe in 3 stages: the bits of the uncut program"
# Schedules with a split backward, and those whose ranks host two stages each.
compile cut-zb-h1 1-1-1-1 --schedule=zb-h1 --microbatches=4
for schedule in interleaved:2 zb-v; do
  generate "cut-$schedule" --devices=2 --schedule=$schedule --microbatches=4
  build "cut-$schedule"
done
for schedule in zb-h1 interleaved:2 zb-v; do
  train "cut-$schedule" "weights-$schedule" --steps 20 --seed 5
  grep -q "^schedule $schedule" "$WORK/cut-$schedule/schedule.txt" || fail "not $schedule"
  compare "weights-$schedule" && echo "$schedule in 4 stages: the bits of the uncut program"
done
# The same with a process for each rank, which has a program of the two stages that it hosts.
mpirun --oversubscribe --mca btl_vader_single_copy_mechanism none -n 1 "$WORK/cut-zb-v/out/rank0" --data "$WORK/data" \
  --export-weights "$WORK/weights-rank" --steps 20 --seed 5 --sync-sends : -n 1 "$WORK/cut-zb-v/out/rank1" \
  --data "$WORK/data" --export-weights "$WORK/weights-rank" --steps 20 --seed 5 --sync-sends >"$WORK/rank.log" 2>&1 ||
  { cat "$WORK/rank.log" >&2; fail "rank0 and rank1"; }
compare weights-rank && echo "zb-v over MPI: the bits of the uncut program"
# Other data order: the comparison must notice.
train cut-1-1 weights-other --steps 20 --seed 6
compare weights-other >/dev/null && fail "the comparison notices nothing"
echo "notices another order of microbatches"
