// What a stage costs in each of the splits that a graph offers, and where stages of different splits may meet.
#pragma once

#include "Search/StageLoads.h"

namespace pdc {

class SplitLoads {
public:
  /// `problems`: of each split of the graph; `states`: of the first of them.
  SplitLoads(const CostGraph& graph, const std::vector<SolverProblem>& problems, const States& states,
             const Machine& machine, const PlannerOptions& options);

  int count() const { return static_cast<int>(loads_.size()); }
  /// Members of a replica.
  int team(int split) const { return teams_[split]; }
  const StageLoads& of(int split) const { return loads_[split]; }

  /// Whether stage number `stage` may have this split, where the options say which.
  bool isOffered(int split, int stage) const { return given_.empty() || given_[stage] == split; }

  /// The same of a form.
  bool isOffered(const StageForm& form, int stage) const {
    return shards_.empty() || shards_[static_cast<std::size_t>(stage)] == form.shards;
  }

  /// Whether a stage of split `before` may end at a state where one of split `after` begins: what crosses there is
  /// whole in both, or they are one.
  bool mayMeet(int state, int before, int after) const {
    return before == after || (isClean(state, before) && isClean(state, after));
  }

  // The same for all splits.
  void align(int unit) {
    for (StageLoads& loads : loads_) loads.align(unit);
  }
  const std::vector<StageForm>& forms() const { return loads_[0].forms(); }
  const StageHost& best() const { return loads_[0].best(); }

  bool isClean(int state, int split) const { return clean_.empty() || clean_[state * loads_.size() + split]; }

private:
  std::vector<States> states_; ///< of all splits but the first
  std::vector<StageLoads> loads_;
  std::vector<int> teams_;
  std::vector<int> given_;   ///< by stage
  std::vector<bool> shards_; ///< the same
  std::vector<bool> clean_;  ///< by state and split; empty if there is one
};

} // namespace pdc
