#!/usr/bin/env bash
# exits.sh CODE COMMAND…: runs the command, prints what it prints (stderr too), and fails unless it exits with CODE.
expected=$1
shift
"$@" 2>&1
actual=$?
[ $actual -eq "$expected" ] || { echo "exits.sh: exit code $actual, expected $expected"; exit 1; }
