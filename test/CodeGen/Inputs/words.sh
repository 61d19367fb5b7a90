#!/bin/sh
# The words of a stage program, one per line, without what depends on the size of workspaces: among it the places
# of what lives inside a phase, gradients and the stage's last values.
tr -s '[:space:]' ' ' < "$1" |
  sed -E 's/q\.work\([^)]*\)/q/g; s/setup\.within\([0-9]+\)/setup/g; s/(\{"[A-Za-z]+"), [0-9]+\}/\1}/g; s/(slot|scratch) = [0-9]+/\1 = N/g; s/ (a9|a10|g[0-9]+)\{frame\.(slot|scratch), [0-9]+/ \1{frame.\2, N/g; s/in flight [0-9.]+ [KMG]iB/in flight N/; s/scratch [0-9.]+ (bytes|[KMG]?i?B); alive at most [0-9.]+ [KMG]?i?B/scratch N/' |
  tr ' ' '\n'
