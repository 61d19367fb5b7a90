#!/usr/bin/env bash
# Replicas that keep their weights in shards (--shard=weights) train the bits of those that do not: over threads, MPI and
# TCP, with 2, 3 and 4 replicas, and 4 in groups of 2, with Adam and clipping; their arenas are what pdc says; they evaluate alike; and a run
# goes on from their checkpoints with other replicas, and with other shards or none.
set -euo pipefail
rm -rf "$WORK"
. "$SOURCE/test/EndToEnd/Inputs/common.sh"
model=$WORK/blocks.onnx
optimizer=adam,lr=0.001
"$PYTHON" "$SOURCE/test/EndToEnd/Inputs/gated_blocks.py" "$model"
# of_units FOLDER REPLICAS FLAGS…: 12 units on each rank.
of_units() {
  local folder=$1 replicas
  replicas=$(printf "$2%.0s," {1..12})
  shift 2
  generate "$folder" --schedule=bfs:12 --replicas="${replicas%,}" --microbatches=12 --clip-norm=0.5 "$@"
}

for replicas in 2 3 4; do
  for shard in none weights; do of_units $shard$replicas $replicas --shard=$shard; done
done
of_units optimizer2 2 --shard=optimizer
of_units groups4 4 --shard=weights:2
build none2
for folder in none2 weights2 none3 weights3 none4 weights4 groups4 optimizer2; do
  train none2 $folder-w --dir "$WORK/$folder" --steps 5 --seed 3 --eval "$WORK/data"
done
for replicas in 2 3 4; do
  same none$replicas-w weights$replicas-w
  [ "$(grep '^test' "$WORK/none$replicas-w.log")" = "$(grep '^test' "$WORK/weights$replicas-w.log")" ] || fail "they evaluate otherwise"
  echo "$replicas replicas: the bits of whole ones, arena $(python3 -c "print(round(100 * $(arena weights$replicas) / $(arena none$replicas)))") % of theirs"
done
same optimizer2-w weights2-w
same groups4-w none4-w
echo "4 replicas in groups of 2: the bits of whole ones, arena $(python3 -c "print(round(100 * $(arena groups4) / $(arena none4)))") % of theirs"
for folder in weights2 weights3 weights4 groups4; do
  awk '$1 ~ /^[0-9.]+$/ && NF > 6 { if ($5 != $6) print "predicted " $5 ", allocated " $6; else all++ } END { print all " arenas as predicted" }' "$WORK/$folder-w.log"
done
! cmp -s "$WORK/none2-w/stage3.safetensors" "$WORK/none2/weights/stage3.safetensors" || fail "nothing is learned"

train_mpi 2 none2 mpi --dir "$WORK/weights2" --steps 5 --seed 3 --sync-sends
same mpi none2-w
train_tcp 3 none2 tcp --dir "$WORK/weights3" --steps 5 --seed 3
same tcp none3-w
train_tcp 4 none2 tcp-groups --dir "$WORK/groups4" --steps 5 --seed 3
same tcp-groups none4-w
echo "over MPI and TCP too"

# A run that is stopped after 2 of 5 steps goes on with others.
train none2 first --dir "$WORK/weights2" --steps 2 --seed 3 --checkpoint-dir "$WORK/c-weights2"
[ -f "$WORK"/c-weights2/*24/stage3.optimizer.replica1.safetensors ] || fail "the checkpoint is not in shards"
train none2 first-none --dir "$WORK/none2" --steps 2 --seed 3 --checkpoint-dir "$WORK/c-none2"
for other in none2 optimizer2 weights2 weights3 weights4 groups4; do
  for from in weights2 none2; do
    cp -r "$WORK/c-$from" "$WORK/c-$from-$other"
    train none2 resumed-$from-$other --dir "$WORK/$other" --steps 5 --seed 3 --resume --checkpoint-dir "$WORK/c-$from-$other"
  done
  same resumed-weights2-$other resumed-none2-$other
  echo "resumed with $other"
done
for other in none2 optimizer2 weights2; do same resumed-weights2-$other none2-w; done
for of in c-weights2-weights2 c-weights2-none2; do
  "$BUILD/bin/pdc-ckpt" to-onnx "$WORK/$of" --model "$model" -o "$WORK/$of.onnx" >/dev/null
done
cmp "$WORK/c-weights2-weights2.onnx" "$WORK/c-weights2-none2.onnx"
echo "to-onnx writes the same model from both"
# What several units use stays whole in the first of them.
model=$WORK/tied.onnx
"$PYTHON" "$SOURCE/test/EndToEnd/Inputs/gated_blocks.py" "$model" 4 64 192 --tied
for shard in none weights; do
  generate tied-$shard --schedule=bfs:4 --replicas=2,2,2,2 --microbatches=6 --shard=$shard
done
grep remark "$WORK/tied-weights.log"
build tied-none
for shard in none weights; do
  train tied-none tied-$shard-w --dir "$WORK/tied-$shard" --steps 5 --seed 3 --eval "$WORK/data"
done
same tied-none-w tied-weights-w
echo "tied: the bits of whole ones"

model=$WORK/blocks.onnx
train none2 other --dir "$WORK/weights2" --steps 4 --seed 3
diff -r "$WORK/other" "$WORK/none2-w" >/dev/null && fail "the comparison notices nothing"
echo "notices another number of steps"
