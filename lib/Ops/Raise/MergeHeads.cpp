// See MergeHeads.h.
#include "Raise/MergeHeads.h"

#include "Kernels/AttentionOptions.h"
#include "Raise/Match.h"

#include <array>

using namespace pdc;
using namespace pdc::ops;

namespace {

const std::vector<std::int64_t> swapped = {0, 2, 1, 3};

/// [batch, positions, heads · size], of which `heads`, [batch, heads, positions, size], is a transposed view; null: of
/// nothing.
Value* rowsOf(const Value* heads) {
  const Operation* transposed = definedBy(heads, "transpose");
  const Operation* split = transposed ? definedBy(transposed->operand(0), "reshape") : nullptr;
  if (!split || transposed->attributes.getInts("permutation") != swapped) return nullptr;
  const Shape &x = split->operand(0)->type().shape, &y = split->result()->type().shape;
  return x == Shape{y[0], y[1], y[2] * y[3]} ? split->operand(0) : nullptr;
}

/// What all three are slices of, one behind the other, if they are and nothing else is in its rows.
Value* packed(const std::array<Value*, 3>& parts) {
  Value* whole = nullptr;
  std::int64_t begin = 0;
  for (const Value* part : parts) {
    const Operation* slice = definedBy(part, "slice");
    if (!slice || (whole && slice->operand(0) != whole)) return nullptr;
    whole = slice->operand(0);
    const Shape &x = whole->type().shape, &y = part->type().shape;
    if (x.size() != 3 || x[0] != y[0] || x[1] != y[1] || y != parts[0]->type().shape ||
        slice->attributes.getInts("starts") != std::vector<std::int64_t>{0, 0, begin} ||
        slice->attributes.getInts("steps") != std::vector<std::int64_t>{1, 1, 1})
      return nullptr;
    begin += y[2];
  }
  return begin == whole->type().shape[2] ? whole : nullptr;
}

} // namespace

Value* pdc::ops::mergeAttentionHeads(Operation& attention, Builder& b) {
  const pdcrt::Attention::Options o = attentionOptions(attention, 0);
  if (!pdcrt::Attention::takesFused(o) || attention.operand(0)->type().rank() != 4) return nullptr;
  std::array<Value*, 3> parts = {};
  for (std::size_t i = 0; i < parts.size(); ++i)
    if (!(parts[i] = rowsOf(attention.operand(i)))) return nullptr;
  std::vector<Value*> operands(parts.begin(), parts.end());
  Value* const added = attention.operand(parts.size());
  if (Value* whole = packed(parts)) operands = {whole};
  if (added) {
    operands.resize(parts.size(), nullptr);
    operands.push_back(added);
  }
  Attributes attributes;
  attributes.set("heads", o.heads);
  attributes.set("groups", o.groups);
  for (const char* name : {"scale", "causal"})
    if (const Attribute* attribute = attention.attributes.find(name)) attributes.set(name, *attribute);
  Operation* merged = b.create("multi_head_attention", operands, std::move(attributes));
  Value* split =
      merged ? b.value("reshape", {merged->result(0)}, {{"shape", Shape{o.batch, o.queries, o.heads, o.valueSize}}})
             : nullptr;
  return split ? b.value("transpose", {split}, {{"permutation", swapped}}) : nullptr;
}
