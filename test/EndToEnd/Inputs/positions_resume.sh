#!/usr/bin/env bash
# positions_resume.sh [NETWORK SPLIT LOSS [OTHER DEVICES]…]: a language model, whose positions two processes divide, or another network of
# hand_made.py and another split over two, trains through pdc-run near the undivided program, each with 2 minibatches per update and clipped
# gradients; two replicas of such a team train near both. Checkpoints go from the team to one process and back, and to teams of each split
# OTHER, bit for bit.
set -euo pipefail
network=${1:-bytes} split=${2:-sp:2}
[ $# -gt 0 ] || set -- bytes sp:2 --loss=softmax-cross-entropy:logits
rm -rf "$WORK"
"$PYTHON" "$SOURCE/utils/models/hand_made.py" "$network" "$WORK"
. "$SOURCE/test/EndToEnd/Inputs/common.sh"
model=$WORK/model.onnx loss=${3:-}
update=(--schedule=1f1b-flush --microbatches=2 --clip-norm=0.5)
generate whole --devices=1 "${update[@]}"
generate team --devices=2 --split="$split" "${update[@]}"
generate replicas --devices=4 --split="$split" --replicas=2 "${update[@]}"
. "$SOURCE/test/EndToEnd/Inputs/team_resume.sh"
run replicas 6 weights-replicas
python3 "$SOURCE/test/EndToEnd/Inputs/close_runs.py" "$WORK/weights-whole" "$WORK/weights-replicas" 1e-4
shift 3
while [ $# -gt 0 ]; do
  generate other --devices="$2" --split="$1" "${update[@]}"
  run other 10 weights-read-by-other --checkpoint-dir "$WORK/of-team" --resume # which goes no step on
  tensors weights-team-10 weights-read-by-other || fail "$1 has read other weights than $split has written"
  echo "a team of $1 reads what one of $split has written"
  rm -r "$WORK/other" "$WORK/weights-read-by-other"
  shift 2
done
