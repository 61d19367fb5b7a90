// Gradients of weights that are products of 16 bits, and read in f32 only, are made in f32: the sums are of f32 anyway,
// and nothing is rounded, written and read in between.
#include "pdc/Transforms/Precision.h"

#include "pdc/Transforms/GraphUtilities.h"

#include <algorithm>

using namespace pdc;

namespace {

/// What is read of low precision by conversions to f32, and by nothing else.
bool isOnlyWidened(const Graph& graph, const Value& value) {
  return isLowPrecision(value.type().element) && !graph.isOutput(&value) && !value.users().empty() &&
         std::all_of(value.users().begin(), value.users().end(), [](const Operation* user) {
           return onlyConverts(*user) && user->result()->type().element == ElementType::f32;
         });
}

bool mayWiden(const Graph& graph, const Operation& operation) {
  if (isForward(operation) || !operation.attributes.has("wide") || operation.attributes.get<bool>("wide")) return false;
  return std::all_of(operation.results().begin(), operation.results().end(),
                     [&](const Value* result) { return !result || isOnlyWidened(graph, *result); });
}

/// In place of an operation, and of the conversions of what it gives.
void widen(Graph& graph, Operation& operation) {
  std::vector<Type> types;
  for (const Value* result : operation.results()) types.push_back(result ? result->type() : Type());
  std::vector<const Type*> present;
  for (std::size_t i = 0; i < types.size(); ++i) {
    types[i].element = ElementType::f32;
    present.push_back(operation.result(i) ? &types[i] : nullptr);
  }
  Attributes attributes = operation.attributes;
  attributes.set("wide", true);
  Operation* const made = graph.addOperation(operation.def(), operation.operands(), present, std::move(attributes),
                                             operation.location, &operation);
  made->phase = operation.phase;
  made->setOrigin(operation.origin());
  made->group = operation.group;
  for (std::size_t i = 0; i < types.size(); ++i) {
    if (!operation.result(i)) continue;
    const std::vector<Operation*> conversions = operation.result(i)->users();
    const std::string name = conversions.front()->result()->name();
    for (Operation* conversion : conversions) {
      graph.replaceAllUses(conversion->result(), made->result(i));
      graph.erase(conversion);
    }
    graph.rename(made->result(i), name);
  }
  graph.erase(&operation);
}

} // namespace

Status pdc::widenGradients(PassContext& context) {
  Expected<Graph*> graph = mainGraph(context);
  if (!graph) return failure;
  std::vector<Operation*> operations; // widening changes the list
  for (const auto& operation : (*graph)->operations())
    if (mayWiden(**graph, *operation)) operations.push_back(operation.get());
  for (Operation* operation : operations) widen(**graph, *operation);
  return success;
}
