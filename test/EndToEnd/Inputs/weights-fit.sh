#!/usr/bin/env bash
# Two devices with less memory than two whole replicas need: --shard=auto divides the weights, and trains the bits that
# whole replicas train where there is room for them.
set -euo pipefail
rm -rf "$WORK"
. "$SOURCE/test/EndToEnd/Inputs/common.sh"
model=$WORK/blocks.onnx
optimizer=adam,lr=0.001
"$PYTHON" "$SOURCE/test/EndToEnd/Inputs/gated_blocks.py" "$model"
replicas=$(printf "2%.0s," {1..12})
flags="--schedule=bfs:12 --replicas=${replicas%,} --microbatches=12"

generate whole $flags
generate shards $flags --shard=weights
limit=$((($(arena whole) + 2 * $(arena shards)) / 3))
cat >"$WORK/cluster.json" <<END
{"levels": [{"name": "link", "count": 2, "bandwidth_bytes_per_s": 1e9, "latency_s": 1e-5}],
 "device": {"name": "cpu", "memory_bytes": $limit, "reserved_bytes": 0}}
END
for shard in none optimizer; do
  code=0
  "$BUILD/bin/pdc" "$model" -o "$WORK/refused" --batch=4 --profile=analytic --loss=softmax-cross-entropy --optimizer=$optimizer $flags \
    --cluster="$WORK/cluster.json" --shard=$shard >"$WORK/refused.log" 2>&1 || code=$?
  grep -q 'no plan fits\|rank 0 needs [0-9]* bytes, the device has' "$WORK/refused.log" || fail "$(cat "$WORK/refused.log")"
  echo "--shard=$shard: exit $code"
done
generate fits $flags --cluster="$WORK/cluster.json" --shard=auto
[ "$(arena fits)" -le $limit ] || fail "the arena has $(arena fits) bytes, the limit is $limit"
build whole
for folder in whole fits; do train whole $folder-w --dir "$WORK/$folder" --steps 5 --seed 3; done
same whole-w fits-w
awk -v limit=$limit '$1 ~ /^[0-9.]+$/ && NF > 6 { if ($6 > limit) print "allocated " $6; else all++ } END { print all " arenas within the limit" }' "$WORK/fits-w.log"
echo "--shard=auto: the bits of whole replicas, within $((100 * limit / $(arena whole))) % of their memory"
