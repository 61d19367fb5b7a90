#!/bin/sh
# stopped-after-a-step.sh LOG timeout SECONDS COMMAND…: runs it, ends it by SIGTERM after its first step, expects the code 75. The
# signal comes several times at once, as from shells and launchers that hand it on.
log=$1
shift
"$@" >"$log" 2>&1 &
process=$!
for _ in $(seq 600); do
  grep -q "step 1/" "$log" && break
  sleep 0.1
done
# timeout hands each on, to the process and to its group.
kill -TERM $process; kill -TERM $process; kill -TERM $process
wait $process
[ $? -eq 75 ] || { cat "$log"; exit 1; }
