#!/usr/bin/env bash
# A decoder like Llama of twelve layers, cut into twelve units whose replicas keep their weights in shards: the bits of
# whole replicas, at most 0.6 of their memory, with one microbatch of each replica per update and with eight.
set -euo pipefail
rm -rf "$WORK"
. "$SOURCE/test/EndToEnd/Inputs/common.sh"
model=$WORK/decoder.onnx
loss=--loss=softmax-cross-entropy:logits
optimizer=adamw,lr=0.001
"$PYTHON" - "$SOURCE" "$model" >"$WORK/export.log" 2>&1 <<'END' || { cat "$WORK/export.log" >&2; fail "no export"; }
import sys
sys.path.insert(0, sys.argv[1] + "/utils/models")
import attention
import networks
sizes = dict(words=60, width=192, layers=12, heads=4, groups=2, hidden=512, positions=4)
networks.NETWORKS["llama"] = networks.of_text(attention.Llama, sizes, sizes, (4, 4))
from export import export
export("llama", sys.argv[2])
END
for replicas in 2 4; do
  for each in 1 8; do
    name=$replicas-$each
    for shard in none weights; do
      generate $shard-$name --schedule=bfs:12 --replicas="$(printf "$replicas%.0s," {1..11})$replicas" \
        --microbatches=$((each * replicas)) --recompute=none --shard=$shard
      [ -d "$WORK/none-2-1/out" ] || build none-2-1
      "$WORK/none-2-1/out/pipeline" --threads --dir "$WORK/$shard-$name" --data synthetic --samples 64 --steps 3 --seed 3 \
        --export-weights "$WORK/$shard-$name-w" >"$WORK/$shard-$name.log" 2>&1 || { cat "$WORK/$shard-$name.log" >&2; fail "$shard-$name"; }
    done
    same none-$name-w weights-$name-w
    python3 -c "
share = $(arena weights-$name) / $(arena none-$name)
print(f'$replicas replicas, $each microbatches of each: the bits of whole ones, arena', 'at most 0.6' if share <= 0.6 else f'{share:.3f}', 'of theirs')"
  done
done
