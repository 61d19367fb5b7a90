#!/usr/bin/env bash
# Models for CUDA in f32, bf16 and f16, run on the stand-in for CUDA (test/stand-in).
set -euo pipefail
rm -rf "$WORK"
mkdir -p "$WORK"
# Smooth, with an embedding that is the classifier too: what one bit more or less changes does not grow.
"$PYTHON" "$SOURCE/utils/models/hand_made.py" tied "$WORK"
. "$SOURCE/test/EndToEnd/Inputs/common.sh"
model="$WORK/model.onnx" loss= lr=0.05

# run PROGRAM FLAGS…: trains, its weights and losses under the program's name.
run() { train "$1" "$1-weights" --seed 7 --metrics "$WORK/$1-weights.jsonl" "${@:2}"; }
close() { python3 "$SOURCE/test/EndToEnd/Inputs/close_runs.py" "$WORK/$1-weights" "$WORK/$2-weights" "$3"; }

generate f32 --target=cuda --replicas=1
on_stand_in f32
run f32 --steps 8
for precision in bf16 f16; do
  scale=$([ $precision = f16 ] && echo --loss-scale=1024 || true)
  generate $precision --target=cuda --replicas=1 --precision=$precision $scale
  on_stand_in $precision
  run $precision --steps 8
  close f32 $precision 1e-2
  close f32 $precision 1e-5 >/dev/null 2>&1 && fail "nothing was rounded to $precision"
  echo "$precision: losses and weights are close to those of f32, and not the same"
done

# Norms give bf16 to products and get it back, cross-entropy reads it.
rm -r "$WORK/data"
"$PYTHON" "$SOURCE/utils/models/hand_made.py" words "$WORK"
generate words-f32 --target=cuda --replicas=1
on_stand_in words-f32
run words-f32 --steps 8
generate words-bf16 --target=cuda --replicas=1 --precision=bf16
tr -s ' \n' ' ' <"$WORK/words-bf16/stage0.cu" | grep -Eq -- '-> bf16\[[^]]*\] k\.layerNorm_[0-9]+\.forward' || fail "no LayerNorm in bf16"
for kernel in SoftmaxCrossEntropy; do
  tr -s ' \n' ' ' <"$WORK/words-bf16/stage0.cu" | grep -Eiq "$kernel"'_[0-9]+\(setup[^)]*\), \{[^}]*element = pdcrt::Element::bf16\}' || fail "no $kernel in bf16"
done
on_stand_in words-bf16
run words-bf16 --steps 8
close words-f32 words-bf16 1e-2
close words-f32 words-bf16 1e-5 >/dev/null 2>&1 && fail "nothing was rounded around norms"
echo "bf16: norms and losses that give and read it train close to f32"

# Convolutions. What is cut are tensors of bf16, and the backward of each stage converts its own weights again.
model="$SOURCE/examples/digits/digits.onnx" loss=--loss=softmax-cross-entropy lr=0.01
rm -r "$WORK/data"
python3 "$SOURCE/test/EndToEnd/Inputs/make_data.py" "$WORK/data" 64
for stages in 1 1,1; do
  generate "stages-$stages" --target=cuda --replicas=$stages --precision=bf16 --schedule=1f1b-flush --microbatches=2
  on_stand_in "stages-$stages"
  PDC_STAND_IN_SEED=3 run "stages-$stages" --steps 4
done
grep -A3 "PortRow ports" "$WORK/stages-1,1/stage0.cu" | grep -q "Element::bf16" || fail "nothing of bf16 leaves stage 0"
close stages-1 stages-1,1 0
echo "bf16: two stages train the bits of one"
