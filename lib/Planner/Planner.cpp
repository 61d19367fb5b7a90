// What all cost models have in common, and the choice between them.
#include "pdc/Planner/Planner.h"

#include "Pdc/PlanPdc.h"
#include "PipeDream/Code.h"
#include "PipeDream/Sosp19.h"
#include "pdc/Support/Diagnostics.h"

using namespace pdc;

Expected<Plan> pdc::planPipeline(const CostGraph& graph, const Cluster& cluster, const PlannerOptions& options,
                                 Diagnostics& diags) {
  if (graph.nodes.empty()) return diags.error({graph.model}) << "expected a graph with at least one node, got none";
  if (options.costModel == "pdc") return planPdc(graph, cluster, options, diags);
  if (options.costModel == "pipedream-code") return planPipedreamCode(graph, cluster, options, diags);
  if (options.costModel == "sosp19" || options.costModel == "pipedream-2018")
    return planSosp19(graph, cluster, options, diags);
  return diags.error({}).exit(ExitCode::usage).help("pdc, sosp19, pipedream-2018 and pipedream-code are known")
         << "the cost model '" << options.costModel << "' is not known";
}
