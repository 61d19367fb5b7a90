#!/bin/sh
# A launcher that tells two processes that they are the first rank.
while [ "$1" != -n ]; do shift; done
program=$3
for _ in 1 2; do OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 "$program" --data synthetic --steps 1 & done
wait
