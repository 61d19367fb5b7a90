// Softmaxes and sigmoids at the end of a model.
#include "Logits.h"

#include "pdc/Transforms/GraphUtilities.h"

#include <algorithm>
#include <numeric>

using namespace pdc;

/// The axis of `from` that is axis `axis` of `to`, two shapes of the same elements in the same order: as long, with as
/// many elements before it. -1: none.
static std::int64_t sameAxis(const Shape& from, const Shape& to, std::int64_t axis) {
  const auto before = [](const Shape& shape, std::size_t end) {
    return std::accumulate(shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(end), std::int64_t{1},
                           std::multiplies<>());
  };
  const auto at = static_cast<std::size_t>(axis);
  for (std::size_t i = 0; i < from.size(); ++i)
    if (from[i] == to[at] && before(from, i) == before(to, at)) return static_cast<std::int64_t>(i);
  return -1;
}

/// The only operand that depends on data; null where there are several, or none.
static const Value* onlyOperand(const Operation& operation) {
  const Value* only = nullptr;
  for (const Value* operand : operation.operands()) {
    if (!operand || operand->parameter() || (operand->definer() && isConstant(*operand->definer()))) continue;
    if (only && only != operand) return nullptr;
    only = operand;
  }
  return only;
}

bool FromLogits::isSoftmaxOfAxis() const {
  return moved && kind() != OfLogits::sigmoid && axis >= 0 && axis + 1 == operation->result()->type().rank();
}

std::optional<FromLogits> pdc::fromLogits(const Value& value, std::int64_t axis) {
  FromLogits found{.axis = axis};
  for (const Value* at = &value; const Operation* definer = at->definer();) {
    const OpDef& def = definer->def();
    if (at->resultIndex() != 0) return std::nullopt;
    if (def.facts.ofLogits != OfLogits::none) {
      found.operation = definer;
      return found;
    }
    const Value* only = onlyOperand(*definer);
    if (!only) return std::nullopt;
    if (def.facts.permutes) {
      if (found.axis >= 0)
        found.axis = definer->attributes.getInts("permutation")[static_cast<std::size_t>(found.axis)];
    } else if (def.kind == OpKind::view) {
      if (found.axis >= 0) found.axis = sameAxis(only->type().shape, at->type().shape, found.axis);
    } else if (def.kind == OpKind::elementwise || def.facts.moves) {
      found.moved = false;
    } else {
      return std::nullopt;
    }
    found.way.push_back(definer);
    at = only;
  }
  return std::nullopt;
}

Value* pdc::logitsOf(const FromLogits& from, Builder& builder) {
  Value* logits = from.operation->operand(0);
  for (auto step = from.way.rbegin(); logits && step != from.way.rend(); ++step)
    logits = builder.value((*step)->def().name, {logits}, (*step)->attributes);
  return logits;
}

std::string pdc::nameOfLogits(const FromLogits& from, const Module& module) {
  const auto found = module.firstInputs.find(from.operation->location.node);
  return found == module.firstInputs.end() ? std::string() : found->second;
}
