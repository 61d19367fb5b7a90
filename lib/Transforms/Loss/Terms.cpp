// Chooses the scalars that a run reports beside the total loss.
#include "pdc/Transforms/Transforms.h"

#include "LossFormulas.h"
#include "pdc/Transforms/GraphUtilities.h"

#include "pdc/IR/Builder.h"

#include <algorithm>
#include <set>
#include <unordered_set>

using namespace pdc;

/// The value without dimensions, after what defines it.
static Value* asScalar(PassContext& context, Graph& graph, Value* value) {
  if (value->type().rank() == 0) return value;
  const auto& operations = graph.operations();
  const auto here =
      std::find_if(operations.begin(), operations.end(), [&](const auto& o) { return o.get() == value->definer(); });
  Builder builder(context.module, graph, context.registry, context.diags);
  builder.setInsertionPoint(here + 1 == operations.end() ? nullptr : (here + 1)->get());
  builder.setLocation(value->definer()->location);
  return builder.value("reshape", {value}, {{"shape", std::vector<std::int64_t>{}}});
}

Status pdc::nameTerms(PassContext& context) {
  Expected<Graph*> main = mainGraph(context);
  if (!main) return failure;
  Graph& graph = **main;
  const auto isLoss = [](const GraphOutput& output) { return output.kind == OutputKind::loss; };
  // A single loss is the total.
  if (std::count_if(graph.outputs.begin(), graph.outputs.end(), isLoss) == 1)
    std::erase_if(graph.outputs, [](const GraphOutput& output) { return output.kind == OutputKind::term; });

  const std::unordered_set<const Value*> behind = behindLosses(graph);
  std::unordered_set<const Value*> told;
  std::set<std::string> names;
  for (const GraphOutput& output : graph.outputs) {
    if (output.kind == OutputKind::loss || output.kind == OutputKind::term) told.insert(output.value);
    if (output.kind == OutputKind::term) names.insert(output.name);
  }
  std::vector<GraphOutput> terms;
  for (const GraphOutput& output : graph.outputs) {
    const bool isScalar = output.kind == OutputKind::result && !output.inner && isScalarOutput(graph, output);
    if (!isScalar || !output.value->definer() || isConstant(*output.value->definer()) ||
        !behind.contains(output.value) || !told.insert(output.value).second || !names.insert(output.name).second)
      continue;
    Value* scalar = asScalar(context, graph, output.value);
    if (!scalar) return failure;
    terms.push_back({.kind = OutputKind::term, .value = scalar, .name = output.name, .parameter = nullptr});
  }
  graph.outputs.insert(graph.outputs.end(), terms.begin(), terms.end());
  return success;
}
