#!/usr/bin/env bash
# splits.sh NAME…: of networks of utils/models, what a team of 2, 3 and 4 members computes together is what the training graph and
# its evaluation compute, in f64; with every class divided, and with those that pay. With POSITIONS: with positions divided, where they
# can be, and with dropout; with RESIDUALS: with weights divided, and positions between them, with dropout; with EXPERTS: with samples and
# experts divided.
set -euo pipefail
. "$SOURCE/test/EndToEnd/Inputs/common.sh"
ways=(all "") quiet=--no-dropout
[ -z "${POSITIONS:-}" ] || { ways=(sp) quiet=; }
[ -z "${RESIDUALS:-}" ] || { ways=(tps "all tps") quiet=; }
[ -z "${EXPERTS:-}" ] || { ways=(ep) quiet=; }
for name in "$@"; do
  "$PYTHON" "$SOURCE/utils/models/export.py" "$name" "$WORK/$name.onnx" --loss $quiet >/dev/null 2>&1 || fail "PyTorch could not export $name"
  "$BUILD/bin/pdc" "$WORK/$name.onnx" --batch=4 --loss=output:loss --emit=training-ir >"$WORK/$name.pdir" 2>"$WORK/$name.log" ||
    { cat "$WORK/$name.log" >&2; fail "pdc could not compile $name"; }
  for members in 2 3 4; do
    # 1: nothing can be divided by so many, or none of it pays.
    for which in "${ways[@]}"; do
      code=0
      "$BUILD/bin/SplitCheck" "$WORK/$name.pdir" $members $which quiet >"$WORK/$name.out" 2>&1 || code=$?
      if [ $code -ne 0 ] && ! grep -qE '^classes divided: 0$|cannot divide evenly|no input is a sequence|no parameter has a matrix' "$WORK/$name.out"; then
        cat "$WORK/$name.out"
        fail "$name over $members members${which:+, $which} differs"
      fi
      sed "s/^/$name, $members members${which:+, $which}: /" "$WORK/$name.out"
    done
  done
done
