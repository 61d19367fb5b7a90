// Plans along one linear order of the units.
//
// Three relaxations of "a plan of at most τ that uses all components", each monotone in τ, bound it from below:
//
//   reached   all of the chain is reached if components may stay unused (Reach), and all components are used if work
//   may
//             be left out (Fill): the smallest such τ takes a few ms to find and is mostly attained
//   windows   the same from the mirrored chain: from where d components may get to the end at all. For a component of
//             level k and the end `to` a position p is alive with d left if near[d] ≤ p ≤ late[d]
//   alive     sets of counts: alive(p) holds d if a chain of stages goes from p to `to` with exactly d components, each
//             stage p → b on m components allowed by its synchronisation and its cuts, and by
//             fill(k-1, q·m, p) ≤ b ≤ reach(k-1, q·m, p) inside. Exact for the level, relaxed for those inside
//
// At a threshold a plan is searched depth first, from the front, stage by stage and level inside level, furthest ends
// first, along what is alive; what failed is remembered. If it succeeds at the bound, the plan is optimal for the
// order. `alive` looks at pairs of positions (as far as a stage can go) and is only used when `windows` does not lead
// to a plan.
#pragma once

#include "PipeDream/Sosp19Counts.h"
#include "PipeDream/Sosp19Fill.h"
#include "pdc/Planner/Order/Threshold.h"

#include <array>
#include <optional>
#include <unordered_map>

namespace pdc::sosp19 {

class ChainSearch {
public:
  ChainSearch(const Problem& problem, const Chain& chain);

  /// Whether the first relaxation allows a time of tau: if not, no plan along the order takes tau or less.
  bool mayReach(double tau);

  /// The same for the third; unknown after so many steps.
  ThresholdRun::Answer isAlive(double tau, std::int64_t steps);

  /// A plan along the order of at most tau, if one is found within so many steps: along windows, or what is alive.
  std::optional<Placement> place(double tau, std::int64_t steps, bool alongAlive);

  /// Steps taken since construction, as a measure of work that does not depend on the machine.
  std::int64_t steps() const;

private:
  struct Step {
    int end = 0;
    std::int64_t count = 0;
  };
  struct Unit; ///< one component of a level for which stages are searched
  using Key = std::array<std::int64_t, 4>;
  struct KeyHash {
    std::size_t operator()(const Key& key) const;
  };

  struct Interval {
    std::int64_t first = 2, last = 1;
  };
  void setThreshold(double tau);
  bool mayStep();
  bool findAlive(Unit& unit);
  bool searchAlive(Unit& unit, int p, std::int64_t left);
  Interval syncCounts(const Unit& unit, int from, int to) const;
  Interval stageCounts(const Unit& unit, int from, int to);
  bool fits(std::size_t k, std::int64_t q, int from, int to);
  bool search(Unit& unit, int p, std::int64_t left);
  bool tryStage(Unit& unit, int p, int end, std::int64_t m);
  void emit(std::size_t k, std::int64_t q, int from, int to, std::vector<Share>& shares, Placement& placement) const;

  const Problem& problem_;
  Chain chain_, mirror_;
  Reach reach_, mirrorReach_;
  Fill fill_, mirrorFill_;
  std::int64_t stepsLeft_ = 0, pairs_ = 0, lastStep_ = 0;
  bool alongAlive_ = false;
  std::unordered_map<Key, std::vector<Step>, KeyHash> known_; ///< stages of (k, q, from, to); none: failed
};

} // namespace pdc::sosp19
