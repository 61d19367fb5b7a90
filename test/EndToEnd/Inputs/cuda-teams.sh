#!/usr/bin/env bash
# cuda-teams.sh [NETWORK SPLIT [LOSS]]: a network of hand_made.py (one whose words are tied, tp:2,all) over two stages with teams of two, for
# CPUs and for CUDA, whose program runs on the stand-in (test/stand-in).
set -euo pipefail
rm -rf "$WORK"
mkdir -p "$WORK"
"$PYTHON" "$SOURCE/utils/models/hand_made.py" "${1:-tied}" "$WORK"
. "$SOURCE/test/EndToEnd/Inputs/common.sh"
model="$WORK/model.onnx" loss=${3:-} lr=0.05 split=${2:-tp:2,all}

run() { train "$1" "$2" --steps 4 --seed 7 --metrics "$WORK/$2.jsonl" "${@:3}"; }
plan() { generate "$1" --devices=4 --replicas=1,1 --split="$split" --microbatches=4 "${@:2}"; }

plan cpu --schedule=zb-h1
build cpu
run cpu cpu-weights
plan cuda --target=cuda --schedule=zb-h1
on_stand_in cuda
PDC_STAND_IN_SEED=1 run cuda cuda-weights
python3 "$SOURCE/test/EndToEnd/Inputs/close_runs.py" "$WORK/cpu-weights" "$WORK/cuda-weights" 1e-4
echo "teams of 2: losses and weights of both targets agree"

for schedule in zb-h1 gpipe; do
  plan "cuda-$schedule" --target=cuda --schedule=$schedule
  for seed in 1 2 3; do
    PDC_STAND_IN_DEVICES=4 PDC_STAND_IN_SEED=$seed run cuda "nccl-$schedule-$seed" --dir "$WORK/cuda-$schedule" --transport=nccl
    same cuda-weights "nccl-$schedule-$seed"
  done
  echo "teams of 2, $schedule: over NCCL no bit is another"
done

PDC_STAND_IN_DEVICES=4 run cuda cuda-host --transport=host
same cuda-weights cuda-host
echo "teams of 2: through memory of the host no bit is another"

result() { grep "^test loss" "$WORK/$1.log" || fail "$1 says nothing of its evaluation"; }
run cuda eval-threads --eval "$WORK/data"
PDC_STAND_IN_DEVICES=4 run cuda eval-nccl --eval "$WORK/data" --transport=nccl
[ "$(result eval-threads)" = "$(result eval-nccl)" ] || fail "$(result eval-threads), over NCCL $(result eval-nccl)"
echo "teams of 2: an evaluation over NCCL is that of threads"

PDC_STAND_IN_DEVICES=4 run cuda other --lr 0.051 --transport=nccl
diff -r "$WORK/cuda-weights" "$WORK/other" >/dev/null && fail "another learning rate is not noticed"
echo "another learning rate is noticed"

code=0
PDC_STAND_IN_DEVICES=3 "$WORK/cuda/out/pipeline" --threads --data "$WORK/data" --steps 1 --transport=nccl >"$WORK/refused.log" 2>&1 || code=$?
[ "$code" = 2 ] && grep -q "ranks 0 and 3 have the same GPU" "$WORK/refused.log" || fail "code $code, $(cat "$WORK/refused.log")"
echo "NCCL is refused where members share a GPU"
