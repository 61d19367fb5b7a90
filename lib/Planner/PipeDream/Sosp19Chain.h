// Plans along one linear order of the units.
//
// The smallest threshold at which Reach gets to the end bounds every plan along the order from below. At a threshold a
// plan that uses all components is searched depth first, from the front: stage by stage, level inside level, with
// furthest ends first, pruned by Reach on the mirrored chain (how near to the front so many components get from the
// end) and by how many components the units can absorb at all; what failed is remembered. If the search succeeds at the
// bound, the plan is optimal for the order. That is the rule: a stage whose weights are light can absorb any number of
// components. Otherwise the threshold is raised, and a gap remains that Sosp19Rows.h may close.
#pragma once

#include "PipeDream/Sosp19Fill.h"

#include <array>
#include <optional>
#include <unordered_map>

namespace pdc::sosp19 {

class ChainSearch {
public:
  ChainSearch(const Problem& problem, const Chain& chain);

  /// Whether the relaxed problem allows a time of tau: if not, no plan along the order takes tau or less.
  bool mayReach(double tau);

  /// A plan along the order of at most tau, if one is found within so many steps.
  std::optional<Placement> place(double tau, std::int64_t steps);

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

  bool fits(std::size_t k, std::int64_t q, int from, int to);
  bool search(Unit& unit, int p, std::int64_t left);
  bool tryStage(Unit& unit, int p, int end, std::int64_t m);
  void emit(std::size_t k, std::int64_t q, int from, int to, std::vector<Share>& shares, Placement& placement) const;

  const Problem& problem_;
  Chain chain_, mirror_;
  Reach reach_, mirrorReach_;
  Fill fill_, mirrorFill_;
  std::int64_t stepsLeft_ = 0;
  std::unordered_map<Key, std::vector<Step>, KeyHash> known_; ///< stages of (k, q, from, to); none: failed
};

} // namespace pdc::sosp19
