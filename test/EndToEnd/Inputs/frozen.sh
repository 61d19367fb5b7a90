#!/usr/bin/env bash
# A language model with tied embeddings is fine-tuned with Adam over four stages under 1f1b: all is frozen but two layer norms. Each
# stage has one copy of the frozen parameters that it uses.
set -euo pipefail
rm -rf "$WORK"
"$PYTHON" "$SOURCE/utils/models/hand_made.py" bytes "$WORK"
. "$SOURCE/test/EndToEnd/Inputs/common.sh"
model=$WORK/model.onnx
optimizer=adam,lr=0.01 generate tuned --replicas=1,1,1,1 \
  --freeze='^(wte|wpe|block0|block1[.](q|k|v|project|up|down|norm2)[.])' ${FLAGS:-}
build tuned
train tuned weights --steps 20 --seed 3
"$PYTHON" "$SOURCE/test/EndToEnd/Inputs/frozen_once.py" "$WORK/tuned" "$WORK/weights" ||
  fail "the arenas are not what the formula gives"
"$PYTHON" "$SOURCE/test/EndToEnd/Inputs/frozen_are_kept.py" "$model" "$WORK/weights"
