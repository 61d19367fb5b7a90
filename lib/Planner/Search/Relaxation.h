// The relaxed problem: chains of states in which every stage costs what StageLoads says, devices are all as good as the
// best one, and only their number is limited. At a fixed time per minibatch the fewest devices are the label of a
// state, and one pass over the pairs of states decides whether a plan can be that fast: O(S²) stages, whatever the
// number of devices.
//
//   fewest(s, 0) = 0 for the empty state,   fewest(j) = min over i ⊂ j of fewest(i) + fewestReplicas(i, j)
//
// Where stages may be divided in several ways, a label is of a state and the split of the last stage: a replica takes
// as many devices as its team has members, and stages of different splits meet at clean borders only
// (docs/Planning.md).
//
// Fewest is best because nothing in the relaxed problem gets worse with more devices left. A pass that fails proves
// that no plan reaches the time, if the states are complete: every load of the definition is at least its term.
#pragma once

#include "Search/SplitLoads.h"

namespace pdc {

/// A chain of states with replicas.
struct RelaxedStage {
  int from = 0, to = 0, replicas = 1, split = 0;
};

class Relaxation {
public:
  Relaxation(const States& states, const SplitLoads& loads, const PlannerOptions& options, int devices);

  /// Labels all states for time limitMs. Returns whether the full state is reached with the devices that there are.
  bool label(double limitMs);

  /// From now on all stages have this split; -1, the start: each may have any. What is a bound of one split is none of
  /// others.
  void restrictTo(int split) { only_ = split; }

  /// Number of stages that every plan must have, or 0.
  int stageCount() const { return stageCount_; }

  /// Fewest devices for the state as the first stages of a plan (exactly `stages` where stageCount() > 0), within the
  /// last label(), if the stage after it has the split `next` (-1: none comes, or any); `unreachable` if impossible.
  int fewest(int state, int stages, int next) const;
  static constexpr int unreachable = 1 << 29;

  /// The plan behind fewest(last, stageCount(), -1).
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
  const StageLoads::Stage& stage(int j, std::size_t k, int split) const;

private:
  struct Label {
    int devices = unreachable, from = -1, replicas = 0;
  };
  Label& at(int stages, int state, int split) { return labels_[place(stages, state, split)]; }
  const Label& at(int stages, int state, int split) const { return labels_[place(stages, state, split)]; }
  std::size_t place(int stages, int state, int split) const {
    return (layer(stages) * states_.size() + state) * loads_.count() + split;
  }
  void findLeast(int stages, int state);
  void labelState(int stages, int j, int split, double limitMs);
  int lastSplit(int state, int stages, int next) const;
  std::size_t layer(int stages) const { return stageCount_ > 0 ? static_cast<std::size_t>(stages) : 0; }

  const States& states_;
  const SplitLoads& loads_;
  const PlannerOptions& options_;
  int devices_ = 0, stageCount_ = 0, only_ = -1;
  std::vector<Label> labels_;
  std::vector<int> leastMeeting_; ///< by layer and state: the fewest devices of the splits that may meet others there
  std::vector<std::vector<int>> before_;
  std::vector<std::vector<StageLoads::Stage>> kept_; ///< stages of before_, in each split, if they are not too many
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
