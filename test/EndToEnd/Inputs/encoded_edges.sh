#!/usr/bin/env bash
# encoded_edges.sh: a transformer in two stages with and without encoded edges: bits over threads and MPI, bytes, losses.
set -euo pipefail
rm -rf "$WORK"
. "$SOURCE/test/EndToEnd/Inputs/common.sh"
check() { python3 "$SOURCE/test/EndToEnd/Inputs/encoded_edges.py" "$@"; }
loss="--loss=softmax-cross-entropy:logits" model=$WORK/gpt2.onnx
"$PYTHON" "$SOURCE/utils/models/export.py" gpt2 "$model" --no-dropout >/dev/null 2>&1 || fail "gpt2 is not exported"
generate exact --replicas=1,1
generate int8 --replicas=1,1 --edge-codec=int8,columns=3
grep -q "warning: 2 tensors cross between stages as int8" "$WORK/int8.log" || fail "nobody says that edges are encoded"
build exact
build int8
# run FOLDER NAME LAUNCH…
run() {
  local folder=$1 name=$2
  shift 2
  "$@" --dir "$WORK/$folder" --data synthetic --samples 64 --steps 30 --seed 3 --metrics "$WORK/$name.jsonl" --export-weights "$WORK/$name" \
    >"$WORK/$name.log" 2>&1 || { cat "$WORK/$name.log" >&2; fail "$name does not run"; }
}
run exact exact "$WORK/exact/out/pipeline" --threads
run int8 threads "$WORK/int8/out/pipeline" --threads
run int8 mpi mpirun --oversubscribe -n 2 "$WORK/int8/out/pipeline"
check bytes "$WORK/int8/plan.json" "$WORK/threads.log" 30 3
check losses "$WORK/threads.jsonl" "$WORK/mpi.jsonl" 0
python3 "$SOURCE/test/EndToEnd/Inputs/same_tensors.py" "$WORK/threads" "$WORK/mpi" || fail "threads and MPI have other weights"
check losses "$WORK/exact.jsonl" "$WORK/threads.jsonl" 1e-3
