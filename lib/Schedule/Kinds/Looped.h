// What the schedules share whose ranks host several stages: the order of a batch at each rank, and what follows from
// it.
#pragma once

#include "pdc/Schedule/PipelineShape.h"

#include <optional>
#include <string_view>

namespace pdc {

/// The V of a name `prefix`V; nothing where `text` is no such name, or V is not 2 to 1,024.
std::optional<int> stagesPerRankIn(std::string_view text, std::string_view prefix);

/// Of one batch, whose minibatches count from 0 at each replica.
struct Computation {
  pdcrt::ActionKind kind = pdcrt::ActionKind::forward; ///< or backward, backwardInput, backwardWeight
  int stage = 0;
  std::int64_t minibatch = 0;
};

/// What each rank computes in a batch, in order.
using BatchOrder = std::vector<std::vector<Computation>>;

/// A kind whose ranks host several stages. All stages have the same number of replicas R, copies of one pipeline: rank
/// r·R + q hosts replica q of the stages of rank r. How far a stage runs ahead follows from the order, not from
/// StageShape::warmup.
class LoopedKind : public ScheduleDef {
public:
  using ScheduleDef::ScheduleDef;

  /// The order of n minibatches, of one replica, on `ranks` ranks.
  virtual BatchOrder order(int ranks, std::int64_t n) const = 0;

  pdcrt::Schedule frame(const PipelineShape& shape) const override;
  pdcrt::Schedule build(const PipelineShape& shape) const override;

private:
  /// For the replica with the most minibatches.
  BatchOrder orderOf(const PipelineShape& shape) const;
};

} // namespace pdc
