// @evaluate: the forward part of @main, with each operation in the form that it has when the model is used.
#include "pdc/Transforms/Transforms.h"

#include "Loads.h"
#include "pdc/Transforms/GraphUtilities.h"

#include "pdc/IR/Builder.h"

#include <algorithm>

using namespace pdc;

/// Leaves the forward operations, losses and predictions. Terms of losses are told while training goes on.
static void dropTraining(Graph& graph) {
  std::erase_if(graph.outputs, [](const GraphOutput& output) {
    return output.kind == OutputKind::gradient || output.kind == OutputKind::state || output.kind == OutputKind::term;
  });
  std::vector<bool> backward;
  for (const auto& operation : graph.operations()) backward.push_back(!isForward(*operation));
  graph.eraseIf(backward);
}

/// By the forward of another group.
static bool usedOutside(const Value& value, int group) {
  const auto& users = value.users();
  return std::any_of(users.begin(), users.end(),
                     [&](const Operation* user) { return isForward(*user) && user->group != group; });
}

/// Replaces `operation` by its evaluation form, result by result. A value that other groups use keeps a definition of
/// its own and its name, because a cut may lie there, and both graphs of a stage have the same ports.
static Status evaluationForm(PassContext& context, Graph& graph, Operation& operation) {
  const auto& operations = graph.operations();
  const auto here =
      std::find_if(operations.begin(), operations.end(), [&](const auto& o) { return o.get() == &operation; });
  const Operation* next = here + 1 == operations.end() ? nullptr : (here + 1)->get();
  const std::size_t before = operations.size();
  Builder builder(context.module, graph, context.registry, context.diags);
  builder.setInsertionPoint(next);
  builder.setLocation(operation.location);
  builder.setGroup(operation.group);

  const std::vector<Value*> forms = operation.def().rewrites.evaluation(operation, builder);
  std::vector<std::pair<Value*, std::string>> renamed;
  const bool makesNew = operations.size() > before;
  for (std::size_t i = 0; i < operation.results().size(); ++i) {
    Value* result = operation.result(i);
    if (!result || (result->users().empty() && !graph.isOutput(result))) continue;
    Value* form = i < forms.size() ? forms[i] : nullptr;
    if (!form)
      return context.diags.error(operation.location).exit(ExitCode::internal)
             << "the evaluation form of '" << operation.def().name << "' lacks result " << i << ", which is used";
    const auto& operands = operation.operands();
    const bool passesThrough = !makesNew || std::find(operands.begin(), operands.end(), form) != operands.end();
    if (passesThrough && (usedOutside(*result, operation.group) || graph.isOutput(result))) {
      form = copyOf(context, graph, form, operation, Phase::forward, next);
      if (!form) return failure;
    }
    graph.replaceAllUses(result, form);
    if (form->definer() && std::find(operands.begin(), operands.end(), form) == operands.end())
      renamed.emplace_back(form, result->name());
  }
  graph.erase(&operation);
  for (auto& [value, name] : renamed) graph.rename(value, name);
  return success;
}

/// Predictions are read after an evaluation only: training does not compute what leads to nothing else. What reads a
/// value of another group stays, so that the same values cross a cut in both graphs.
static void dropPredictions(Graph& main) {
  std::erase_if(main.outputs, [](const GraphOutput& output) { return output.kind == OutputKind::prediction; });
  std::unordered_set<const Value*> kept;
  for (const auto& operation : main.operations()) {
    const auto comesIn = [&](const Value* operand) {
      if (!operand || operand->parameter()) return false;
      return !operand->definer() || operand->definer()->group != operation->group;
    };
    if (std::any_of(operation->operands().begin(), operation->operands().end(), comesIn))
      kept.insert(operation->results().begin(), operation->results().end());
  }
  eraseDeadOperations(main, kept);
}

Status pdc::addEvaluation(PassContext& context) {
  Expected<Graph*> main = mainGraph(context);
  if (!main) return failure;
  std::unique_ptr<Graph> owned = clone(**main, "evaluate");
  Graph& graph = *owned;

  // Whatever may cross a cut stays, by its name.
  std::unordered_set<const Value*> kept;
  for (const auto& operation : (*main)->operations())
    for (const Value* result : operation->results())
      if (result && isForward(*operation) && !isConstant(*operation) && usedOutside(*result, operation->group))
        kept.insert(graph.find(result->name()));

  dropTraining(graph);
  std::vector<Operation*> operations;
  for (const auto& operation : graph.operations()) operations.push_back(operation.get());
  for (Operation* operation : operations) {
    if (!operation->def().rewrites.evaluation) continue;
    std::vector<std::string> names;
    for (const Value* result : operation->results())
      if (result && kept.erase(result)) names.push_back(result->name());
    if (!evaluationForm(context, graph, *operation)) return failure;
    for (const std::string& name : names) kept.insert(graph.find(name));
  }
  if (!addLoads(context, graph)) return failure;
  eraseDeadOperations(graph, kept);
  dropPredictions(**main);

  // One that was made before is replaced.
  std::erase_if(context.module.graphs, [&](const auto& other) { return other->name() == graph.name(); });
  context.module.graphs.push_back(std::move(owned));
  return success;
}
