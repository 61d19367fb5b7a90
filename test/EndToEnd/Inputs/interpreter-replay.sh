#!/usr/bin/env bash
set -euo pipefail
. "$SOURCE/test/EndToEnd/Inputs/common.sh"
"$BUILD/bin/pdc" "$SOURCE/examples/digits/digits.onnx" --batch=4 --loss=softmax-cross-entropy --emit=training-ir >"$WORK/training.pdir"
for stages in 1-1-1-1 2-1 3-2; do
  compile "plan-$stages" $stages
  train "plan-$stages" "weights-$stages" --steps 47 --seed 2
  echo "plan $stages: $("$BUILD/bin/InterpreterReplay" "$WORK/plan-$stages" "$WORK/training.pdir" "$WORK/data" "$WORK/weights-$stages" 47 2)"
done
sed -i 's/"lr": 0.01/"lr": 0.0101/' "$WORK/plan-2-1/training.json"
"$BUILD/bin/InterpreterReplay" "$WORK/plan-2-1" "$WORK/training.pdir" "$WORK/data" "$WORK/weights-2-1" 47 2 && fail "notices nothing"
echo "notices another learning rate"
