// The oracle: every cut of the program order with every choice of replicas.
#include "pdc/Planner/Verifier.h"

#include "pdc/Schedule/PlanSchedule.h"

#include <algorithm>

using namespace pdc;

static bool tearsColour(const CostGraph& graph, std::int64_t cut) {
  for (std::int64_t u = 0; u < cut; ++u)
    for (std::size_t v = cut; v < graph.nodes.size(); ++v)
      if (graph.nodes[u].colour >= 0 && graph.nodes[u].colour == graph.nodes[v].colour) return true;
  return false;
}

namespace {

class Enumeration {
public:
  Enumeration(const CostGraph& graph, const Cluster& cluster, const PlannerOptions& options)
      : graph_(graph), cluster_(cluster), options_(options) {}

  void extend(std::int64_t begin, std::int64_t devices) {
    auto nodes = static_cast<std::int64_t>(graph_.nodes.size());
    if (begin == nodes) return evaluate();
    for (std::int64_t end = begin + 1; end <= nodes; ++end) {
      if (end < nodes && tearsColour(graph_, end)) continue;
      for (int r = 1; r <= devices; ++r) {
        if (options_.straight && r > 1) break;
        partition_.ends.push_back(end);
        partition_.replicas.push_back(r);
        extend(end, devices - r);
        partition_.ends.pop_back();
        partition_.replicas.pop_back();
      }
    }
  }

  std::optional<PlanCost> best;

private:
  void evaluate() {
    if (!options_.stageReplicas.empty() && partition_.replicas != options_.stageReplicas) return;
    Plan plan = describePartition(graph_, cluster_, options_, partition_, false);
    PlanCost cost = costOf(plan, options_);
    if (cost.warmup.empty()) return;
    for (std::size_t s = 0; s < plan.stages.size(); ++s) plan.stages[s].warmup = cost.warmup[s];
    if (plan.schedule == "1f1b")
      cost = evaluateByDefinition(graph_, plan, options_);
    else
      cost.loadMs = std::max(cost.loadMs, simulate(plan, buildSchedule(shapeOf(plan))).timePerMinibatchMs);
    if (cost.feasible && (!best || cost.loadMs < best->loadMs)) best = cost;
  }

  const CostGraph& graph_;
  const Cluster& cluster_;
  const PlannerOptions& options_;
  Partition partition_;
};

} // namespace

std::optional<PlanCost> pdc::bruteForce(const CostGraph& graph, const Cluster& cluster, const PlannerOptions& options) {
  Enumeration enumeration(graph, cluster, options);
  enumeration.extend(0, cluster.deviceCount());
  return enumeration.best;
}
