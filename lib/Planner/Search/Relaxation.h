// The relaxed problem: chains of states in which every stage costs what StageLoads says, devices are all as good as the
// best one, and only their number is limited. At a fixed time per minibatch the fewest devices are the label of a
// state, and one pass over the pairs of states decides whether a plan can be that fast: O(S²) stages, whatever the
// number of devices.
//
//   fewest(s, 0) = 0 for the empty state,   fewest(j) = min over i ⊂ j of fewest(i) + fewestReplicas(i, j)
//
// Fewest is best because nothing in the relaxed problem gets worse with more devices left. A pass that fails proves
// that no plan reaches the time, if the states are complete: every load of the definition is at least its term.
#pragma once

#include "Search/StageLoads.h"

namespace pdc {

/// A chain of states with replicas.
struct RelaxedStage {
  int from = 0, to = 0, replicas = 1;
};

class Relaxation {
public:
  Relaxation(const States& states, const StageLoads& loads, const PlannerOptions& options, int devices);

  /// Labels all states for time limitMs. Returns whether the full state is reached with the devices that there are.
  bool label(double limitMs);

  /// Number of stages that every plan must have, or 0.
  int stageCount() const { return stageCount_; }

  /// Fewest devices for the state as the first stages of a plan (exactly `stages` where stageCount() > 0), within the
  /// last label(); `unreachable` if impossible.
  int fewest(int state, int stages) const { return at(stages, state).devices; }
  static constexpr int unreachable = 1 << 29;

  /// The plan behind fewest(last, stageCount()).
  std::vector<RelaxedStage> path() const;

  /// The largest bound of its stages.
  double timeOf(const std::vector<RelaxedStage>& path) const;

  /// The smallest time of the relaxed problem, or, after so many passes, a lower bound of it. It is at least `low`, and
  /// `high` is reached. Every passing label() is shown to `visit` as its path; ends early when that returns false.
  template <class Visit>
  double smallestTime(double low, double high, int passes, Visit visit);

  /// States that precede state j, ascending.
  const std::vector<int>& before(int j) const { return before_[j]; }

  /// The stage between before(j)[k] and j; valid until the next call.
  const StageLoads::Stage& stage(int j, std::size_t k) const;

private:
  struct Label {
    int devices = unreachable, from = -1, replicas = 0;
  };
  Label& at(int stages, int state) { return labels_[layer(stages) * states_.size() + state]; }
  const Label& at(int stages, int state) const { return labels_[layer(stages) * states_.size() + state]; }
  std::size_t layer(int stages) const { return stageCount_ > 0 ? static_cast<std::size_t>(stages) : 0; }

  const States& states_;
  const StageLoads& loads_;
  const PlannerOptions& options_;
  int devices_ = 0, stageCount_ = 0;
  std::vector<Label> labels_;
  std::vector<std::vector<int>> before_;
  std::vector<std::vector<StageLoads::Stage>> kept_; ///< stages of before_, if there are not too many
  mutable StageLoads::Stage scratch_;
};

template <class Visit>
double Relaxation::smallestTime(double low, double high, int passes, Visit visit) {
  // A passing run says exactly what its path takes; when nothing is faster than that, it is the answer. So first the
  // largest smaller time is tried, and bisection between what failed and what passed is for the rest.
  constexpr double justBelow = 1 - 1e-10;
  for (bool tryNext = true; passes > 0 && low < high * justBelow; --passes) {
    double limitMs = tryNext || high - low < 1e-6 * high ? high * justBelow : low + (high - low) / 2;
    bool last = limitMs == high * justBelow;
    if (label(limitMs)) {
      std::vector<RelaxedStage> found = path();
      high = std::min(limitMs, timeOf(found));
      if (!visit(found)) break;
    } else {
      low = limitMs;
      if (last) return high;
    }
    tryNext = false;
  }
  return low < high * justBelow ? low : high;
}

} // namespace pdc
