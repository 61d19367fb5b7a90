#!/usr/bin/env bash
# Replicas that divide the optimizer's state, or their weights, in programs for CUDA, run on the stand-in for CUDA (test/stand-in):
# in f32, bf16, and f16 with a dynamic loss scale. PDC_STAND_IN_SEED draws the order in which streams go on.
set -euo pipefail
rm -rf "$WORK"
. "$SOURCE/test/EndToEnd/Inputs/common.sh"
optimizer=adam,lr=0.001
plan() { generate "$@" --target=cuda --clip-norm=0.5; }
# run PROGRAM PLAN EXPORT FLAGS…
run() { train "$1" "$3" --dir "$WORK/$2" --steps 6 --seed 3 "${@:4}"; }
allocates() {
  awk '$1 ~ /^[0-9.]+$/ && NF > 6 && $5 != $6 { print; wrong = 1 } END { exit wrong }' "$WORK/$1.log" || fail "$1: not the arena that was planned"
}

# compare NAME FLAGS…: whole replicas, and such with shards of either kind; over NCCL with a device for each, in two orders of
# streams, and through memory of the host.
compare() {
  local name=$1 shards seed
  plan "$@"
  on_stand_in "$name"
  run "$name" "$name" "$name-w"
  for shards in optimizer weights; do
    plan "$name-$shards" "${@:2}" --shard=$shards
    for seed in 1 2; do
      PDC_STAND_IN_DEVICES=4 PDC_STAND_IN_SEED=$seed run "$name" "$name-$shards" "$name-$shards-$seed" --transport=nccl
      same "$name-w" "$name-$shards-$seed"
    done
    run "$name" "$name-$shards" "$name-$shards-host"
    same "$name-w" "$name-$shards-host"
    allocates "$name-$shards-host"
    [ "$(arena "$name-$shards")" -lt "$(arena "$name")" ] || fail "$name: shards take no less memory"
  done
}

looped="--replicas=2,2,2,2 --schedule=bfs:4 --microbatches=4"
compare f32 $looped
echo "f32: shards change no bit, and take less memory"
compare bf16 $looped --precision=bf16
echo "bf16: shards change no bit, and take less memory"
compare f16 $looped --precision=f16 --loss-scale=dynamic
echo "f16 with a dynamic loss scale: shards change no bit, and take less memory"

# A run that is stopped after 3 of 6 steps, and goes on without shards, and the other way round.
for which in f32 f32-weights; do
  other=$([ $which = f32 ] && echo f32-weights || echo f32)
  train f32 first-$which --dir "$WORK/$which" --steps 3 --seed 3 --checkpoint-dir "$WORK/c-$which"
  run f32 $other resumed-$which --checkpoint-dir "$WORK/c-$which" --resume --eval "$WORK/data"
  same resumed-$which f32-w
done
[ "$(grep "^test loss" "$WORK/resumed-f32.log")" = "$(grep "^test loss" "$WORK/resumed-f32-weights.log")" ] ||
  fail "evaluations differ"
echo "checkpoints are resumed with and without shards, and evaluations are the same"

run f32 f32-weights other --lr 0.0011
diff -r "$WORK/other" "$WORK/f32-w" >/dev/null && fail "another learning rate is not noticed"
echo "another learning rate is noticed"
