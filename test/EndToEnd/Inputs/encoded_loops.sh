#!/usr/bin/env bash
# encoded_loops.sh SCHEDULE: a network with values that several stages read, in four stages on two ranks, with and without encoded edges:
# bits over threads and MPI, bytes, losses.
set -euo pipefail
rm -rf "$WORK"
"$PYTHON" "$SOURCE/utils/models/hand_made.py" skips "$WORK"
. "$SOURCE/test/EndToEnd/Inputs/common.sh"
loss="" model=$WORK/model.onnx
flags=(--devices=2 --straight --schedule="$1" --microbatches=4)
generate exact "${flags[@]}"
generate int8 "${flags[@]}" --edge-codec=int8,columns=3
build exact
build int8
# run FOLDER NAME LAUNCH…
run() {
  local folder=$1 name=$2
  shift 2
  "$@" --dir "$WORK/$folder" --data "$WORK/data" --steps 8 --seed 3 --metrics "$WORK/$name.jsonl" --export-weights "$WORK/$name" \
    >"$WORK/$name.log" 2>&1 || { cat "$WORK/$name.log" >&2; fail "$name does not run"; }
}
run exact exact "$WORK/exact/out/pipeline" --threads
run int8 threads "$WORK/int8/out/pipeline" --threads
run int8 mpi mpirun --oversubscribe -n 2 "$WORK/int8/out/pipeline"
python3 "$SOURCE/test/EndToEnd/Inputs/encoded_loops.py" "$WORK/int8/plan.json" "$WORK/threads.log" 8
python3 "$SOURCE/test/EndToEnd/Inputs/encoded_edges.py" losses "$WORK/threads.jsonl" "$WORK/mpi.jsonl" 0
python3 "$SOURCE/test/EndToEnd/Inputs/same_tensors.py" "$WORK/threads" "$WORK/mpi" || fail "threads and MPI have other weights"
python3 "$SOURCE/test/EndToEnd/Inputs/encoded_edges.py" losses "$WORK/exact.jsonl" "$WORK/threads.jsonl" 1e-2
