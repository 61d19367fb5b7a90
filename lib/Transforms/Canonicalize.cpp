// Folds constants, applies the simplifications that ops state, and removes what nobody uses, until nothing changes.
#include "pdc/Transforms/Transforms.h"

#include "pdc/Transforms/GraphUtilities.h"

#include "pdc/IR/Builder.h"

#include <algorithm>

using namespace pdc;

/// Rounds after which a simplification that undoes another is taken for a mistake in the ops.
static constexpr int maxRounds = 100;

/// A constant with the value of `operation`, whose operands are all constants; null when it is too large to fold.
static Value* folded(PassContext& context, Graph& graph, const Operation& operation) {
  const auto& operands = operation.operands();
  const bool foldable = !operands.empty() && !isConstant(operation) && operation.results().size() == 1 &&
                        std::all_of(operands.begin(), operands.end(), [](const Value* operand) {
                          return !operand || Builder::constantValue(operand).has_value();
                        });
  if (!foldable) return nullptr;
  Builder builder(context.module, graph, context.registry, context.diags, /*fold=*/true);
  builder.setInsertionPoint(&operation);
  builder.setLocation(operation.location);
  Operation* made = builder.create(operation.def().name, operands, operation.attributes);
  if (!made) return nullptr;
  if (isConstant(*made)) return made->result();
  graph.erase(made);
  return nullptr;
}

static Value* simplified(PassContext& context, Graph& graph, Operation& operation) {
  if (Value* constant = folded(context, graph, operation)) return constant;
  if (!operation.def().rewrites.canonicalize) return nullptr;
  Builder builder(context.module, graph, context.registry, context.diags, /*fold=*/true);
  builder.setInsertionPoint(&operation);
  builder.setLocation(operation.location);
  return operation.def().rewrites.canonicalize(operation, builder);
}

/// Replaces what `operation` computes; the new value takes over the name when it is new, too.
static void replaceResult(Graph& graph, Operation& operation, Value* value, bool made) {
  Value* result = operation.result();
  const std::string name = result->name();
  graph.replaceAllUses(result, value);
  const auto& results = operation.results();
  const bool unused = std::all_of(results.begin(), results.end(), [&](const Value* other) {
    return !other || (other->users().empty() && !graph.isOutput(other));
  });
  if (!unused) return;
  graph.erase(&operation);
  if (made) graph.rename(value, name);
}

/// One pass over the forward operations; whether anything changed. Backward operations are left as `differentiate`
/// wrote them, because their views say where gradients pass, and so are the forward operations that they come from.
static bool simplifyOnce(PassContext& context, Graph& graph) {
  std::vector<Operation*> operations;
  for (const auto& operation : graph.operations())
    if (isForward(*operation) && operation->derived().empty()) operations.push_back(operation.get());
  bool changed = false;
  for (Operation* operation : operations) {
    if (!operation->result()) continue;
    const std::size_t before = graph.operations().size();
    Value* value = simplified(context, graph, *operation);
    if (!value) continue;
    replaceResult(graph, *operation, value, graph.operations().size() > before);
    changed = true;
  }
  return changed;
}

Status pdc::canonicalize(PassContext& context) {
  for (const auto& graph : context.module.graphs) {
    eraseDeadOperations(*graph);
    for (int round = 0; simplifyOnce(context, *graph); ++round) {
      if (context.diags.hasErrors()) return failure;
      if (round == maxRounds)
        return context.diags.error({.file = context.module.file}).exit(ExitCode::internal)
               << "graph '@" << graph->name() << "' is still being simplified after " << maxRounds << " rounds";
      eraseDeadOperations(*graph);
    }
  }
  return success;
}
