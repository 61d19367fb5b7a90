#include "SplitTable.h"

#include "pdc/Cost/CostModel.h"

#include <algorithm>
#include <iomanip>
#include <sstream>

using namespace pdc;

/// The stages of `plan` if all had the split of an offer, with room for every team.
static Plan planWith(const OfferedSplit& offer, const Plan& plan, const PlannerOptions& planner) {
  Partition partition;
  std::int64_t devices = 0;
  for (const PlanStage& stage : plan.stages) {
    partition.stages.push_back({.nodes = stage.nodes,
                                .replicas = stage.replicas,
                                .recompute = stage.recompute,
                                .split = 0,
                                .team = offer.split.members,
                                .ofClass = {}});
    devices += std::int64_t{stage.replicas} * offer.split.members;
  }
  Cluster machines = offer.machines;
  machines.levels = {machines.levels.front()};
  machines.levels[0].count = devices;
  machines.device = machines.deviceAt(0);
  machines.devices.clear();
  CostGraph graph = *offer.costs;
  graph.split = offer.split; // the graph of a member, which a team of so many devices computes
  Plan with = describePartition(graph, machines, planner, partition, false);
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    with.stages[s].warmup = plan.stages[s].warmup;
    with.stages[s].hideSync(plan.schedule->splitsBackward);
  }
  const std::vector<std::int64_t> bytes = memoryOf(with, planner);
  for (std::size_t s = 0; s < bytes.size(); ++s) with.stages[s].memoryBytes = bytes[s];
  return with;
}

/// What binds a stage by itself: its devices, or the sums of its replicas.
static std::string bindingLoad(const PlanStage& stage, double updatesPerMinibatch) {
  const double syncMs = stage.syncDelay == 0 ? stage.unhiddenSyncMs() : 0;
  const double devicesMs = (stage.computeMs() + updatesPerMinibatch * (stage.updateMs + syncMs)) / stage.replicas;
  const double sumsMs = updatesPerMinibatch * stage.allReduceMs / stage.replicas;
  std::ostringstream text;
  text << std::fixed << std::setprecision(3)
       << (sumsMs > devicesMs                              ? "bound by its all-reduce, "
           : stage.exposedTeamMs() > stage.computeMs() / 2 ? "bound by its team, "
           : syncMs + stage.updateMs > stage.computeMs()   ? "bound by its updates, "
                                                           : "bound by what it computes, ")
       << std::max(sumsMs, devicesMs) << " ms per minibatch";
  return text.str();
}

std::string pdc::tableOfSplits(const std::vector<OfferedSplit>& offers, const Plan& plan,
                               const PlannerOptions& planner) {
  const double updates = plan.schedule->hasBatches ? 1.0 / static_cast<double>(planner.microbatches) : 1;
  std::vector<std::pair<const OfferedSplit*, Plan>> plans;
  for (const OfferedSplit& offer : offers)
    if (offer.costs) plans.emplace_back(&offer, planWith(offer, plan, planner));
  std::ostringstream text;
  text << std::fixed;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    text << "splits of stage " << s << ", with "
         << (plan.stages[s].replicas == 1 ? std::string("one replica")
                                          : std::to_string(plan.stages[s].replicas) + " replicas")
         << ":\n";
    for (const auto& [offer, with] : plans) {
      const PlanStage& stage = with.stages[s];
      std::int64_t teamBytes = 0;
      for (const std::int64_t node : stage.nodes)
        teamBytes += offer->costs->nodes[static_cast<std::size_t>(node)].teamBytes;
      text << (plan.stages[s].split == offer->split ? "  taken  " : "         ") << std::left << std::setw(8)
           << toText(offer->split) << std::right << std::setprecision(3) << "computes "
           << stage.computeMs() - stage.exposedTeamMs() << " ms";
      if (!offer->split.isNone())
        text << ", waits " << stage.exposedTeamMs() << " ms for its team, which hides " << stage.hiddenTeamMs()
             << " ms more and gets " << std::setprecision(1) << static_cast<double>(teamBytes) / 1e6 << " MB";
      text << "; " << std::setprecision(1) << static_cast<double>(stage.memoryBytes) / 1e6 << " MB in each; "
           << bindingLoad(stage, updates) << "; times " << offer->profile.source << "\n";
    }
  }
  return text.str();
}
