// What may cross between stages of different splits, and in which size, by definition.
#include "Oracle/Definition.h"

#include <cmath>

using namespace pdc;

/// Whether nothing crosses from this stage, or one before it, to the next one, or one behind that, which only stages of
/// one of their splits can have; or of whose gradient members have terms, with users on both sides.
bool Definition::isCleanAt(int border) const {
  const auto isBefore = [&](std::int64_t node) { return stageOf_[static_cast<std::size_t>(node)] <= border; };
  for (std::size_t t = 0; t < graph_.tensors.size(); ++t) {
    if (!isBefore(graph_.tensors[t].from)) continue;
    bool usedBefore = false, usedBehind = false;
    for (std::int64_t user : graph_.tensors[t].to) (isBefore(user) ? usedBefore : usedBehind) = true;
    for (int side : {border, border + 1}) {
      const CostTensor& own = graphOf(side).tensors[t];
      if (usedBehind && (own.isOwn || (own.hasTerms && usedBefore))) return false;
    }
  }
  return true;
}

/// What a member of the receiver gets: stages of one split hand on what each member has, others whole values.
std::int64_t Definition::sizeBetween(std::size_t tensor, int from, int to) const {
  if (&graphOf(from) == &graphOf(to)) return graphOf(from).tensors[tensor].bytes;
  std::vector<const CostGraph*> all = {&graph_};
  for (const CostGraph& divided : graph_.divided) all.push_back(&divided);
  for (const CostGraph* graph : all)
    if (!graph->tensors[tensor].isPart && graph->tensors[tensor].bytes > 0) return graph->tensors[tensor].bytes;
  return graph_.tensors[tensor].bytes * graph_.split.members;
}

/// Each member sends the others its part; 0 where it has the whole.
double Definition::gatherMs(std::size_t tensor, int stage) const {
  const CostTensor& own = graphOf(stage).tensors[tensor];
  if (!own.isPart || plan_.cluster.levels.empty()) return 0;
  const ClusterLevel& level = plan_.cluster.levels[0];
  double seconds = level.latencyS;
  for (int other = 1; other < stages_[static_cast<std::size_t>(stage)].team; ++other)
    if (level.bandwidthBytesPerS > 0) seconds += static_cast<double>(own.bytes) / level.bandwidthBytesPerS;
  double speed = INFINITY;
  for (std::int64_t leaf : stages_[static_cast<std::size_t>(stage)].leaves)
    speed = std::min(speed, plan_.cluster.deviceAt(leaf).speed);
  return 1e3 * seconds / speed;
}

bool Definition::bordersAreClean() const {
  for (int s = 0; s + 1 < static_cast<int>(stages_.size()); ++s)
    if (&graphOf(s) != &graphOf(s + 1) && !isCleanAt(s)) return false;
  for (std::size_t p = 0; p < graph_.sharedParameters.size(); ++p)
    for (std::int64_t a : graph_.sharedParameters[p].nodes)
      for (std::int64_t b : graph_.sharedParameters[p].nodes) {
        const CostGraph &own = graphOf(stageOf_[static_cast<std::size_t>(a)]),
                        &other = graphOf(stageOf_[static_cast<std::size_t>(b)]);
        if (&own != &other && own.sharedParameters[p].isPart) return false;
      }
  return true;
}
