#!/usr/bin/env bash
# team_shards.sh SPLIT [NETWORK LOSS]: two replicas of a team, whose members divide the optimizer's state, or weights and gradients, with
# the same member of the other replica, train the bits of whole ones: over threads, MPI and TCP, with Adam and clipping. Their arenas are as
# small as pdc says. Checkpoints go to whole teams, to replicas without teams, to one process, and back. Of the example, or of a network of
# hand_made.py.
set -euo pipefail
split=$1 network=${2:-}
rm -rf "$WORK"
[ -z "$network" ] || "$PYTHON" "$SOURCE/utils/models/hand_made.py" "$network" "$WORK"
. "$SOURCE/test/EndToEnd/Inputs/common.sh"
[ -z "$network" ] || { model=$WORK/model.onnx loss=${3:-}; }
optimizer=adam,lr=0.001
flush=(--schedule=1f1b-flush --microbatches=4 --clip-norm=0.5)
state() { grep -o '"optimizer_bytes": [0-9]*' "$WORK/$1/plan.json" | head -1 | grep -o '[0-9]*$'; }
as_predicted() {
  awk '$1 ~ /^[0-9.:]+$/ && NF > 6 { if ($5 == $6) all++; else other = 1 } END { exit other || all < 4 }' "$WORK/$1.log" ||
    { cat "$WORK/$1.log" >&2; fail "arenas of $1 are not as predicted"; }
}

generate whole --split="$split" --replicas=2 "${flush[@]}"
generate shards --split="$split" --replicas=2 "${flush[@]}" --shard=optimizer
build whole
for folder in whole shards; do train whole $folder-w --dir "$WORK/$folder" --steps 6 --seed 3; done
same whole-w shards-w
as_predicted shards-w
[ "$(arena shards)" -lt "$(arena whole)" ] || fail "nothing is saved"
[ $((2 * $(state shards))) -lt $(($(state whole) + 65536)) ] || fail "the state is not halved"
echo "optimizer: the bits of whole ones, in the predicted arenas"
train_mpi 4 whole mpi --dir "$WORK/shards" --steps 6 --seed 3 --sync-sends
same mpi whole-w
train_tcp 4 whole tcp --dir "$WORK/shards" --steps 6 --seed 3
same tcp whole-w
echo "over MPI and TCP too"

# Each stage updates by itself.
generate alone-whole --split="$split" --replicas=2 --clip-norm=0.5,scope=stage
generate alone-shards --split="$split" --replicas=2 --clip-norm=0.5,scope=stage --shard=optimizer
for folder in alone-whole alone-shards; do train whole $folder-w --dir "$WORK/$folder" --steps 7 --seed 3; done
same alone-whole-w alone-shards-w
echo "1f1b: the bits of whole ones"

# A run that is stopped after 2 of 6 steps, with shards, and goes on without, and the other way round.
for which in shards whole; do
  other=$([ $which = shards ] && echo whole || echo shards)
  train whole first-$which --dir "$WORK/$which" --steps 2 --seed 3 --checkpoint-dir "$WORK/c-$which"
  train whole resumed-$which --dir "$WORK/$other" --steps 6 --seed 3 --checkpoint-dir "$WORK/c-$which" --resume
  same resumed-$which whole-w
done
same first-shards first-whole
"$BUILD/bin/pdc-ckpt" verify "$WORK/c-whole" >/dev/null
[[ $split == sp:* ]] || [ -f "$WORK"/c-whole/*24/stage0.optimizer.replica1.member1.safetensors ] || fail "the checkpoint is not of shards of parts"
echo "resumed from either: the bits of an undisturbed run"

# Without a step more, others have what they have read, and write it: one process, and replicas with shards and no teams.
tensors() { python3 "$SOURCE/test/EndToEnd/Inputs/same_tensors.py" "$WORK/$1" "$WORK/$2"; }
generate single --devices=1 --split=none "${flush[@]}"
generate replicas --replicas=2 --split=none "${flush[@]}" --shard=optimizer
build single
for folder in single replicas; do
  cp -r "$WORK/c-whole" "$WORK/c-$folder"
  train single $folder-w --dir "$WORK/$folder" --steps 6 --seed 3 --checkpoint-dir "$WORK/c-$folder" --resume
  tensors whole-w $folder-w || fail "$folder has read other weights than the team has written"
done
train single replicas-more --dir "$WORK/replicas" --steps 8 --seed 3 --checkpoint-dir "$WORK/c-replicas" --resume
train whole shards-read --dir "$WORK/shards" --steps 8 --seed 3 --checkpoint-dir "$WORK/c-replicas" --resume
tensors replicas-more shards-read || fail "the team has read other weights than replicas have written"
tensors whole-w shards-read >/dev/null && fail "the comparison notices nothing"
echo "any split and number of replicas reads them"

# Stages that differ: the first has replicas of teams with shards, the second neither. (Other networks have one parameter in both.)
if [ -z "$network" ]; then
  mixed=(--split="${split%,all},none" --replicas=2,1 "${flush[@]}")
  generate mixed-whole "${mixed[@]}"
  generate mixed-shards "${mixed[@]}" --shard=optimizer,none
  build mixed-whole
  for folder in mixed-whole mixed-shards; do train mixed-whole $folder-w --dir "$WORK/$folder" --steps 6 --seed 3; done
  same mixed-whole-w mixed-shards-w
  as_predicted mixed-shards-w
  echo "beside a stage without a team: the bits of whole ones"
fi

# Units whose weights lie in shards.
units=(--split="$split" --schedule=bfs:2 --replicas=2,2 --microbatches=4 --clip-norm=0.5)
generate units-whole "${units[@]}"
generate units-shards "${units[@]}" --shard=weights
build units-whole
for folder in units-whole units-shards; do
  train units-whole $folder-w --dir "$WORK/$folder" --steps 6 --seed 3
done
same units-whole-w units-shards-w
as_predicted units-shards-w
train units-whole units-first --dir "$WORK/units-shards" --steps 2 --seed 3 --checkpoint-dir "$WORK/c-units"
train units-whole units-resumed --dir "$WORK/units-whole" --steps 6 --seed 3 --checkpoint-dir "$WORK/c-units" --resume
same units-resumed units-whole-w
echo "weights: the bits of whole ones, in the predicted arenas"
