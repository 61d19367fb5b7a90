#!/usr/bin/env bash
# A schedule from a file is the one that runs: edited by hand, or as PyTorch's CSV in another order, the same programs train
# the same bits, because all of them flush; edited into a mistake, it is refused by pdc and by the program.
set -euo pipefail
rm -rf "$WORK"
. "$SOURCE/test/EndToEnd/Inputs/common.sh"

compile flush 1-1 --schedule=1f1b-flush --microbatches=4 --recompute=none
run() { train flush "weights-$1" --dir "$WORK/$1" --steps 6 --seed 3; }
run flush

# The last stage posts its next receive before it sends a gradient.
sed -E 's/(1B[0-9]+) (1SB[0-9]+>0) (1RF[0-9]+<0)/\1 \3 \2/' "$WORK/flush/schedule.txt" >"$WORK/edited.schedule"
cmp -s "$WORK/flush/schedule.txt" "$WORK/edited.schedule" && fail "nothing was edited"
generate edited --schedule="$WORK/edited.schedule" --recompute=none
cmp "$WORK/edited/schedule.txt" "$WORK/edited.schedule"
run edited
same weights-flush weights-edited
echo "an edited schedule: the same bits"

# All forwards first, then all backwards.
printf '0F0,0F1,0F2,0F3,0B0,0B1,0B2,0B3\n,1F0,1F1,1F2,1F3,1B0,1B1,1B2,1B3\n' >"$WORK/order.csv"
generate csv --schedule="$WORK/order.csv" --recompute=none
grep -q '"schedule_file": "order.csv"' "$WORK/csv/plan.json"
run csv
same weights-flush weights-csv
echo "PyTorch's CSV: the same bits"

# The last stage sends a gradient before it has it.
sed 's/1B5 1SB5>0/1SB5>0 1B5/' "$WORK/flush/schedule.txt" >"$WORK/wrong.schedule"
if "$BUILD/bin/pdc" "$SOURCE/examples/digits/digits.onnx" -o "$WORK/wrong" --batch=4 --profile=analytic \
  --loss=softmax-cross-entropy --schedule="$WORK/wrong.schedule"; then fail "pdc took a wrong schedule"; fi
cp "$WORK/wrong.schedule" "$WORK/edited/schedule.txt"
code=0
"$WORK/flush/out/pipeline" --threads --data "$WORK/data" --dir "$WORK/edited" --steps 6 || code=$?
echo "the program ends with $code"
