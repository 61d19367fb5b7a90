// Fusion: decides the groups between which a model can be cut, then merges elementwise operations inside them,
// with each other and with kernels beside them.
//
// Both are decided on the whole graph, before anything is known of a cut, so that cutting changes no bit.
#include "pdc/Transforms/Precision.h"
#include "pdc/Transforms/Transforms.h"

#include "AbsorbElementwise.h"
#include "FusionGroups.h"
#include "MergeElementwise.h"
#include "WeightGradientGroups.h"

#include <algorithm>

using namespace pdc;

/// Training computes what its losses need. Other outputs of the model stay in the model's file.
static void dropOtherResults(Graph& graph) {
  const bool trains = std::any_of(graph.outputs.begin(), graph.outputs.end(),
                                  [](const GraphOutput& output) { return output.kind == OutputKind::loss; });
  if (trains) std::erase_if(graph.outputs, [](const GraphOutput& output) { return output.kind == OutputKind::result; });
}

Status pdc::fuse(PassContext& context) {
  Expected<Graph*> graph = mainGraph(context);
  if (!graph) return failure;
  dropOtherResults(**graph);
  eraseDeadOperations(**graph);
  if (!assignFusionGroups(context, **graph)) return failure;
  if (!context.options.contains("apart")) {
    widenAgain(**graph);
    if (!mergeElementwise(context, **graph) || !absorbElementwise(context, **graph)) return failure;
  }
  return handGradientsOn(context, **graph);
}
