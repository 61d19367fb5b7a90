// The buckets of a graph's gradients, and when the backward of a stage finishes them.
#pragma once

#include "pdc/Cost/CostModel.h"

#include <vector>

namespace pdc {

/// A bucket is final when the backward has passed the first node that has a part of it: the stage's nodes run backwards
/// in program order, after the second forward where there is one. Where schedules split the backward, only the times of
/// weight gradients count. A parameter that other stages use too is final when the backward ends, and so is what is
/// reduced after it.
class StageBuckets {
public:
  StageBuckets(const CostGraph& graph, const PlannerOptions& options);

  /// In the order in which stage number `stage` reduces them; empty where nothing can be hidden. `stageOf`: of each
  /// node.
  std::vector<GradientBucket> of(const PartitionStage& part, int stage, const std::vector<int>& stageOf) const;

private:
  double gradientMs(std::int64_t node) const;

  const CostGraph& graph_;
  bool splits_;
  std::vector<int> ofNode_;
};

} // namespace pdc
