#!/usr/bin/env bash
# positions_resume.sh: a language model, whose positions two processes divide, trains through pdc-run near the undivided program, each with
# 2 minibatches per update and clipped gradients; two replicas of such a team train near both. Checkpoints go from the team to one process
# and back, bit for bit.
set -euo pipefail
rm -rf "$WORK"
"$PYTHON" "$SOURCE/utils/models/hand_made.py" bytes "$WORK"
. "$SOURCE/test/EndToEnd/Inputs/common.sh"
model=$WORK/model.onnx loss=--loss=softmax-cross-entropy:logits
update=(--schedule=1f1b-flush --microbatches=2 --clip-norm=0.5)
generate whole --devices=1 "${update[@]}"
generate team --devices=2 --split=sp:2 "${update[@]}"
generate replicas --devices=4 --split=sp:2 --replicas=2 "${update[@]}"
. "$SOURCE/test/EndToEnd/Inputs/team_resume.sh"
run replicas 6 weights-replicas
python3 "$SOURCE/test/EndToEnd/Inputs/close_runs.py" "$WORK/weights-whole" "$WORK/weights-replicas" 1e-4
