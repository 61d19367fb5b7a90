#!/usr/bin/env bash
# pdc-profile --target=cuda, whose program runs on the stand-in for CUDA (test/stand-in), and a program that is made with its profile.
set -euo pipefail
rm -rf "$WORK"
. "$SOURCE/test/EndToEnd/Inputs/common.sh"
model="$SOURCE/examples/digits/digits.onnx"

profile_on_stand_in --loss=softmax-cross-entropy
grep -q " 0.004  forward by winograd of Conv2d{.input = {4, " "$WORK/profile.log" || fail "$(cat "$WORK/profile.log")"
grep -q "^beside its arena the GPU holds 2[67][0-9]* bytes, which plans will reserve" "$WORK/profile.log" || fail "$(cat "$WORK/profile.log")"
python3 - "$WORK/profile.json" <<'EOF'
import json, sys
profile = json.load(open(sys.argv[1]))
assert profile["device"] == "stand-in" and profile["source"] == "measured", profile["device"]
times = profile["kernels"]
methods = {(time["kernel"], time["method"]) for time in times}
# Of eight convolutions three have the sizes of others; the first has no input gradient.
print(f"the profile has {len(set(k for k, _ in methods))} kernels, {len(methods)} methods, {len(times)} times")
assert all(time["workspace_bytes"] >= 256 for time in times)
assert not any(time["algorithm"] in ("direct", "gemm", "fft", "tiledFft") for time in times), "what the stand-in lacks, or what wants 1 GiB"
assert any(time["algorithm"] == "channelsLast" for time in times)
EOF

"$BUILD/bin/pdc" "$model" -o "$WORK/measured" --target=cuda --batch=4 --loss=softmax-cross-entropy --profile="$WORK/profile.json" \
  --optimizer=momentum,lr=0.01,momentum=0.9,weight_decay=0.001 --replicas=1,1 >"$WORK/measured.log" 2>&1 || fail "$(cat "$WORK/measured.log")"
# With the same cuts.
generate recommended --target=cuda --plan="$WORK/measured/plan.json"
grep -q Algorithm "$WORK"/recommended/stage*.cu && fail "algorithms without a measurement"
text=$(cat "$WORK"/measured/stage*.cu | tr -s ' \n' ' ')
grep -Eq "Algorithm::(winograd|channelsLast), .inputGradient = pdcrt::Conv2d::Algorithm::winogradApart, .weightGradient = pdcrt::Conv2d::Algorithm::channelsLast, .workspace = [0-9]*}" <<<"$text" || fail "3x3: $text"
grep -q "Algorithm::channelsLast, .inputGradient = pdcrt::Conv2d::Algorithm::implicitGemm, .weightGradient = pdcrt::Conv2d::Algorithm::channelsLast" <<<"$text" || fail "strided: $text"
echo "the fastest are in the program, with their workspace"

"$BUILD/bin/pdc" "$model" --target=cuda --batch=4 --loss=softmax-cross-entropy --profile=analytic --emit=plan >"$WORK/analytic.json"
python3 - "$WORK" <<'EOF'
import json, sys
profile, analytic, measured, recommended = (json.load(open(f"{sys.argv[1]}/{name}.json")) for name in
                                            ["profile", "analytic", "measured/plan", "recommended/plan"])
assert analytic["cluster"]["device"]["reserved_bytes"] == 2_000_000_000, analytic["cluster"]
assert measured["cluster"]["device"]["reserved_bytes"] == profile["reserved_bytes"], measured["cluster"]
memory = [(after["memory_bytes"], before["memory_bytes"]) for after, before in zip(measured["stages"], recommended["stages"])]
# Of the stage with the linear layer, that has the largest workspace.
assert all(after <= before for after, before in memory) and any(after < before - 4e6 for after, before in memory), memory
print("plans reserve what the GPU held, and no more workspace than was measured")
EOF

for program in recommended measured; do
  on_stand_in $program
  train $program $program-weights --steps 3 --seed 7
done
same recommended-weights measured-weights
echo "both train the same bits on the stand-in, whose algorithms sum up alike"

"$WORK/recommended/out/pipeline" --threads --data "$WORK/data" --seed 7 --steps 3 --export-weights "$WORK/timed" --time-algorithms >"$WORK/timed.log" 2>&1 ||
  fail "$(cat "$WORK/timed.log")"
same recommended-weights timed
echo "so does one that times them when it starts"

# refuses WHAT TEXT FLAGS…
refuses() {
  "$BUILD/bin/pdc" "$model" --target=cuda --batch=4 --loss=softmax-cross-entropy --emit=plan "${@:3}" >"$WORK/refused.log" 2>&1 && fail "$1 is taken"
  grep -q "$2" "$WORK/refused.log" || fail "$1: $(cat "$WORK/refused.log")"
}
sed 's/"algorithm": "winograd"/"algorithm": "direct"/' "$WORK/profile.json" >"$WORK/direct.json"
refuses "an algorithm of CPUs" "direct.json: error: 'direct' cannot compute 'forward' of the kernel Conv2d{.* for CUDA; known: implicitGemm, " --profile="$WORK/direct.json"
sed 's/Conv2d{.input = {4,/Conv2d{.input = {5,/' "$WORK/profile.json" >"$WORK/kernel.json"
refuses "another kernel" "kernel.json: error: the model does not call 'forward' of the kernel Conv2d{.input = {5," --profile="$WORK/kernel.json"
sed 's/"workspace_bytes": .*/"workspace_bytes": -1/' "$WORK/profile.json" >"$WORK/negative.json"
refuses "less than no workspace" "negative.json:/kernels/0/workspace_bytes: error: expected" --profile="$WORK/negative.json"
echo "tables that do not fit are refused"

# A program that was planned with less workspace than its algorithm needs says so, and does not start.
sed 's/\.workspace = [0-9]*/.workspace = 256/' -i "$WORK"/measured/stage0.cu
on_stand_in measured
"$WORK/measured/out/pipeline" --threads --data "$WORK/data" --steps 1 >"$WORK/small.log" 2>&1 && fail "too little workspace is taken"
grep -q "bytes of workspace on this device, the program was planned with 256; measure on it: pdc-profile" "$WORK/small.log" || fail "$(cat "$WORK/small.log")"
echo "too little workspace is refused"
