#!/usr/bin/env bash
# Law 1 for the example, in 3 and 4 stages, and over MPI.
set -euo pipefail
SCHEDULES="zb-v zb-h1 1f1b-flush gpipe interleaved:2 bfs:2" "$SOURCE/test/EndToEnd/Inputs/law1.sh" digits 3,6 2,4,7
. "$SOURCE/test/EndToEnd/Inputs/common.sh"
# The same with a process for each rank, which has a program of the two stages that it hosts.
build cut-2,4,7 rank0 rank1
rank() { echo "-n 1 $WORK/cut-2,4,7/out/rank$1 --dir $WORK/cut-2,4,7-zb-v --data $WORK/data --export-weights $WORK/weights-rank --steps 20 --seed 5 --sync-sends"; }
# shellcheck disable=SC2046
mpirun --oversubscribe --mca btl_vader_single_copy_mechanism none $(rank 0) : $(rank 1) >"$WORK/rank.log" 2>&1 ||
  { cat "$WORK/rank.log" >&2; fail "rank0 and rank1"; }
python3 "$SOURCE/test/EndToEnd/Inputs/same_tensors.py" "$WORK/weights-uncut" "$WORK/weights-rank" &&
  echo "zb-v over MPI: the bits of the uncut program"
