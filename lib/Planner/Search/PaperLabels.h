// Plans under PipeDream's warm-up, from the last stage to the first, with what stages ask of those in front of them.
//
// A stage on R replicas with D replicas behind it has y = ceil((D + R) / R) minibatches in flight, but no more than
// floor(m / R) of a batch of m (Predict/Warmup.h, paperWarmup), which all stages together have no more replicas than.
// So memory bounds R from below as soon as D is known. The relaxation labels states from the first stage on and does
// not know D; here a label of state i is of the stages behind it: (devices, D).
//
// Proof that a time without a label of the empty state has no plan: by induction from the last stage, some label of
// each state of a plan as fast is in no number above what the plan has there. Both numbers only make the stages in
// front harder to place, and a label is given up only for one that is in no number above it. Where a front has too many
// labels, neighbours become one with the least of both.
//
// Complexity of one time: pairs of states times splits times labels of a front.
#pragma once

#include "Search/Search.h"

namespace pdc {

class PaperLabels {
public:
  PaperLabels(const States& states, const SplitLoads& loads, const PlannerOptions& options, const Machine& machine,
              Relaxation& relaxation);

  /// Whether this holds: the warm-up is PipeDream's, the schedule does not drain, devices are equal, replicas share
  /// nothing, and the planner chooses replicas and splits.
  static bool apply(const PlannerOptions& options, const Machine& machine);

  /// All stages labelled after this have teams of so many; 0, the start: each may have any.
  void restrictTo(int team) { team_ = team; }

  /// Labels all states for time `timeMs`. Returns whether there is a plan with the devices that there are.
  bool label(double timeMs);

  /// The plan of the fewest devices.
  std::vector<ChainStage> path() const;

  /// The largest bound of its stages.
  double timeOf(const std::vector<ChainStage>& chain) const;

private:
  struct Label {
    int devices = 0, replicas = 0; ///< of all stages from here on
    int next = -1;                 ///< label behind the stage
    ChainStage stage;
  };
  using Front = std::vector<int>; ///< labels of which none is in no number above another

  void extend(int i, int j, std::size_t k, int split, const StageForm& form);
  int replicasFor(const StageLoads::Flight& flight, int fewest, int behind) const;
  void insert(Front& front, Label label);
  void thin(Front& front);
  /// Labels that a stage of this split may meet at a state: all that may meet others, or those of its split.
  Front& frontOf(int state, int split) {
    return fronts_[static_cast<std::size_t>(state)]
                  [loads_.isClean(state, split) ? 0 : 1 + static_cast<std::size_t>(split)];
  }

  const States& states_;
  const SplitLoads& loads_;
  const PlannerOptions& options_;
  Relaxation& relaxation_;
  int devices_ = 0, mostReplicas_ = 0, team_ = 0;
  double timeMs_ = 0;
  std::vector<Label> labels_;
  std::vector<std::vector<Front>> fronts_; ///< by state: of all splits that meet, then of each
};

/// Raises `lowMs` as far as the labels prove and offers plans to `incumbent`: of all splits, and then of teams of each
/// size alone, between which borders take no more than the bounds know.
void searchPaper(PaperLabels& labels, const SplitLoads& loads, double& lowMs, const States& states,
                 Incumbent& incumbent);

} // namespace pdc
