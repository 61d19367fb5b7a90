#!/bin/sh
# The words of a stage program, one per line, without fused kernels and what names a layout, a target or a place in memory.
sed -E '/^\/\/ Fused kernels/,/^\/\/ Phases/d; /^\/\/ +memory/,/^\/\/ +nodes/d; /^  View<.*\{.*, [0-9]+\}/s/\{.*\}//' "$1" | tr -s '[:space:]' ' ' |
  sed -E 's/@[123]//g; s/, \.(input|output|filter)?[lL]anes = [0-9]+//g; s/, 1, 1, \/\*early=\*\/false, \/\*inBlocks=\*\/true//g; s/--target=[a-z]*//g; s/q\.work\([^)]*\)/q/g; s/setup\.within\([^()]*\)/setup/g; s/const Scratch&( t)?,/const Scratch\&,/g; s/\.bytes = \{[^}]*\}//; s/(loss|prediction|label|logits|input)", Element::[a-z0-9]+, \{[0-9, ]*\}, [0-9]+/\1/g' |
  tr ' ' '\n'
