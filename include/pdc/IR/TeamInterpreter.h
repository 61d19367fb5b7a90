// Runs the graph of a team with all its members in one process: the oracle of what is split.
#pragma once

#include "pdc/IR/Interpreter.h"

namespace pdc {

/// As interpret(), of a graph with a team. Inputs and parameters are whole, and so are the results: gradients and
/// states of parameters of which members have parts are put together. Errors, beside those of interpret(): values that
/// every member should have whole, and that differ in a bit.
Expected<InterpreterResult> interpretTeam(const Graph& graph, const std::map<std::string, Tensor>& inputs,
                                          const std::map<std::string, Tensor>& parameters, Precision precision,
                                          Diagnostics& diags, std::uint64_t seed = 0, std::uint64_t minibatch = 0);

} // namespace pdc
