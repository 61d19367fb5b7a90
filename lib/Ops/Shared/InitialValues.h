// The usual initialisation of parameters, by the op that uses them (OpUsage::initialValues): what PyTorch's modules do.
#pragma once

#include "pdc/IR/OpDef.h"

namespace pdc::ops {

using InitialValuesFn = std::function<std::optional<InitialValues>(const Operation&, std::size_t i)>;

inline InitialValues constantly(double number) {
  return {InitialValues::Kind::constant, number};
}
inline InitialValues normally(double deviation) {
  return {InitialValues::Kind::normal, deviation};
}
/// From -bound to bound with bound = 1 / sqrt(count).
InitialValues uniformFor(std::int64_t count);

/// Whether a value is a parameter, or made of parameters by a few ops that move or add elements; activations are not.
bool isFromParameters(const Value* value);

/// Operand first + k starts as numbers[k], throughout.
InitialValuesFn startsAt(std::size_t first, std::vector<double> numbers);

/// A layer with weights and biases as operands 1 and 2, which adds `fanIn` products for each element of its result:
/// both as torch.nn.Linear has them, kaiming_uniform(a = sqrt 5) and U(±1 / sqrt(fan-in)), which are the same. Where
/// the result is an operand for which another op says what computes it, as recurrent ones do, that holds.
InitialValuesFn asLayer(std::function<std::int64_t(const Operation&)> fanIn);

/// A recurrent layer: its input's part X, its weights R [G · H, H] and what lies between them and the states from
/// operand `firstState` on, as torch.nn.LSTM has them, U(±1 / sqrt(H)); states start at 0.
InitialValuesFn asRecurrent(std::size_t firstState);

} // namespace pdc::ops
