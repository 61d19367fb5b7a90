#include "ProgramOrder.h"

#include <algorithm>

using namespace pdc;

static bool readsOneOf(const Operation& operation, const std::set<const Value*>& values) {
  const auto& operands = operation.operands();
  return std::any_of(operands.begin(), operands.end(), [&](const Value* value) { return values.contains(value); });
}

std::set<const Value*> pdc::travellingValues(const Graph& graph) {
  std::set<const Value*> travelling;
  for (const GraphInput& input : graph.inputs)
    if (input.kind != InputKind::label && input.kind != InputKind::lossScale && input.kind != InputKind::lossShare)
      travelling.insert(input.value);
  for (const auto& operation : graph.operations())
    if (readsOneOf(*operation, travelling))
      for (const Value* result : operation->results()) travelling.insert(result);
  travelling.erase(nullptr);
  return travelling;
}

namespace {

class ProgramOrder {
public:
  /// Appends `operation`, behind what it needs.
  void emit(Operation& operation) {
    if (!emitted_.insert(&operation).second) return;
    for (const Value* operand : operation.operands())
      if (operand && operand->definer()) emit(*operand->definer());
    order.push_back(&operation);
  }
  std::vector<Operation*> order;

private:
  std::unordered_set<const Operation*> emitted_;
};

} // namespace

void pdc::putInProgramOrder(Graph& graph) {
  const std::set<const Value*> travelling = travellingValues(graph);
  ProgramOrder program;
  for (const auto& operation : graph.operations())
    if (isForward(*operation) && readsOneOf(*operation, travelling)) program.emit(*operation);
  for (bool forward : {true, false})
    for (const auto& operation : graph.operations())
      if (isForward(*operation) == forward) program.emit(*operation);
  graph.reorder(program.order);
}
