// The choice between the cost models of cost graphs.
#include "pdc/Published/Published.h"

#include "PipeDream/Code.h"
#include "PipeDream/Sosp19.h"
#include "pdc/Support/Diagnostics.h"

using namespace pdc;

Expected<Plan> pdc::planPublished(const CostGraph& graph, const Cluster& cluster, const PublishedOptions& options,
                                  Diagnostics& diags) {
  if (options.costModel == "pdc") return planPipeline(graph, cluster, options, diags);
  if (graph.nodes.empty()) return diags.error({graph.model}) << "expected a graph with at least one node, got none";
  if (options.costModel == "pipedream-code") return planPipedreamCode(graph, cluster, options, diags);
  if (options.costModel == "sosp19" || options.costModel == "pipedream-2018")
    return planSosp19(graph, cluster, options, diags);
  return diags.error({}).exit(ExitCode::usage).help("pdc, sosp19, pipedream-2018 and pipedream-code are known")
         << "the cost model '" << options.costModel << "' is not known";
}

Explanation pdc::explainPublished(const CostGraph& graph, const Cluster& cluster, const PublishedOptions& options,
                                  const Plan& plan) {
  OtherPlanner other;
  if (options.costModel != "pdc")
    other = [&](const CostGraph& otherGraph, const Cluster& otherCluster, const PlannerOptions& changed,
                Diagnostics& diags) {
      return planPublished(otherGraph, otherCluster, PublishedOptions{changed, options.costModel}, diags);
    };
  return explainPlan(graph, cluster, options, plan, other);
}
