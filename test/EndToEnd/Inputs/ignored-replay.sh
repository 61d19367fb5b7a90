#!/usr/bin/env bash
# A loss that leaves out the class 3 and has weights for the others, in stages with 2 and 1 replicas: flushing, 2BW and 1F1B, with an
# update at the end that has fewer minibatches, against the replay from the formulas, bit for bit.
set -euo pipefail
loss=--loss=softmax-cross-entropy,ignore_index=3,class_weights=1/2/0.5/1/3/1/0.25/1/1/1
. "$SOURCE/test/EndToEnd/Inputs/common.sh"
batches="--microbatches=6"
generate gpipe --replicas=2,1 --schedule=gpipe $batches
build gpipe replay
grep -q '"label", true, 3, weights_of_share0' "$WORK/gpipe/stage1.cpp" || fail "the stage with the loss has no share"
! grep -q LossShare "$WORK/gpipe/stage0.cpp" || fail "the other stage has one"
generate 1f1b-flush --replicas=2,1 --schedule=1f1b-flush $batches
generate 2bw --replicas=2,1 --schedule=2bw $batches
generate 1f1b --replicas=2,1 --schedule=1f1b
for schedule in gpipe 1f1b-flush 2bw 1f1b; do
  for epochs in 1 3; do # of 16 minibatches: the last update of the first has fewer
    train gpipe $schedule-$epochs --dir "$WORK/$schedule" --epochs $epochs --seed 3
    "$WORK/gpipe/out/replay" "$WORK/$schedule" "$WORK/data" "$WORK/$schedule-$epochs" $((16 * epochs)) 3 ||
      fail "$schedule, $epochs epochs: not the bits of the formulas"
  done
  echo "$schedule: the bits of the formulas"
done
same gpipe-3 1f1b-flush-3
