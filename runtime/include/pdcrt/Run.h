// The main of every executable of a generated folder. It includes little: each executable compiles one such file.
#pragma once

#include <span>

namespace pdcrt {

struct Stage;

/// `stages` are those that are linked in, in order. `build` names sources, compiler and flags of all stage programs;
/// ranks of different builds refuse to run. Flags and exit codes: docs/Running.md.
int run(int argc, char** argv, std::span<const Stage* const> stages, const char* build = "");

} // namespace pdcrt
