#!/usr/bin/env bash
# law1.sh NETWORK CUT…: law 1 for a network of utils/models/hand_made.py, or for the example's (`digits`). A CUT names the groups
# at which stages begin (2,5 makes three stages). The stage programs of a cut are compiled once, and run under every flushing
# schedule; every tensor must be that of the uncut program (--devices=1) after 20 updates of 4 microbatches. The last CUT runs
# under all schedules, the others under one. RECOMPUTE=yes: the last one also with stages that compute their forward again.
# With PDC_TEST_ROUNDS: every cut into 1 to 4 stages under all schedules, and every CUT with recomputation. $FLAGS: further
# flags of pdc, that change the training. $LOSS: the flag of a network that has logits. $THREADS: OpenMP threads of every stage. $TEAM: members of the team that FLAGS divides
# each stage over; then the last cut also runs over MPI and TCP, with a process for each member.
set -euo pipefail
network=$1
shift
rm -rf "$WORK"
[ "$network" = digits ] || "$PYTHON" "$SOURCE/utils/models/hand_made.py" "$network" "$WORK"
. "$SOURCE/test/EndToEnd/Inputs/common.sh"
[ "$network" = digits ] || { model=$WORK/model.onnx loss=${LOSS:-}; }
microbatches=4
threads=${THREADS:+--threads-per-stage=$THREADS}
# Schedules that flush; those whose ranks host two stages take an even number of stages.
all_schedules=${SCHEDULES:-zb-h1 1f1b-flush gpipe interleaved:2 zb-v}

tensors() { python3 "$SOURCE/test/EndToEnd/Inputs/same_tensors.py" "$WORK/weights-uncut" "$WORK/$1"; }
losses() { grep -o '"loss": [^,]*' "$WORK/$1.jsonl"; }
compare() {
  diff <(losses weights-uncut) <(losses "$1") >/dev/null || { echo "other losses"; return 1; }
  tensors "$1"
}

members=${TEAM:-1}
generate uncut --devices=$members --schedule=1f1b-flush --microbatches=$microbatches --recompute=none $threads ${FLAGS:-}
build uncut
train uncut weights-uncut --steps 20 --seed 5 --metrics "$WORK/weights-uncut.jsonl"

# try CUT [recompute]: all schedules with the programs of one cut.
try() {
  local cut=$1 name=cut-$1${2:+-$2} schedule
  local commas=${cut//[^,]/}
  for schedule in $schedules; do
    case $schedule in
      interleaved:2 | zb-v | bfs:2) [ "$cut" != - ] && [ $((${#commas} % 2)) = 0 ] || continue ;;
      1f1b-flush) [ "$cut" != - ] || continue ;; # that is the uncut program itself
    esac
    python3 "$SOURCE/test/EndToEnd/Inputs/cut_plan.py" "$WORK/uncut/plan.json" "$WORK/plan.json" "$cut" "$schedule" \
      $microbatches ${2:-}
    generate "$name-$schedule" --plan="$WORK/plan.json" $threads ${FLAGS:-}
    [ -d "$WORK/$name" ] || { cp -r "$WORK/$name-$schedule" "$WORK/$name" && build "$name"; }
    train "$name" "weights-$name-$schedule" --dir "$WORK/$name-$schedule" --steps 20 --seed 5 \
      --metrics "$WORK/weights-$name-$schedule.jsonl"
    compare "weights-$name-$schedule" >"$WORK/compared" ||
      fail "$network cut at $cut${2:+ with $2}, $schedule: $(cat "$WORK/compared")"
    echo "$network cut at $cut${2:+ with $2}, $schedule: the bits of the uncut program, $(cat "$WORK/compared")"
    [ "$members" -gt 1 ] && [ "$cut" = "$last" ] && [ "$schedule" = zb-h1 ] || continue
    for way in mpi tcp; do
      flags=(--dir "$WORK/$name-$schedule" --steps 20 --seed 5 --metrics "$WORK/weights-$way.jsonl")
      [ $way = tcp ] || flags+=(--sync-sends)
      train_$way $(((${#commas} + 2) * members)) "$name" weights-$way "${flags[@]}"
      compare weights-$way >"$WORK/compared" || fail "$network cut at $cut over $way: $(cat "$WORK/compared")"
      echo "$network cut at $cut, $schedule over $way: the bits of the uncut program, $(cat "$WORK/compared")"
    done
  done
}

# Every cut of the uncut plan's groups into 1 to 4 stages.
every_cut() {
  python3 - "$WORK/uncut/plan.json" <<'PYTHON'
import itertools, json, sys
groups = len(json.load(open(sys.argv[1]))["stages"][0]["nodes"])
for borders in range(4):
    for cut in itertools.combinations(range(1, groups), borders):
        print(",".join(map(str, cut)) or "-")
PYTHON
}

last=${!#}
if [ -n "${PDC_TEST_ROUNDS:-}" ]; then
  schedules=$all_schedules
  for cut in $(every_cut); do try "$cut"; done
  for cut in "$@"; do try "$cut" recompute; done
else
  for cut in "$@"; do
    schedules=zb-h1
    [ "$cut" != "$last" ] || schedules=$all_schedules
    try "$cut"
  done
  schedules=zb-h1
  [ "${RECOMPUTE:-no}" = no ] || try "$last" recompute
fi
# Another order of samples, and of random numbers: the comparison must notice.
train uncut weights-other --steps 20 --seed 6 --metrics "$WORK/weights-other.jsonl"
tensors weights-other >/dev/null && fail "the comparison notices nothing"
echo "notices another seed"
if [ -n "${FLAGS:-}" ]; then
  generate plain --devices=1 --schedule=1f1b-flush --microbatches=$microbatches --recompute=none
  program=uncut
  case $FLAGS in *--freeze=* | *--split=* | *--lora=*) build plain && program=plain ;; esac # a program is that of a model
  train $program weights-plain --dir "$WORK/plain" --steps 20 --seed 5
  tensors weights-plain >/dev/null && fail "$FLAGS changes nothing"
  echo "notices $FLAGS"
fi
