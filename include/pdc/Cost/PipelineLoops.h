// Warm-up: how many minibatches must be in flight for a time per minibatch, and what time a warm-up allows.
#pragma once

#include "pdc/Cost/Loads.h"

#include <functional>
#include <utility>

namespace pdc {

class PipelineLoops {
public:
  PipelineLoops(const Pipeline& pipeline, const Loads& loads);

  /// The longest time that a loop between two stages imposes; infinite if this warm-up is not legal.
  ResourceLoad slowest(const std::vector<int>& warmup) const;

  /// The same where no stage waits for an update on its way: of batches without a drain.
  double slowestMsOfBatches(const std::vector<int>& warmup) const;

  /// The smallest warm-up with which no loop takes longer than `timeMs`. `next` receives the smallest longer time for
  /// which a smaller warm-up suffices; infinity if there is none.
  std::vector<int> warmupFor(double timeMs, double& next) const;

private:
  template <class Visit>
  void forEach(int s, Visit visit) const;
  double timeOf(int s, int u, double loopMs, std::int64_t w, std::int64_t wu) const;
  std::int64_t leastAhead(const SharedUse& use, const std::vector<int>& warmup) const;

  const Pipeline& pipeline_;
  const Loads& loads_;
  std::vector<std::size_t> firstEdge_; ///< of each stage, in pipeline_.edges
  mutable std::vector<double> there_, back_;
  mutable std::vector<std::pair<int, double>> loops_; ///< of one stage: the other stage and ms, computation included
};

/// The smallest time, at least `leastMs`, whose warm-up passes `fits`, and that warm-up; empty if there is none.
/// `adjust` may raise the warm-up of a time; more warm-up must not fit where less does not.
struct WarmupChoice {
  double timeMs = 0;
  std::vector<int> warmup;
};
WarmupChoice fastestWarmup(const PipelineLoops& loops, double leastMs,
                           const std::function<void(std::vector<int>&)>& adjust,
                           const std::function<bool(const std::vector<int>&)>& fits);

} // namespace pdc
