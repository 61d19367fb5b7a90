// Lets kernels take over operations beside them, mostly elementwise ones, as their OpDefs offer (OpRewrites::absorb).
#include "AbsorbElementwise.h"

#include "GroupOrder.h"
#include "pdc/Transforms/GraphUtilities.h"

#include "pdc/IR/Builder.h"

#include <algorithm>
#include <map>

using namespace pdc;

static Location joined(const std::vector<Operation*>& operations) {
  Location location = operations.front()->location;
  for (std::size_t i = 1; i < operations.size(); ++i)
    if (const std::string& node = operations[i]->location.node; !node.empty() && node != location.node)
      location.node += (location.node.empty() ? "" : ", ") + node;
  return location;
}

/// Whether `absorbed` stands for all that its operations do, inside their group and phase.
static bool isWhole(const Graph& graph, const GroupOrder& order, const Absorbed& absorbed) {
  const auto& gone = absorbed.gone;
  if (!order.isBelowItsOperands(*absorbed.made)) return false;
  const auto isGone = [&](const Operation* user) { return std::find(gone.begin(), gone.end(), user) != gone.end(); };
  for (const Operation* operation : gone) {
    if (operation->group != absorbed.made->group || operation->phase != absorbed.made->phase) return false;
    for (const Value* result : operation->results()) {
      const bool replaced = std::any_of(absorbed.replaced.begin(), absorbed.replaced.end(),
                                        [&](const auto& pair) { return pair.first == result; });
      if (!result || replaced) continue;
      if (graph.isOutput(result) || !std::all_of(result->users().begin(), result->users().end(), isGone)) return false;
    }
  }
  return true;
}

static void apply(Graph& graph, const Absorbed& absorbed) {
  absorbed.made->location = joined(absorbed.gone);
  std::map<Value*, std::string> names;
  for (const auto& [from, to] : absorbed.replaced) {
    names[to] = from->name();
    graph.replaceAllUses(from, to);
  }
  for (Operation* operation : absorbed.gone) operation->giveDerivedTo(*absorbed.made);
  for (auto operation = absorbed.gone.rbegin(); operation != absorbed.gone.rend(); ++operation) graph.erase(*operation);
  for (const auto& [value, name] : names) graph.rename(value, name);
}

static void remark(Diagnostics& diags, const Operation& kernel, const Absorbed& absorbed, bool whole) {
  std::string others;
  for (const Operation* operation : absorbed.gone)
    if (operation != &kernel) others += (others.empty() ? "'" : ", '") + operation->def().name + "'";
  const std::string what =
      !absorbed.made ? "has nothing beside it that its kernel could take over"
      : whole        ? "takes over " + others + ": one pass less"
                     : "cannot take over " + others + ": what is in between is read elsewhere, or a cut may lie there";
  diags.remark(absorbed.made ? joined(absorbed.gone) : kernel.location) << "'" << kernel.def().name << "' " << what;
}

Status pdc::absorbElementwise(PassContext& context, Graph& graph) {
  std::vector<Operation*> candidates;
  for (const auto& operation : graph.operations())
    if (operation->def().rewrites.absorb) candidates.push_back(operation.get());
  const GroupOrder order(graph);
  for (Operation* operation : candidates) {
    Builder builder(context.module, graph, context.registry, context.diags);
    builder.setLocation(operation->location);
    builder.setPhase(operation->phase, operation->origin());
    builder.setGroup(operation->group);
    const Absorbed absorbed = operation->def().rewrites.absorb(*operation, builder);
    const bool found = absorbed.made, whole = found && isWhole(graph, order, absorbed);
    if (context.options.contains("remarks")) remark(context.diags, *operation, absorbed, whole);
    if (whole)
      apply(graph, absorbed);
    else if (found)
      graph.erase(absorbed.made);
  }
  return success;
}
