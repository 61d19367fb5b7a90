// The cost models and planners of other people's publications (docs/PlannerModels.md), for comparison and as
// references. Only pdc-plan knows them: pdc plans with its own.
#pragma once

#include "pdc/Planner/Explain.h"
#include "pdc/Planner/Planner.h"

#include <string>

namespace pdc {

struct PublishedOptions : PlannerOptions {
  std::string costModel = "pdc"; ///< or "sosp19", "pipedream-2018", "pipedream-code"
};

/// planPipeline under options.costModel.
Expected<Plan> planPublished(const CostGraph& graph, const Cluster& cluster, const PublishedOptions& options,
                             Diagnostics& diags);

/// explainPlan of a plan of planPublished.
Explanation explainPublished(const CostGraph& graph, const Cluster& cluster, const PublishedOptions& options,
                             const Plan& plan);

} // namespace pdc
