// The text form of the IR: printer and parser. parse(print(m)) prints the same bytes.
#pragma once

#include "pdc/IR/OpDef.h"

namespace pdc {

std::string print(const Module& module);
std::string print(const Graph& graph);

/// Parses a module; errors carry line and column. Result types are printed and checked against inference.
Expected<std::unique_ptr<Module>> parseModule(const std::string& text, const std::string& file,
                                              const OpRegistry& registry, Diagnostics& diags);

} // namespace pdc
