// What the command lines of all tools share.
#pragma once

#include "pdc/Support/Diagnostics.h"

#include <string>

namespace pdc {

/// The exit code of a tool after `diags`: that of the first error, or 0.
int exitCodeOf(const Diagnostics& diags);

/// `word` as a person would type it in a shell: quoted where it must be.
std::string shellWord(const std::string& word);

} // namespace pdc
