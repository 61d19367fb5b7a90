// Who watches a run.
#pragma once

#include "collectives/TeamWork.h"
#include "pdcrt/Schedule.h"
#include "pdcrt/Status.h"

#include <cstdint>

namespace pdcrt {

struct HostedStage;

/// Is told what happens, by the thread that runs the executor. Minibatches count from the beginning of the training.
class RunObserver : public TeamObserver {
public:
  virtual void loss(int /*stage*/, std::int64_t /*minibatch*/, double /*value*/) {}
  /// A scalar from which a loss is computed, by its name.
  virtual void term(int /*stage*/, const char* /*name*/, std::int64_t /*minibatch*/, double /*value*/) {}
  /// An update of a stage was skipped, because its gradients were not finite.
  virtual void skipped(const HostedStage&, std::int64_t /*update*/) {}
  /// Called before each action.
  virtual void begins(const Action&) {}
  /// A computation, or the time spent in a wait.
  virtual void acted(const Action&, double /*begin*/, double /*end*/) {}
  /// After a computation, before the next action; a failure ends the run.
  virtual Status computed(const Action&) { return {}; }
  /// A transfer or all-reduce, seen complete when it was awaited.
  virtual void transferred(const Action&, double /*posted*/, double /*completed*/) {}
  /// Called after each action of a training. Returns how many minibatches the run has, which may only shrink.
  virtual std::int64_t minibatches(std::int64_t planned) { return planned; }
};

} // namespace pdcrt
