#!/bin/sh
# A launcher that starts the first rank only, and waits for it.
while [ "$1" != -n ]; do shift; done
shift 2
program=$1
shift
OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 "$program" --data synthetic --steps 1 &
wait
sleep 60
