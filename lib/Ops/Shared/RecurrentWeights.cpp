#include "Shared/RecurrentWeights.h"

#include "Raise/Match.h"
#include "Shared/Recurrent.h"

#include <algorithm>

namespace pdc::ops {

namespace {

bool concatenatesRows(const Operation* concat) {
  return concat && concat->attributes.getInt("axis") == 0;
}

/// The operand of a concatenation of rows that is rows begin … begin + count - 1, or null.
Value* operandAt(const Operation* concat, std::int64_t begin, std::int64_t count) {
  if (!concatenatesRows(concat)) return nullptr;
  for (Value* operand : concat->operands()) {
    const std::int64_t size = operand->type().shape[0];
    if (begin == 0 && size == count) return operand;
    begin -= size;
  }
  return nullptr;
}

/// Rows of a value: begin … begin + count - 1.
struct Rows {
  Value* from;
  std::int64_t begin;
};

/// `value` as whole rows of another, or nothing.
std::optional<Rows> rowsBehind(Value* value) {
  const Operation* slice = definedBy(value, "slice");
  if (!slice) return std::nullopt;
  const Shape &whole = operandType(*slice, 0).shape, &part = value->type().shape;
  const std::vector<std::int64_t>&starts = slice->attributes.getInts("starts"),
        &steps = slice->attributes.getInts("steps");
  for (std::size_t axis = 0; axis < whole.size(); ++axis)
    if (steps[axis] != 1 || (axis > 0 && part[axis] != whole[axis])) return std::nullopt;
  return Rows{slice->operand(0), starts[0]};
}

/// A value whose blocks of rows `value` has in another order: block k of `value` is block places[k] of `from`.
struct Blocks {
  Value* from = nullptr;
  std::vector<std::int64_t> places;
};

std::optional<Blocks> blocksBehind(Value* value, std::int64_t count) {
  const Operation* concat = definedBy(value, "concat");
  if (!concatenatesRows(concat)) return std::nullopt;
  const std::int64_t block = value->type().shape[0] / count;
  Blocks blocks;
  for (Value* operand : concat->operands()) {
    const std::optional<Rows> part = rowsBehind(operand);
    if (!part || part->begin % block != 0 || operand->type().shape[0] % block != 0) return std::nullopt;
    // NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): rows come from a value
    if (part->from->type() != value->type() || (blocks.from && blocks.from != part->from)) return std::nullopt;
    blocks.from = part->from;
    for (std::int64_t i = 0; i < operand->type().shape[0] / block; ++i)
      blocks.places.push_back(part->begin / block + i);
  }
  std::vector<std::int64_t> sorted = blocks.places;
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) return std::nullopt;
  return blocks;
}

} // namespace

bool isAlwaysZero(const Value* value) {
  if (const std::optional<Tensor> constant = Builder::constantValue(value)) {
    for (std::int64_t i = 0; i < constant->elements(); ++i)
      if (constant->asDouble(i) != 0) return false;
    return true;
  }
  for (const char* op : {"broadcast", "reshape", "slice", "transpose"})
    if (const Operation* mover = definedBy(value, op)) return isAlwaysZero(mover->operand(0));
  return false;
}

Value* entry(OnnxReader& n, Value* x, std::int64_t index) {
  const Shape& shape = x->type().shape;
  const Shape rest(shape.begin() + 1, shape.end());
  if (shape[0] > 1) {
    Value* operand = operandAt(definedBy(x, "concat"), index, 1);
    return operand ? entry(n, operand, 0) : n.reshape(sliced(n, x, 0, index, 1), rest);
  }
  const Operation* reshape = definedBy(x, "reshape");
  return reshape && operandType(*reshape, 0).shape == rest ? reshape->operand(0) : n.reshape(x, rest);
}

Value* rows(OnnxReader& n, Value* x, std::int64_t begin, std::int64_t count) {
  Value* operand = operandAt(definedBy(x, "concat"), begin, count);
  return operand ? operand : sliced(n, x, 0, begin, count);
}

std::string takeFromStored(std::vector<Value*>& weights, const std::string& gates) {
  std::vector<Value*> stored;
  std::vector<std::int64_t> places;
  for (Value* weight : weights) {
    const std::optional<Blocks> blocks = blocksBehind(weight, static_cast<std::int64_t>(gates.size()));
    if (!blocks || (!places.empty() && places != blocks->places)) return gates;
    places = blocks->places;
    stored.push_back(blocks->from);
  }
  weights = stored;
  std::string order(gates.size(), ' ');
  for (std::size_t gate = 0; gate < gates.size(); ++gate) order[static_cast<std::size_t>(places[gate])] = gates[gate];
  return order;
}

} // namespace pdc::ops
