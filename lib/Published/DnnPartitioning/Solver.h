// The best contiguous split of an instance, with a proof.
//
// 1. An upper bound: the best split of a few topological orders of the classes, each found exactly by step 4 on the
//    prefixes of the order as the only states.
// 2. Contraction with that bound (Instance.h), CPUs undercharged.
// 3. All down-sets of what is left (States.h).
// 4. Bounds τ are tried (Search.h): first just below the best plan known, which mostly proves at once that it is best;
//    then in between. A feasible τ gives a plan and so an upper bound, an infeasible one the smallest amount that it
//    found too large, a lower bound. Each run moves one of the two past τ, and it ends when they meet. All amounts are
//    whole numbers: there is no epsilon.
// 5. If the plan found has a CPU that was undercharged and so is not as good as it seems, its value is still a lower
//    bound; the classes on that CPU are made strict, and it goes on with 2. Each time there are more of them.
//
// Each run grows each stage from each state that is not dominated: at worst O(pairs of nested down-sets · tensors per
// class), and there are about log2(first gap / smallest difference of loads) runs.
#pragma once

#include "DnnPartitioning/Search.h"

namespace pdc::placement {

struct Solution {
  std::vector<Stage> stages; ///< of the instance's classes, in pipeline order; empty if no plan is known
  Amount value = never;      ///< its largest load
  Amount proven = 0;         ///< no plan has a smaller one; never: there is no plan
  std::size_t states = 0;    ///< down-sets after contraction; 0: too many
  int runs = 0;              ///< bounds tried on them
  std::int64_t grown = 0;    ///< steps of growing stages in these
};

Solution solve(const Instance& instance, const Limits& limits);

/// The fewest accelerators that can hold everything, whatever the time, if there is no CPU; 0 if no number can, or if
/// it cannot be told within the limits.
int fewestAccelerators(Instance instance, const Limits& limits);

} // namespace pdc::placement
