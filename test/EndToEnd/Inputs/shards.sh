#!/usr/bin/env bash
# Replicas that divide the updates train the bits of those that do not: over threads, MPI and TCP, under schedules that
# flush and others, with Adam and clipping; their arenas are as small as pdc says; and a run goes on from their
# checkpoints under another plan.
set -euo pipefail
rm -rf "$WORK"
. "$SOURCE/test/EndToEnd/Inputs/common.sh"
model=${MODEL:-$SOURCE/examples/digits/digits.onnx}
export model
optimizer=adam,lr=0.001
clip=--clip-norm=0.5
flush="--schedule=1f1b-flush --microbatches=6"
state() { grep -o '"optimizer_bytes": [0-9]*' "$WORK/$1/plan.json" | head -1 | grep -o '[0-9]*$'; }

for replicas in 2 3; do
  generate whole$replicas --replicas=$replicas,1 $flush $clip
  generate shards$replicas --replicas=$replicas,1 $flush $clip --shard=optimizer
done
build whole2
for replicas in 2 3; do
  for which in whole shards; do
    train whole2 $which$replicas-w --dir "$WORK/$which$replicas" --steps 10 --seed 3
  done
  same whole$replicas-w shards$replicas-w
  echo "$replicas replicas: the bits of whole ones"
  echo "state less by $(($(state whole$replicas) - $(state shards$replicas))) of $(state whole$replicas) bytes," \
    "arena by $(($(arena whole$replicas) - $(arena shards$replicas)))"
done
awk '$1 ~ /^[0-9.]+$/ && NF > 6 { print $5 == $6 ? "allocated what was predicted" : "predicted " $5 ", allocated " $6 }' \
  "$WORK/shards2-w.log"

train_mpi 3 whole2 mpi --dir "$WORK/shards2" --steps 10 --seed 3 --sync-sends
same mpi whole2-w
train_tcp 3 whole2 tcp --dir "$WORK/shards2" --steps 10 --seed 3
same tcp whole2-w
echo "over MPI and TCP too"

# Each stage updates by itself, and clips by its own norm.
generate alone-whole --replicas=2,1 --clip-norm=0.5,scope=stage
generate alone-shards --replicas=2,1 --clip-norm=0.5,scope=stage --shard=optimizer
for which in whole shards; do train whole2 alone-$which-w --dir "$WORK/alone-$which" --steps 23 --seed 3; done
same alone-whole-w alone-shards-w
echo "1f1b: the bits of whole ones"

# Stages that differ: the replicas of one divide its state, those of the other do not.
generate both-whole --replicas=2,2 $flush $clip
build both-whole
train both-whole both-whole-w --dir "$WORK/both-whole" --steps 10 --seed 3
states() { grep -o '"optimizer_bytes": [0-9]*' "$WORK/$1/plan.json" | grep -o '[0-9]*$' | xargs; }
whole=$(states both-whole)
for shards in optimizer,none none,optimizer; do
  generate both --replicas=2,2 $flush $clip --shard=$shards
  train both-whole both-w --dir "$WORK/both" --steps 10 --seed 3
  same both-w both-whole-w
  awk '$1 ~ /^[0-9.]+$/ && NF > 6 && $5 != $6 { exit 1 }' "$WORK/both-w.log" || fail "the arena is another than predicted"
  echo "$shards: the bits of whole ones, states of $(states both) instead of $whole bytes"
done
train both-whole both-first --dir "$WORK/both" --steps 4 --seed 3 --checkpoint-dir "$WORK/c-both"
train both-whole both-resumed --dir "$WORK/both-whole" --steps 10 --seed 3 --checkpoint-dir "$WORK/c-both" --resume
same both-resumed both-whole-w
echo "resumed from different stages: the bits of an undisturbed run"

# A run that is stopped after 4 of 10 steps, with shards, and goes on without, and the other way round.
for which in shards whole; do
  other=$([ $which = shards ] && echo whole || echo shards)
  train whole2 first-$which --dir "$WORK/${which}2" --steps 4 --seed 3 --checkpoint-dir "$WORK/c-$which"
  train whole2 resumed-$which --dir "$WORK/${other}2" --steps 10 --seed 3 --checkpoint-dir "$WORK/c-$which" --resume
  same resumed-$which whole2-w
  echo "resumed from $which: the bits of an undisturbed run"
done
# The last checkpoint of one of them is in shards. The trained models are whole.
[ -f "$WORK"/c-whole/*60/stage0.optimizer.replica1.safetensors ] || fail "the checkpoint is not in shards"
for which in shards whole; do
  "$BUILD/bin/pdc-ckpt" to-onnx "$WORK/c-$which" --model "$model" -o "$WORK/$which.onnx" >/dev/null
done
cmp "$WORK/shards.onnx" "$WORK/whole.onnx"
echo "to-onnx writes the same model from both"
train whole2 other --dir "$WORK/shards2" --steps 9 --seed 3
diff -r "$WORK/other" "$WORK/whole2-w" >/dev/null && fail "the comparison notices nothing"
echo "notices another number of steps"
