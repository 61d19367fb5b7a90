// Flags that every tool has: --version, and, for packages, its man page and its completion, made of the same table of
// flags as --help.
#pragma once

#include <CLI/CLI.hpp>

namespace pdc {

/// Adds --version, and without showing them --print-man-page and --print-completion, to the app of a tool (whose name
/// and description it must have).
void addStandardFlags(CLI::App& app);

} // namespace pdc
