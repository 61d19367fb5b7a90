#!/bin/sh
# $MPIRUN, and $AFTERWARDS when it has ended.
"$MPIRUN" "$@"
code=$?
$AFTERWARDS
exit $code
