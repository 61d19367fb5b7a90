#!/usr/bin/env bash
# The same model for CPUs and for CUDA, whose program runs on the stand-in (test/stand-in). PDC_STAND_IN_SEED draws the order in
# which streams go on.
set -euo pipefail
rm -rf "$WORK"
. "$SOURCE/test/EndToEnd/Inputs/common.sh"

close() { python3 "$SOURCE/test/EndToEnd/Inputs/close_runs.py" "$WORK/$1" "$WORK/$2" 1e-4; }
run() { train "$1" "$2" --steps 4 --seed 7 --metrics "$WORK/$2.jsonl" "${@:3}"; }

generate cpu --replicas=1
build cpu
run cpu cpu-weights
generate cuda --target=cuda --replicas=1
on_stand_in cuda
run cuda cuda-weights
close cpu-weights cuda-weights
echo "one stage: losses and weights of both targets agree"

run cuda cuda-other --lr 0.011
close cpu-weights cuda-other >/dev/null && fail "another learning rate is not noticed"
echo "another learning rate is noticed"
grep -q "^beside its arenas a GPU holds 25[6-9].* MiB" "$WORK/cuda-weights.log" || fail "$(cat "$WORK/cuda-weights.log")"
echo "what the GPU holds beside the arenas is told"

PDC_STAND_IN_RANGES="$WORK/ranges" run cuda cuda-ranges --graphs off
same cuda-weights cuda-ranges
[ "$(grep -v "^  " "$WORK/ranges" | sort | uniq -c | xargs)" = "4 backward_input 4 backward_weight 4 forward" ] || fail "phases: $(cat "$WORK/ranges")"
grep -A1 -x forward "$WORK/ranges" | grep -q "^  /stem/stem.0/Conv" || fail "nodes: $(cat "$WORK/ranges")"
echo "phases and ONNX nodes are ranges for profilers"

# One plan for both: costs would cut elsewhere on a GPU.
generate cpu-121 --replicas=1,2,1
build cpu-121
run cpu-121 cpu-121-weights
generate cuda-121 --target=cuda --plan="$WORK/cpu-121/plan.json"
on_stand_in cuda-121 replay
PDC_STAND_IN_SEED=1 run cuda-121 cuda-121-weights
close cpu-121-weights cuda-121-weights
echo "plan 1-2-1: losses and weights of both targets agree"
for seed in 2; do
  PDC_STAND_IN_SEED=$seed run cuda-121 "cuda-121-$seed"
  same cuda-121-weights "cuda-121-$seed"
done
echo "plan 1-2-1: another order of streams changes no bit"
run cuda-121 cuda-121-plain --graphs off
same cuda-121-weights cuda-121-plain
echo "plan 1-2-1: without recorded graphs no bit is another"

train cuda-121 cuda-121-long --steps 23 --seed 7
replay() { "$WORK/cuda-121/out/replay" "$WORK/cuda-121" "$WORK/data" "$WORK/cuda-121-long" 23 7 ${1:-} >"$WORK/replay.log" 2>&1; }
replay || fail "$(cat "$WORK/replay.log")"
replay version && fail "the replay does not notice another version of the weights"
echo "plan 1-2-1: trains the bits of the formulas"

PDC_STAND_IN_SEED=3 train_mpi 4 cuda-121 cuda-121-mpi --steps 4 --seed 7 --sync-sends
same cuda-121-weights cuda-121-mpi
echo "plan 1-2-1: processes that send through memory of the host train the same bits"

PDC_STAND_IN_DEVICES=4 run cuda-121 cuda-121-nccl --transport=nccl
same cuda-121-weights cuda-121-nccl
echo "plan 1-2-1: over NCCL, with a device for each rank, no bit is another"

# refuses CODE TEXT PROGRAM FLAGS…
refuses() {
  local code=0
  "$WORK/$3/out/pipeline" --threads --data "$WORK/data" --steps 1 "${@:4}" >"$WORK/refused.log" 2>&1 || code=$?
  [ "$code" = "$1" ] && grep -q "$2" "$WORK/refused.log" || fail "code $code instead of $1, $(cat "$WORK/refused.log")"
}
PDC_STAND_IN_DEVICES=2 refuses 2 "ranks 0 and 2 have the same GPU" cuda-121 --transport=nccl
refuses 2 "transport is for GPUs, this program was compiled for cpu" cpu --transport=nccl
refuses 2 "time-algorithms is for GPUs, this program was compiled for cpu" cpu --time-algorithms
echo "NCCL is refused where ranks share a GPU, and by programs for CPUs"

code=0
PDC_STAND_IN_DEVICES=0 "$WORK/cuda/out/pipeline" --threads --data "$WORK/data" --steps 1 2>"$WORK/none.log" || code=$?
[ "$code" = 69 ] && grep -q "no CUDA device" "$WORK/none.log" || fail "without a device: code $code, $(cat "$WORK/none.log")"
echo "without a device it says so, and exits with 69"
