#!/usr/bin/env bash
# Attention in bf16 on the stand-in for CUDA (test/stand-in), plain and fused: what a profile measures, programs with it, refusals.
set -euo pipefail
rm -rf "$WORK"
mkdir -p "$WORK"
"$PYTHON" "$SOURCE/utils/models/hand_made.py" with-attention "$WORK"
. "$SOURCE/test/EndToEnd/Inputs/common.sh"
model="$WORK/model.onnx" loss= lr=0.05

profile_on_stand_in --precision=bf16
python3 - "$WORK/profile.json" <<'EOF'
import json, sys
times = {(time["kernel"], time["method"], time["algorithm"]): (round(1e3 * time["ms"]), time.get("workspace_bytes", 0))
         for time in json.load(open(sys.argv[1]))["kernels"] if time["kernel"].startswith("Attention")}
sizes = ".batch = 4, .heads = 2, .groups = 2, .queries = 8, .keys = 8, .size = 8, .valueSize = 8"
expected = {}
for causal, gradient in (("", 4), (", .causal = true", 9)):
    name = f"Attention{{{sizes}{causal}, .element = pdcrt::Element::bf16}}"
    for method, algorithm, time in (("forward", "plain", (3, 0)), ("forward", "fused", (2, 4096)), ("inputGradient", "plain", (6, 0)),
                                    ("inputGradient", "fused", (gradient, 12288))):
        expected[name, method, algorithm] = time
assert times == expected, times
print("the profile has both algorithms of two kernels, with their workspace")
EOF

"$BUILD/bin/pdc" "$model" -o "$WORK/measured" --target=cuda --batch=4 --precision=bf16 --profile="$WORK/profile.json" \
  --optimizer=momentum,lr=0.05,momentum=0.9,weight_decay=0.001 --replicas=1 >"$WORK/measured.log" 2>&1 || fail "$(cat "$WORK/measured.log")"
generate plain --target=cuda --precision=bf16 --replicas=1
grep -q Algorithm "$WORK/plain/stage0.cu" && fail "algorithms without a measurement"
text=$(tr -s ' \n' ' ' <"$WORK/measured/stage0.cu")
forward=".algorithms = {.forward = pdcrt::Attention::Algorithm::fused, .inputGradient = pdcrt::Attention::Algorithm"
grep -q ".element = pdcrt::Element::bf16, $forward::fused, .workspace = 12288}" <<<"$text" || fail "$text"
grep -q ".causal = true, .element = pdcrt::Element::bf16, $forward::plain, .workspace = 4096}" <<<"$text" || fail "causal: $text"
grep -q ".bias = true, .element = pdcrt::Element::bf16, .*.algorithms = {.weightGradient = pdcrt::Linear::Algorithm::firstWithSums}" <<<"$text" ||
  fail "sums of a linear layer: $text"
echo "the fastest are in the program, with their workspace"

for program in plain measured; do
  on_stand_in $program
  train $program $program-weights --steps 8 --seed 7 --metrics "$WORK/$program-weights.jsonl"
done
PDC_STAND_IN_SEED=3 train measured again --steps 8 --seed 7 --graphs off
same measured-weights again
python3 "$SOURCE/test/EndToEnd/Inputs/close_runs.py" "$WORK/plain-weights" "$WORK/measured-weights" 1e-2
python3 "$SOURCE/test/EndToEnd/Inputs/close_runs.py" "$WORK/plain-weights" "$WORK/measured-weights" 0 >/dev/null 2>&1 &&
  fail "nothing was fused"
echo "fused attention trains as the plain one does, with the same bits in every run"
"$WORK/plain/out/pipeline" --threads --data "$WORK/data" --seed 7 --steps 8 --export-weights "$WORK/timed" --time-algorithms >"$WORK/timed.log" 2>&1 ||
  fail "$(cat "$WORK/timed.log")"
same measured-weights timed
echo "so does a program that times both when it starts"

# refuses WHAT TEXT FLAGS…
refuses() {
  "$BUILD/bin/pdc" "$model" --target=cuda --batch=4 --precision=bf16 --emit=plan "${@:3}" >"$WORK/refused.log" 2>&1 && fail "$1 is taken"
  grep -q "$2" "$WORK/refused.log" || fail "$1: $(cat "$WORK/refused.log")"
}
sed 's/"fused"/"winograd"/' "$WORK/profile.json" >"$WORK/unknown.json"
refuses "an algorithm of others" "error: 'winograd' cannot compute 'forward' of the kernel Attention{.* for CUDA; known: plain, fused" --profile="$WORK/unknown.json"
sed 's/Attention{.batch = 4,/Attention{.batch = 5,/' "$WORK/profile.json" >"$WORK/kernel.json"
refuses "another kernel" "error: the model does not call 'forward' of the kernel Attention{.batch = 5" --profile="$WORK/kernel.json"
echo "tables that do not fit are refused"
