// What two stages of a chain tell each other over the border between them, by their splits.
//
// Stages of one split hand on what members have; between different splits whole values and gradients cross, and members
// that have parts gather them first (Cost/CostModel.h). What follows from the two stages at a border alone is exact, so
// all numbers are the least that a plan with this border takes, but for likely trips.
#pragma once

#include "Search/SplitLoads.h"

namespace pdc {

class ChainBorders {
public:
  ChainBorders(const CostGraph& graph, const std::vector<SolverProblem>& problems, const SplitLoads& loads,
               const PlannerOptions& options, const Machine& machine);

  static constexpr int mixed = -1; ///< of a border: there are different splits at its sides

  /// A value and its gradient over the border at place j, one after the other, in ms; `split`: of both sides, or mixed;
  /// `isLikely`: as slow as it may be, wherever the two stages are.
  double tripMs(int j, int split, bool isLikely) const {
    return (isLikely ? likelyTrips_ : leastTrips_)[static_cast<std::size_t>(j) * static_cast<std::size_t>(splits_ + 1) +
                                                   static_cast<std::size_t>(split + 1)];
  }

  /// Whether members of a split have parts of what crosses place j, or may not meet others there.
  bool isParted(int j, int split) const { return parted_[index(j, split)]; }

  /// What the forward of a stage [i, j) gathers for a stage of another split behind it, in ms at speed 1.
  double valuesMs(int i, int j, int split) const;
  /// What the backward of a stage that begins at place i gathers for a stage of another split in front of it.
  double gradientsMs(int i, int split) const { return gradients_[index(i, split)]; }

private:
  std::size_t index(int j, int split) const {
    return static_cast<std::size_t>(j) * static_cast<std::size_t>(splits_) + static_cast<std::size_t>(split);
  }
  void addTensor(const CostTensor& tensor, int split, const std::vector<int>& placeOf, const Machine& machine,
                 int members);

  /// A value that a node at a place uses.
  struct Value {
    int from = 0;
    double ms = 0;
  };
  int splits_ = 1;
  std::vector<double> leastTrips_, likelyTrips_; ///< by place: mixed, then of each split
  std::vector<bool> parted_;                     ///< by place and split, as all that follows
  std::vector<std::vector<Value>> values_;       ///< in parts, with a user at the place
  std::vector<double> gradients_;
};

} // namespace pdc
