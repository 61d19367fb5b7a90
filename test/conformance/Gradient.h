// The gradient of a test's model against differences of what it computes.
#pragma once

#include "NodeTest.h"

namespace pdc::conformance {

/// Makes parameters of the float inputs of `module`, beside `parameters`, and a loss of its float outputs but those
/// that gradients do not pass: the sum of each element times a fixed random number; differentiates, and compares how
/// the loss changes along random directions, by central differences in f64, with what the gradients say: within 1e-6.
/// Unsupported: no float depends on another one, an op has no gradient, what is computed is not finite, or jumps or
/// bends wherever it was looked at.
Verdict compareGradient(Module& module, const std::map<std::string, Tensor>& inputs,
                        const std::map<std::string, Tensor>& parameters, const OpRegistry& registry);

} // namespace pdc::conformance
