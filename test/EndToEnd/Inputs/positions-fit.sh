#!/usr/bin/env bash
# Devices with less memory than a sequence needs on one of them: a team of two, which divides its positions, trains what
# one device trains where there is room for it.
set -euo pipefail
rm -rf "$WORK"
"$PYTHON" "$SOURCE/utils/models/hand_made.py" bytes "$WORK" 512
. "$SOURCE/test/EndToEnd/Inputs/common.sh"
model=$WORK/model.onnx loss=--loss=softmax-cross-entropy:logits
generate whole --replicas=1
generate team --replicas=1 --split=sp:2
limit=$((($(arena whole) + $(arena team)) / 2))
cat >"$WORK/cluster.json" <<END
{"levels": [{"name": "link", "count": 2, "bandwidth_bytes_per_s": 1e9, "latency_s": 1e-5}],
 "device": {"name": "cpu", "memory_bytes": $limit, "reserved_bytes": 0}}
END
code=0
"$BUILD/bin/pdc" "$model" -o "$WORK/refused" --batch=4 --profile=analytic $loss --replicas=1 --cluster="$WORK/cluster.json" \
  >"$WORK/refused.log" 2>&1 || code=$?
grep -q "no plan fits" "$WORK/refused.log" || fail "$(cat "$WORK/refused.log")"
echo "one device: exit $code"
generate fits --replicas=1 --split=sp:2 --cluster="$WORK/cluster.json"
build whole
build fits
for folder in whole fits; do
  train $folder $folder-w --steps 6 --seed 3 --metrics "$WORK/$folder-w.jsonl" --eval "$WORK/data"
done
grep "^test" "$WORK/whole-w.log" >"$WORK/whole-test"
grep "^test" "$WORK/fits-w.log" | diff - "$WORK/whole-test" || fail "evaluations differ"
awk -v limit=$limit '$1 ~ /^[0-9.:]+$/ && NF > 6 { if ($6 > limit) print "allocated " $6; else all++ } END { print all " arenas within the limit" }' "$WORK/fits-w.log"
python3 "$SOURCE/test/EndToEnd/Inputs/close_runs.py" "$WORK/whole-w" "$WORK/fits-w" 1e-5
echo "a team of two: losses, weights and evaluation of one device, within $((100 * limit / $(arena whole))) % of its memory"
train fits other-w --steps 6 --seed 3 --lr 0.011 --metrics "$WORK/other-w.jsonl"
python3 "$SOURCE/test/EndToEnd/Inputs/close_runs.py" "$WORK/whole-w" "$WORK/other-w" 1e-5 >/dev/null 2>&1 && fail "another learning rate is not noticed"
echo "another learning rate is noticed"
