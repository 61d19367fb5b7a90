// Pieces of the OpDefs of recurrent layers: types, attributes, and what their references share.
#pragma once

#include "Shared/Define.h"
#include "Shared/LoopsOf.h"

#include <algorithm>

namespace pdc::ops {

AttributeDef orderAttribute(const std::string& gates);
AttributeDef reverseAttribute();

/// Types of a layer: all gates [T, B, G · H], states [T, B, H], one state [B, H], R [G · H, H], its bias [G · H],
/// lengths [B].
struct RecurrentTypes {
  Type gates, states, state, weights, bias, lengths;
};
/// From operand `states` [T, B, H] or [T, B, gates · H], and operand `weights`; reports where they do not fit each
/// other or are no floats.
Expected<RecurrentTypes> recurrentTypes(const InferContext& c, const char* op, std::size_t states, std::size_t weights,
                                        std::int64_t gates, bool allGates);
/// Reports unless operand i, if it is there, has `type`.
Status requireOptional(const InferContext& c, const char* op, std::size_t i, const Type& type);
/// Reports unless attribute `order` has the letters of `gates`.
Status requireOrder(const InferContext& c, const char* op, const std::string& gates);

/// Operands or results of a layer that have the batch: on axis 1 after the steps, or on axis 0 of states and lengths.
struct HaveBatch {
  std::vector<std::size_t> afterSteps, first;
};
/// For OpSplit::loops: the batch. The first operand in the list must be there.
std::function<Loops(const Operation&)> alongBatch(HaveBatch operands, HaveBatch results);

// For references.

inline const Tensor* optionalOperand(const ReferenceContext& c, std::size_t i) {
  return i < c.operands.size() ? c.operands[i] : nullptr;
}
/// Operand i, or `count` zeros where it is absent.
template <class T>
std::vector<T> valuesOrZeros(const ReferenceContext& c, std::size_t i, std::int64_t count) {
  if (!optionalOperand(c, i)) return std::vector<T>(static_cast<std::size_t>(count), T(0));
  const auto values = c.in<T>(i);
  return {values.begin(), values.end()};
}
/// Whether row b takes part in the step at position t; without `lengths` all do.
inline bool running(const Tensor* lengths, std::int64_t b, std::int64_t t) {
  return !lengths || t < lengths->asInt(b);
}

} // namespace pdc::ops
