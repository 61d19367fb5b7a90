#!/usr/bin/env bash
# resnet18.sh REPLICAS…: ResNet-18 cut as given, against PyTorch.
set -euo pipefail
. "$SOURCE/test/EndToEnd/Inputs/common.sh"
models=$SOURCE/test/models
"$PYTHON" "$models/export.py" resnet18 "$WORK/resnet18.onnx" >/dev/null 2>&1 || fail "PyTorch could not export"
"$PYTHON" "$models/reference.py" resnet18 "$WORK/pytorch" --steps=10 --lr=0.01
for replicas in "$@"; do
  # One step with a learning rate of 1024 shows the first gradient: (w0 - w1) / 1024, rounded as often as the gradient is.
  for lr in 1024 0.01; do
    "$BUILD/bin/pdc" "$WORK/resnet18.onnx" -o "$WORK/run" --replicas="$replicas" --batch=2 --schedule=1f1b-flush --microbatches=2 \
      --profile=analytic --loss=softmax-cross-entropy --optimizer=sgd,lr=$lr >"$WORK/log" 2>&1 || { cat "$WORK/log" >&2; fail pdc; }
    [ $lr = 1024 ] && { cmake -S "$WORK/run" -B "$WORK/build-$replicas" -G Ninja -DCMAKE_PREFIX_PATH="$BUILD" >/dev/null
      cmake --build "$WORK/build-$replicas" >"$WORK/log" 2>&1 || { cat "$WORK/log" >&2; fail "does not build"; }; }
    steps=$([ $lr = 1024 ] && echo 1 || echo 10)
    rm -rf "$WORK/weights-$lr"
    "$WORK/build-$replicas/pipeline" --dir "$WORK/run" --threads --data "$WORK/pytorch/data" --shuffle off --steps "$steps" \
      --metrics "$WORK/metrics.jsonl" --export-weights "$WORK/weights-$lr" >"$WORK/log" 2>&1 || { cat "$WORK/log" >&2; fail run; }
  done
  "$PYTHON" "$SOURCE/test/EndToEnd/Inputs/compare_with_pytorch.py" "$WORK/pytorch" "$WORK/run/weights" "$WORK/weights-1024" 1024 \
    "$WORK/metrics.jsonl" "$replicas"
done
# The same comparison with other samples has to fail.
"$WORK/build-$replicas/pipeline" --dir "$WORK/run" --threads --data "$WORK/pytorch/data" --shuffle on --steps 1 \
  --lr 1024 --export-weights "$WORK/weights-wrong" >/dev/null 2>&1 || fail run
"$PYTHON" "$SOURCE/test/EndToEnd/Inputs/compare_with_pytorch.py" "$WORK/pytorch" "$WORK/run/weights" "$WORK/weights-wrong" 1024 \
  "$WORK/metrics.jsonl" wrong >/dev/null && fail "the comparison notices nothing"
echo "notices the gradient of other samples"
