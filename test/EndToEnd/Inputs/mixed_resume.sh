#!/usr/bin/env bash
# mixed_resume.sh NETWORK CUT REPLICAS SPLITS: stages of a network of utils/models/hand_made.py that begin at the groups CUT, with these
# replicas and splits, train through pdc-run with Adam and the norm of all gradients clipped; the ONNX file is whole, and near that of the
# undivided program, and so is every evaluation. Checkpoints go from the teams to one process and back, bit for bit. $LOSS: the flag of a network that has logits.
set -euo pipefail
network=$1 cut=$2 replicas=$3 splits=$4
rm -rf "$WORK"
"$PYTHON" "$SOURCE/utils/models/hand_made.py" "$network" "$WORK"
. "$SOURCE/test/EndToEnd/Inputs/common.sh"
model=$WORK/model.onnx loss=${LOSS:-} optimizer=adam,lr=0.001
update=(--schedule=1f1b-flush --microbatches=4 --clip-norm=0.5)
generate whole --devices=1 "${update[@]}"
python3 "$SOURCE/test/EndToEnd/Inputs/cut_plan.py" "$WORK/whole/plan.json" "$WORK/plan.json" "$cut" 1f1b-flush 4 "replicas=$replicas"
generate team --plan="$WORK/plan.json" --split="$splits" "${update[@]}"
. "$SOURCE/test/EndToEnd/Inputs/team_resume.sh"

for folder in whole team; do
  run $folder 4 evaluated-$folder --eval "$WORK/data" --eval-every 2
done
python3 - "$WORK" <<'PYTHON'
import json, sys

whole, team = ([json.loads(line)["test_loss"] for line in open(f"{sys.argv[1]}/evaluated-{folder}.jsonl") if "test_loss" in line]
               for folder in ("whole", "team"))
if len(whole) < 2 or any(abs(a - b) > 1e-5 * a for a, b in zip(whole, team, strict=True)):
    sys.exit(f"evaluations differ: {whole} and {team}")
print(len(whole), "evaluations agree")
PYTHON
