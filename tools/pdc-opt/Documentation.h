// Reference pages made from the registries, so that they cannot be out of date: docs/Ops.md and docs/Passes.md.
#pragma once

#include "pdc/Pass/Pass.h"

#include <iosfwd>

namespace pdc {

void printOpDocumentation(const OpRegistry& registry, std::ostream& out);
void printPassDocumentation(const PassRegistry& registry, std::ostream& out);

} // namespace pdc
