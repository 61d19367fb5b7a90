// The times of a run as those of a plan.
#include "pdc/Predict/RunTrace.h"

#include <algorithm>
#include <map>
#include <vector>

using namespace pdc;
using pdcrt::ActionKind;

namespace {

/// The computations of a stage of one kind: by minibatch or version, what they took.
class Durations {
public:
  void add(const pdcrt::TracedAction& traced) {
    taken_.emplace_back(traced.action.index, traced.endMs - traced.startMs);
  }

  bool any() const { return !taken_.empty(); }

  /// Over the middle half, which neither finds caches empty nor waits for the end of the run.
  double meanMs() {
    std::sort(taken_.begin(), taken_.end());
    const std::size_t from = taken_.size() / 4, to = taken_.size() - taken_.size() / 4;
    double sum = 0;
    for (std::size_t i = from; i < to; ++i) sum += taken_[i].second;
    return sum / static_cast<double>(to - from);
  }

private:
  std::vector<std::pair<std::int64_t, double>> taken_;
};

} // namespace

void pdc::takeTimes(Plan& plan, const RunTrace& run) {
  std::map<std::pair<int, ActionKind>, Durations> durations;
  for (const pdcrt::TracedAction& traced : run)
    if (!traced.action.wait && pdcrt::isComputation(traced.action.kind))
      durations[{traced.action.stage, traced.action.kind}].add(traced);
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    PlanStage& stage = plan.stages[s];
    auto take = [&](ActionKind kind, double& ms) {
      const auto found = durations.find({static_cast<int>(s), kind});
      if (found != durations.end() && found->second.any()) ms = found->second.meanMs();
    };
    take(ActionKind::forward, stage.forwardMs);
    take(ActionKind::update, stage.updateMs);
    take(ActionKind::backwardInput, stage.inputGradientMs);
    take(ActionKind::backwardWeight, stage.weightGradientMs);
    const double planned = stage.inputGradientMs + stage.weightGradientMs;
    double whole = planned;
    take(ActionKind::backward, whole);
    if (planned > 0) {
      stage.inputGradientMs *= whole / planned;
      stage.weightGradientMs *= whole / planned;
    } else {
      stage.inputGradientMs = whole;
    }
    stage.allReduceCoreMs = 0; // the run's own backwards and updates have it
    stage.hideSync(plan.schedule->splitsBackward);
  }
}
