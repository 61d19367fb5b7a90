#!/usr/bin/env bash
# splits_resume.sh: the example, divided over two processes, trains through pdc-run; its ONNX file is whole, and near that of the undivided
# program. Checkpoints go from the team to one process and back, bit for bit.
set -euo pipefail
rm -rf "$WORK"
. "$SOURCE/test/EndToEnd/Inputs/common.sh"
generate whole --devices=1
generate team --devices=2 --split=tp:2,all
. "$SOURCE/test/EndToEnd/Inputs/team_resume.sh"
[ -f "$WORK/weights-team/stage0.member1.safetensors" ] || fail "member 1 has written nothing"
