// Plans of long chains, from the last stage to the first, on exact leaves.
//
// For a time T a label of place i is a plan of the places from i on, on the last `leaves` leaves of the cluster:
//
//   leaves    how many it takes
//   ahead     max over its stages u of w_u·R_u - behind(u)/T, behind(u) = computation and transfers behind stage u:
//             what the loops to u ask of a stage in front of it. For stage s with the computation C and behind(s),
//             (w_s + 1)·R_s ≥ ahead + (C + behind(s))/T, and with its all-reduce, which a forward waits for one update
//             later, (w_s + 2)·R_s ≥ max_u(R_s·ceil(w_u·R_u / R_s) - behind(u)/T) + (C + behind(s) + sync)/T
//   carried   for each level, bytes on the link of the component that is partly filled
//
// A stage [i, p) in front of a label takes the fewest replicas with which computation, all-reduce, memory and the links
// of the components that it fills or closes take no longer than T, or so many that it ends on the border of a
// component. Each place keeps one label per level: the best of those that end on such a border (level 0: of all). The
// best is the one that leaves most for the places in front: its leaves and, weighed, the memory that minibatches in
// flight take there, weight·(ahead + all behind / T)·slots(i)/M.
//
// These are plans, not bounds: a label may hide a better one, and several effects are approximate (the share of
// transfers that cross a border, transfers past a stage). The cost model evaluates every plan.
//
// Complexity of one T: O(n·l·levels²), l the lengths of stages that are tried: all small ones, then ever fewer.
#pragma once

#include "Chain/ChainSums.h"

#include <cstdint>
#include <vector>

namespace pdc {

class ChainFill {
public:
  ChainFill(const ChainSums& sums, const PlannerOptions& options, const Machine& machine);

  struct Choice {
    double timeMs = 0;
    double weight = 1;      ///< of memory in front, as above
    double memoryShare = 1; ///< of the memory that is used, for what is approximate
    int lengths = 24;       ///< of stages: all of them up to so many places, then as many in each stretch of that share
  };
  struct Stages {
    std::vector<int> ends, replicas; ///< empty: no plan
  };
  Stages plan(const Choice& choice);

  /// Stages tried since construction, as a measure of work that does not depend on the machine.
  std::int64_t steps() const { return steps_ + walked_ / 10; }

  static constexpr int mostLevels = 6;

private:
  struct Label {
    double key = 1e300;
    int leaves = 0, next = -1, nextKind = 0, replicas = 0;
    double ahead = 0, allMs = 0, behindMs = 0, inFlight = 0; ///< allMs: computation and transfers from here on
    double carried[mostLevels] = {};
  };
  struct Stage {
    int from = 0, to = 0;
    double workMs = 0, loopMs = 0, parameters = 0, gradients = 0, frozen = 0, slotBytes = 0, in = 0, out = 0;
  };

  void extend(int p, int kind);
  Stage stageOf(int i, int p) const;
  void tryStage(const Stage& stage, const Label& behind, int kind);
  bool attempt(const Stage& stage, const Label& behind, int kind, int replicas);
  bool crosses(const Stage& stage, const Label& behind, int replicas, Label& label, int& span) const;
  double transfersMs(const Stage& stage, const Label& behind, int span) const;
  double inFlight(const Stage& stage, const Label& behind, int replicas, double behindMs, double sync);
  double baseBytes(const Stage& stage, int replicas) const;
  int memoryReplicas(const Stage& stage, const Label& behind, int replicas) const;
  int syncReplicas(double parameters, int level, int least, int most) const;
  double syncMs(double parameters, int level, int replicas) const;
  double keyOf(int i, double leaves, double ahead, double allMs) const;
  Label& label(int kind, int i) { return labels_[static_cast<std::size_t>(kind)][static_cast<std::size_t>(i)]; }
  const Label& label(int kind, int i) const {
    return labels_[static_cast<std::size_t>(kind)][static_cast<std::size_t>(i)];
  }

  const ChainSums& sums_;
  const PlannerOptions& options_;
  const Machine& machine_;
  int devices_ = 0, levels_ = 0;
  double limitBytes_ = 0;
  bool stashes_ = true;
  Choice choice_;
  std::vector<int> lengths_;               ///< of stages that are tried
  std::vector<double> slots_;              ///< bytes per minibatch in flight, of prefixes
  std::vector<std::vector<Label>> labels_; ///< by kind (the level whose borders it ends on) and place
  std::int64_t steps_ = 0, walked_ = 0;
};

} // namespace pdc
