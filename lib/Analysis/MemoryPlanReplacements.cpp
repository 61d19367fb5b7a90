// Results that may lie where an operand does.
#include "pdc/IR/Layouts.h"

#include "MemoryPlanner.h"

#include <algorithm>

using namespace pdc;

/// Whether element i of `operand` is read for element i of `result` only, and is of the same C++ type: of others the
/// compiler may think that they do not overlap.
static bool sameElements(const Type& operand, const Type& result) {
  return operand.element == result.element && memoryShape(operand, result) == memoryShape(result);
}

/// Whether it lies in the slot, or what is not handed over will lie there or in scratch.
static bool mayShare(const Buffer& buffer) {
  return buffer.place.block == Block::slot || buffer.place.block == Block::scratch;
}

/// Whether the operation reads operand i for the result at the same place only.
static bool isReplaceable(const Operation& operation, std::size_t i) {
  if (operation.def().kind == OpKind::elementwise) return true;
  const auto& replaceable = operation.def().replaceable;
  return std::find(replaceable.begin(), replaceable.end(), i) != replaceable.end();
}

/// A result may replace an operand that nothing else reads then or later. Of several results of an elementwise
/// operation the last one: the loop reads its operands anew for each. Operands that have a place in the slot come
/// first: nothing else may be known to have room where others are.
void MemoryPlanner::findReplacements(GraphMemory& memory) {
  int position = 0;
  for (const Operation* operation : memory.timeline.operations) {
    ++position;
    const bool elementwise = operation->def().kind == OpKind::elementwise;
    if (operation->results().empty()) continue;
    const Value* result = elementwise ? operation->results().back() : operation->result(0);
    if (!result || !(elementwise || !operation->def().replaceable.empty())) continue;
    Buffer& made = memory.buffers[memory.index.at(result)];
    const Buffer* replaced = nullptr;
    for (const Value* operand : operation->operands()) {
      const Buffer* read = operand ? memory.find(operand) : nullptr;
      if (!read || read->last != position || read->first >= position || made.first != position) continue;
      if (!mayShare(*read) || !mayShare(made) || !(read->temporary || made.temporary)) continue;
      bool same = true;
      for (std::size_t i = 0; i < operation->operands().size(); ++i)
        if (const Value* other = operation->operand(i); other && memory.find(other) == read)
          same = same && isReplaceable(*operation, i) && sameElements(other->type(), result->type());
      if (same && (!replaced || (replaced->temporary && !read->temporary))) replaced = read;
    }
    if (replaced) made.replaces = replaced->value;
  }
}
