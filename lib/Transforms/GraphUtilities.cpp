// Questions about graphs that several transforms ask.
#include "pdc/Transforms/GraphUtilities.h"

#include "pdc/IR/Builder.h"

#include <algorithm>

using namespace pdc;

Positions pdc::positionsOf(const Graph& graph) {
  Positions positions;
  for (const auto& operation : graph.operations()) positions.emplace(operation.get(), positions.size());
  return positions;
}

Expected<Graph*> pdc::mainGraph(PassContext& context) {
  if (Graph* graph = context.module.findGraph("main")) return graph;
  return context.diags.error({.file = context.module.file}) << "the module has no graph '@main'";
}

Value* pdc::rootOf(Value* value) {
  while (value->definer() && value->definer()->def().kind == OpKind::view) value = value->definer()->operand(0);
  return value;
}

bool pdc::addsGradients(const Operation& operation) {
  const auto& operands = operation.operands();
  return !isForward(operation) && operands.size() == 2 &&
         std::all_of(operands.begin(), operands.end(), [](const Value* operand) {
           const Operation* part = operand ? operand->definer() : nullptr;
           return part && !isForward(*part) && !isConstant(*part);
         });
}

void pdc::computeWithInputGradients(Operation& operation) {
  if (operation.phase != Phase::weightGradient) return;
  operation.phase = Phase::inputGradient;
  for (const Value* operand : operation.operands())
    if (operand && operand->definer()) computeWithInputGradients(*operand->definer());
}

std::unordered_set<const Value*> pdc::behindLosses(const Graph& graph) {
  std::unordered_set<const Value*> found;
  for (const GraphOutput& output : graph.outputs)
    if (output.kind == OutputKind::loss) found.insert(output.value);
  const auto& operations = graph.operations();
  for (auto it = operations.rbegin(); it != operations.rend(); ++it)
    if (std::any_of((*it)->results().begin(), (*it)->results().end(),
                    [&](const Value* result) { return result && found.contains(result); }))
      found.insert((*it)->operands().begin(), (*it)->operands().end());
  return found;
}

void pdc::eraseDeadOperations(Graph& graph, const std::unordered_set<const Value*>& kept) {
  std::unordered_set<const Value*> used = kept;
  for (const GraphOutput& output : graph.outputs) used.insert(output.value);
  std::unordered_set<const Operation*> origins;

  const auto& operations = graph.operations();
  std::vector<bool> dead(operations.size(), true);
  for (std::size_t i = operations.size(); i-- > 0;) {
    const Operation& operation = *operations[i];
    for (const Value* result : operation.results())
      if (result && used.contains(result)) dead[i] = false;
    if (origins.contains(&operation)) dead[i] = false;
    if (dead[i]) continue;
    origins.insert(operation.origin());
    for (const Value* operand : operation.operands()) used.insert(operand);
  }
  graph.eraseIf(dead);
}

Value* pdc::copyOf(PassContext& context, Graph& graph, Value* value, const Operation& like, Phase phase,
                   const Operation* before) {
  Builder builder(context.module, graph, context.registry, context.diags);
  builder.setInsertionPoint(before);
  builder.setLocation(like.location);
  builder.setPhase(phase, phase == Phase::forward ? nullptr
                          : isForward(like)       ? const_cast<Operation*>(&like)
                                                  : like.origin()); // which may be in the stage below
  builder.setGroup(like.group);
  Value* copy = builder.value("elementwise", {value}, {{"expressions", std::vector<std::string>{"a0"}}});
  if (!copy) return nullptr;
  copy->definer()->stage = like.stage;
  copy->setType(value->type()); // its layout, too
  return copy;
}

std::string pdc::describe(const Operation& operation) {
  return operation.location.node.empty() ? operation.def().name : operation.location.node;
}
