// Puts exporters' pieces back together: the op that a pattern stands for knows the pattern (OpRewrites::raise).
#include "pdc/Transforms/Transforms.h"

#include "pdc/Transforms/GraphUtilities.h"

#include "pdc/IR/Builder.h"

#include <algorithm>
#include <set>

using namespace pdc;

/// Erases the `count` operations before `root`, which a recogniser has made in vain: they would count as readers.
static void eraseBefore(Graph& graph, const Operation& root, std::size_t count) {
  const auto& all = graph.operations();
  auto at = std::find_if(all.begin(), all.end(), [&](const auto& operation) { return operation.get() == &root; });
  std::vector<Operation*> made;
  while (made.size() < count) made.push_back((--at)->get());
  for (Operation* operation : made) graph.erase(operation);
}

/// The value of a raised op that computes what `root` does, or null.
static Value* raised(PassContext& context, Graph& graph, Operation& root) {
  for (const OpDef* def : context.registry.all()) {
    if (!def->rewrites.raise) continue;
    Builder builder(context.module, graph, context.registry, context.diags);
    builder.setInsertionPoint(&root);
    builder.setLocation(root.location);
    const std::size_t before = graph.operations().size();
    if (Value* value = def->rewrites.raise(root, builder)) return value;
    if (context.diags.hasErrors()) return nullptr;
    if (graph.operations().size() > before) eraseBefore(graph, root, graph.operations().size() - before);
  }
  return nullptr;
}

/// Erases an operation, and those before it that only it has used: else they would count as readers of values.
static void eraseWithDefiners(Graph& graph, Operation* operation) {
  std::set<Operation*> unused = {operation};
  while (!unused.empty()) {
    Operation* const next = *unused.begin();
    unused.erase(unused.begin());
    const std::vector<Value*> operands = next->operands();
    graph.erase(next);
    for (const Value* operand : operands) {
      Operation* const definer = operand ? operand->definer() : nullptr;
      const auto isUsed = [&](const Value* result) {
        return result && (!result->users().empty() || graph.isOutput(result));
      };
      if (definer && std::none_of(definer->results().begin(), definer->results().end(), isUsed)) unused.insert(definer);
    }
  }
}

Status pdc::raise(PassContext& context) {
  Expected<Graph*> graph = mainGraph(context);
  if (!graph) return failure;
  std::vector<Operation*> operations;
  for (const auto& operation : (*graph)->operations()) operations.push_back(operation.get());
  for (Operation* operation : operations) {
    if (operation->results().size() != 1) continue;
    Value* value = raised(context, **graph, *operation);
    if (context.diags.hasErrors()) return failure;
    if (!value) continue;
    const std::string name = operation->result()->name();
    (*graph)->replaceAllUses(operation->result(), value);
    eraseWithDefiners(**graph, operation);
    (*graph)->rename(value, name);
  }
  eraseDeadOperations(**graph);
  return success;
}
