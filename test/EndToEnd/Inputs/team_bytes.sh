#!/usr/bin/env bash
# team_bytes.sh: what plans say that members of a team send, against the formula; and what they have sent, against the plan.
set -euo pipefail
rm -rf "$WORK"
. "$SOURCE/test/EndToEnd/Inputs/common.sh"
bytes() { python3 "$SOURCE/test/EndToEnd/Inputs/team_bytes.py" "$@"; }
loss="--loss=softmax-cross-entropy:logits"
for network in gpt2 bert-base llama; do
  model=$WORK/$network.onnx
  "$PYTHON" "$SOURCE/utils/models/export.py" $network "$model" --no-dropout >/dev/null 2>&1 || fail "$network is not exported"
  for members in 2 4; do
    case $network$members in llama4 | bert-base4) continue ;; esac # two groups of heads; two types
    generate $network-$members --devices=$members --split=tp:$members,all
    bytes formula "$WORK/$network-$members/plan.json" $network $members
  done
done

model=$WORK/gpt2.onnx
for members in 2 4; do
  generate positions-$members --devices=$members --split=sp:$members
  bytes positions "$WORK/positions-$members/plan.json" gpt2 $members
done
# run NAME FLAGS…: five minibatches and an evaluation.
run() {
  generate "$@"
  build "$1"
  "$WORK/$1/out/pipeline" --dir "$WORK/$1" --threads --data synthetic --samples 8 --steps 5 --eval synthetic --eval-every 2 >"$WORK/$1.log" 2>&1 ||
    { cat "$WORK/$1.log" >&2; fail "$1 does not run"; }
  bytes run "$WORK/$1/plan.json" "$WORK/$1.log"
}
run two-stages --devices=4 --replicas=1,1 --split=tp:2,all --recompute=all
run uneven --devices=3 --split=tp:3,all
run residuals --devices=4 --replicas=1,1 --split=tps:2,all --recompute=all
run positions --devices=4 --replicas=1,1 --split=sp:2 --recompute=all
