#!/usr/bin/env bash
# Data parallelism in three replicas, with several buckets and with one: the same bits.
set -euo pipefail
rm -rf "$WORK"
. "$SOURCE/test/EndToEnd/Inputs/common.sh"
bucket=16KiB generate many --replicas=3
bucket=1GiB generate one --replicas=3
build many
build one
buckets=$(grep -c "q.bucket" "$WORK/many/stage0.cpp")
[ "$(grep -c "q.bucket" "$WORK/one/stage0.cpp")" = 1 ] || fail "not one bucket"
# Under 1f1b-flush a replica adds one or two minibatches of a batch of 5.
generate flush --replicas=3 --schedule=1f1b-flush --microbatches=5
for schedule in many flush; do
  train many $schedule-many --dir "$WORK/$schedule" --steps 53 --seed 3
  train one $schedule-one --dir "$WORK/$schedule" --steps 53 --seed 3
  same $schedule-many $schedule-one
  echo "$schedule: $buckets buckets train the bits of one"
done
train_mpi 3 many mpi --steps 53 --seed 3 --sync-sends
same mpi many-one
echo "over MPI too"
train one other --steps 52 --seed 3
diff -r "$WORK/other" "$WORK/many-one" >/dev/null && fail "the comparison notices nothing"
echo "notices another number of minibatches"
