// What every tool has: --version, a short --help, and, for packages, its man page and its completion. All are made of
// one table of flags. The description of a flag is a line, which --help shows, and what follows it, which the man page
// adds.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace pdc {

/// All tools of pdc.
const std::vector<std::string>& toolNames();

/// A check of a flag: a whole number of at least `least`.
CLI::Validator wholeNumber(std::int64_t least);

/// Lets --help show the flags by their groups. Adds --version, and without showing them --print-man-page and
/// --print-completion, to the app of a tool (whose name and description it must have).
void addStandardFlags(CLI::App& app);

} // namespace pdc
