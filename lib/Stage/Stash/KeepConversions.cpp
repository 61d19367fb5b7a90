// Undoes convertAgain on the graph of a stage: the backward reads what the forward has converted. Linear in the size of
// the graph.
#include "pdc/Stage/StagePasses.h"

#include "pdc/Transforms/GraphUtilities.h"
#include "pdc/Transforms/Precision.h"

using namespace pdc;

namespace {

/// Whether convertAgain repeats `operation` for the backward.
bool isRepeated(const Operation& operation) {
  return convertsParameter(operation) || movesConverted(operation);
}

/// The forward operation that `copy` repeats; null: it is no such copy.
Operation* repeatedBy(const Operation& copy) {
  Operation* const origin = copy.again ? copy.origin() : nullptr;
  return origin && isRepeated(*origin) ? origin : nullptr;
}

/// Puts the forward's conversions of parameters before all else, where one launch makes them all (Conversions.h). They
/// belong to no fusion group then. Nearly all that they make waits for the backward anyway.
void convertFirst(Graph& stage) {
  std::vector<Operation*> order, others;
  for (const auto& operation : stage.operations()) {
    const bool isFirst = convertsParameter(*operation) && onlyConverts(*operation);
    if (isFirst) operation->group = -1;
    (isFirst ? order : others).push_back(operation.get());
  }
  order.insert(order.end(), others.begin(), others.end());
  stage.reorder(order);
}

} // namespace

std::int64_t pdc::keptBytes(const Graph& stage) {
  std::int64_t bytes = 0;
  for (const auto& operation : stage.operations())
    if (isRepeated(*operation)) bytes += operation->result()->type().bytes();
  return bytes;
}

void pdc::keepConversions(Graph& stage) {
  std::vector<bool> dead;
  for (const auto& operation : stage.operations()) {
    const Operation* const kept = repeatedBy(*operation);
    if (kept) stage.replaceAllUses(operation->result(), kept->result());
    dead.push_back(kept);
  }
  stage.eraseIf(dead);
  convertFirst(stage);
}
