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
# Other data order: the comparison must notice.
train cut-1-1 weights-other --steps 20 --seed 6
compare weights-other >/dev/null && fail "the comparison notices nothing"
echo "notices another order of microbatches"
