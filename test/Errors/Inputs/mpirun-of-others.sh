#!/bin/sh
# A launcher of MPICH: its ranks have other variables than Open MPI's.
while [ "$1" != -n ]; do shift; done
PMI_RANK=0 PMI_SIZE=2 "$3" --data synthetic --steps 1
