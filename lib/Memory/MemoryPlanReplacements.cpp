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

std::vector<Replaceable> pdc::replaceableIn(const Operation& operation) {
  if (operation.def().kind != OpKind::elementwise) return operation.def().kernel.replaceable;
  std::vector<Replaceable> all;
  for (std::size_t i = 0; i < operation.operands().size(); ++i) all.push_back({i, operation.results().size() - 1});
  return all;
}

/// Whether all of `read` that the operation reads may be where `result` is.
static bool mayReplace(const GraphMemory& memory, const Operation& operation, const std::vector<Replaceable>& pairs,
                       std::size_t result, const Buffer& read) {
  for (std::size_t i = 0; i < operation.operands().size(); ++i) {
    const Value* operand = operation.operand(i);
    if (!operand || memory.find(operand) != &read) continue;
    const bool listed = std::any_of(pairs.begin(), pairs.end(), [&](const Replaceable& pair) {
      return pair.operand == i && pair.result == result;
    });
    if (!listed || !sameElements(operand->type(), operation.result(result)->type())) return false;
  }
  return true;
}

/// A result may replace an operand that nothing else reads then or later, and no other result replaces. Operands that
/// have a place in the slot come first: nothing else may be known to have room where others are.
void MemoryPlanner::findReplacements(GraphMemory& memory) {
  int position = 0;
  for (const Operation* operation : memory.timeline.operations) {
    ++position;
    std::vector<const Value*> taken;
    const std::vector<Replaceable> pairs = replaceableIn(*operation);
    for (const auto& [_, result] : pairs) { // results in the order of their first mention
      const Value* value = result < operation->results().size() ? operation->result(result) : nullptr;
      if (!value) continue;
      Buffer& made = memory.buffers[memory.index.at(value)];
      if (made.replaces || made.first != position || !mayShare(made)) continue;
      const Buffer* replaced = nullptr;
      for (const Value* operand : operation->operands()) {
        const Buffer* read = operand ? memory.find(operand) : nullptr;
        if (!read || read->last != position || read->first >= position) continue;
        if (!mayShare(*read) || !(read->temporary || made.temporary)) continue;
        if (std::find(taken.begin(), taken.end(), read->value) != taken.end()) continue;
        if (mayReplace(memory, *operation, pairs, result, *read) &&
            (!replaced || (replaced->temporary && !read->temporary)))
          replaced = read;
      }
      if (!replaced) continue;
      made.replaces = replaced->value;
      taken.push_back(replaced->value);
    }
  }
}
