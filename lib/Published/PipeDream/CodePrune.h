// Which states can be the end of a stage in a plan of at most a given time, cost model `pipedream-code` (Code.h).
//
// A relaxation: a state is only its sums of time and weights and its cut; stages need not be nested, and several levels
// are one flat level of all devices, on which a stage with q devices costs no more than with its best split of q among
// the levels. A stage (X, Y] on q devices then meets τ only if
//
//   t_Y - t_X + a_q·(w_Y - w_X) ≤ q·τ,   cut_X ≤ cap_q,   cut_Y ≤ cap_q unless Y is the last state
//
// (the last only on one level; a first stage has no cut_X and no cut_Y) with constants a_q and cap_q. So of the states
// reached with p devices only the largest t + a_q·w with a cut of at most cap_q matters, one number per p and q: the
// frontier of states that no other dominates in time, weights and cut, seen from the directions that count. Fewest
// devices from the start, then to the end; a state stays if both sum up to no more than there are.
//
// A second round demands nested stages as well: the least devices of a state by scanning the states with fewer, where
// the numbers above say that there may be one. Mostly the first state that it looks at is inside.
//
// Time O(states · devices) plus O(devices) for each state and number of devices near its own, memory O(states +
// devices²).
#pragma once

#include "PipeDream/CodeSearch.h"

namespace pdc {

/// States with the least devices that the stages before and after their end need in a relaxed plan.
struct CodeFastStates {
  std::vector<std::size_t> states; ///< ascending
  std::vector<int> fromStart, toEnd;

  /// About `most` of them, of `all`: the last one, and those with the smallest cuts among others of about the same
  /// time.
  CodeFastStates sample(const CodeStates& all, std::size_t most) const;
};

/// The states that pass the first round.
CodeFastStates fastStates(const CodeStates& states, const std::vector<CodeLevel>& levels, bool straight, double timeMs);

/// The states, ascending, that pass; none if no plan is that fast (which then is proven). `states` are sorted as
/// CodeStates::select sorts. Where more than `enough` pass on one level, a second round demands that stages are nested.
std::vector<std::size_t> statesOfFastPlans(const CodeStates& states, const std::vector<CodeLevel>& levels,
                                           bool straight, double timeMs, std::size_t enough);

} // namespace pdc
