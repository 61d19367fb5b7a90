#!/bin/sh
# stopped-after-a-step.sh LOG timeout SECONDS COMMAND…: runs it, ends it by SIGTERM after its first step, expects the code 75.
log=$1
shift
"$@" >"$log" 2>&1 &
process=$!
for _ in $(seq 600); do
  grep -q "step 1/" "$log" && break
  sleep 0.1
done
kill -TERM $process # timeout hands it on
wait $process
[ $? -eq 75 ] || { cat "$log"; exit 1; }
