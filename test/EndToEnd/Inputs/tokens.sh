#!/usr/bin/env bash
# tokens.sh: a small GPT-2 (`bytes` of utils/models/hand_made.py) is trained on the bytes of a licence from a .bin file, in 1 and in 3
# stages with the same flushing schedule, as threads and as a process per rank, and from a checkpoint on. Losses and weights must be
# those of the uncut run; these must be those of a folder of .npy files with the same windows.
set -euo pipefail
rm -rf "$WORK"
"$PYTHON" "$SOURCE/utils/models/hand_made.py" bytes "$WORK"
rm -r "$WORK/data" && mkdir "$WORK/data" "$WORK/windows" "$WORK/windows-test"
. "$SOURCE/test/EndToEnd/Inputs/common.sh"
model=$WORK/model.onnx
"$PYTHON" - "$WORK" <<'PYTHON'
import sys
import numpy
work, length = sys.argv[1], 6
text = numpy.fromfile("/usr/share/common-licenses/GPL-3", numpy.uint8).astype(numpy.uint16)
for part, name, tokens in (("train", "windows", text[:30001]), ("val", "windows-test", text[30001:31000])):
    tokens.tofile(f"{work}/data/{part}.bin")
    count = (len(tokens) - 1) // length
    for file, shift in (("input", 0), ("label", 1)):
        windows = tokens[shift:shift + count * length].reshape(count, length)
        numpy.save(f"{work}/{name}/{file}.npy", windows.astype(numpy.int64))
PYTHON
grep -q "GNU GENERAL PUBLIC LICENSE" <(tr -d '\0' <"$WORK/data/train.bin") || fail "the stream is no text"

generate uncut --devices=1 --schedule=1f1b-flush --microbatches=4
python3 "$SOURCE/test/EndToEnd/Inputs/cut_plan.py" "$WORK/uncut/plan.json" "$WORK/plan.json" 5,11 1f1b-flush 4
generate cut --plan="$WORK/plan.json"
build uncut
build cut stage0 stage1 stage2

# run FOLDER EXPORT FLAGS…: 20 updates with an evaluation in between and at the end.
run() {
  local folder=$1 export=$2
  shift 2
  "$WORK/$folder/out/pipeline" --threads --steps 20 --eval-every 10 --export-weights "$WORK/$export" --metrics "$WORK/$export.jsonl" \
    "$@" >"$WORK/$export.log" 2>&1 || { cat "$WORK/$export.log" >&2; fail "$folder $*"; }
}
stream=(--data "$WORK/data/train.bin" --eval "$WORK/data/val.bin" --seed 5)
numbers() { grep -oE '"(loss|test_loss|accuracy)": [^,}]*' "$WORK/$1.jsonl"; }
tensors() { python3 "$SOURCE/test/EndToEnd/Inputs/same_tensors.py" "$WORK/$1" "$WORK/$2" >/dev/null; }
same_run() {
  diff <(numbers "$1") <(numbers "$2") >/dev/null || fail "the losses of $1 and $2 differ"
  tensors "$1" "$2" || fail "the weights of $1 and $2 differ"
}

run uncut one "${stream[@]}"
[ "$(numbers one | wc -l)" = 24 ] || fail "not 20 losses and two evaluations: $(numbers one | wc -l)"
run cut three "${stream[@]}"
same_run one three
echo "1 and 3 stages: the same losses and weights"
run uncut folder --data "$WORK/windows" --eval "$WORK/windows-test" --seed 5
same_run one folder
echo "windows in a folder of .npy files: the same losses and weights"

rank() { echo "-n 1 $WORK/cut/out/stage$1 --data $WORK/data/train.bin --steps 20 --seed 5 --export-weights $WORK/ranks"; }
# shellcheck disable=SC2046
mpirun --oversubscribe --mca btl_vader_single_copy_mechanism none $(rank 0) : $(rank 1) : $(rank 2) >"$WORK/ranks.log" 2>&1 ||
  { cat "$WORK/ranks.log" >&2; fail "a process per rank"; }
tensors one ranks || fail "a process per rank: other weights"
echo "a process per rank: the same weights"

"$WORK/cut/out/pipeline" --threads --data "$WORK/data/train.bin" --seed 5 --steps 7 --checkpoint-dir "$WORK/checkpoints" \
  >"$WORK/half.log" 2>&1 || fail "the first half"
run uncut resumed "${stream[@]}" --checkpoint-dir "$WORK/checkpoints" --resume
tensors one resumed || fail "after a resumption: other weights"
echo "from a checkpoint on: the same weights"

for other in "--seed 6" "--label-shift 0" "--shuffle off"; do
  # shellcheck disable=SC2086
  run uncut other --data "$WORK/data/train.bin" --eval "$WORK/data/val.bin" $([ "${other%% *}" = --seed ] || echo --seed 5) $other
  tensors one other && fail "the comparison does not notice $other"
done
echo "notices another seed, other labels, another order"
