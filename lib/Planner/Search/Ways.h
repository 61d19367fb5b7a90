// What must be computed, forwards and backwards, before and after a stage has a minibatch, whatever the stages are.
//
// Let way(s) be the longest way of a minibatch from stage 0 to stage s and of its gradient back along the same stages:
// their computation, forwards and backwards. A plan of few stages cannot put parallel branches into stages of their
// own, so the whole of a stage lies on the way, not the longest path through its blocks. With at most k stages that
// make up the down-set I, and a block w behind I that needs a value of I whose gradient it sends back, at least
//
//   ways_k(I, w) = min over H ⊂ I of max( through [H, I) if w needs a value of it,  ways_k-1(H, w) if it needs one of H
//   ) through [H, I) = work of [H, I)  +  max over blocks w' of it that need values of H:  ways_k-1(H, w')
//
// because [H, I), the last of these stages, computes all of its blocks before any value leaves it, and nothing before
// all values that enter it are there. The first stage begins at once: through [∅, I) = work of I. Where no value with a
// gradient enters a stage nothing is known of it, and so on. For stage [I, J): way ≥ max over w in J of ways(I, w).
#pragma once

#include "Search/States.h"

namespace pdc {

class SolverWays {
public:
  /// `mostStages` of a plan; nothing is known where there are too many states.
  SolverWays(const SolverProblem& problem, const States& states, int mostStages);

  /// In ms on a device of speed 1, of the stage between states i and j: at least.
  double before(int i, int j) const;

private:
  /// A block behind a state that needs values of it whose gradients it sends back.
  struct User {
    int block = 0;
    int needs = 0;       ///< blocks of the state that it needs
    double ways[2] = {}; ///< of the last two numbers of stages
  };

  void findUsers(const SolverProblem& problem);
  void extend(int from, int to, bool isFirst);
  double into(int i, int j, int which) const;

  const States& states_;
  std::vector<std::vector<User>> users_; ///< of each state, by block
  int last_ = 0;
};

} // namespace pdc
