// The solver of cost model `pipedream-code` (Code.h).
//
// 1. Solve on the simple states only: a good plan in milliseconds, mostly the best one already.
// 2. Few states: solve on all of them exactly (CodeSearch.h), the levels inside by dynamic programming over all
//    intervals, the outermost by thresholds.
// 3. Many states, on one or two levels: enumerate those that matter (allStates), and ask for plans of at most τ
//    (CodeReach.h), on the states that such a plan can use (CodePrune.h). They need not use every component. A τ
//    without a plan is a bound. A plan found is a plan of the model, since what it leaves unused is given to its
//    stages. Bisection goes on until both meet, up to the rounding of sums.
// 4. Otherwise (limits that ask for exact numbers of components, three levels, colours): keep the states that a plan at
//    least as fast can use, and solve on these. Where too many are left, a lower threshold is tried: if no plan meets
//    it, it is a bound.
//
// With two levels and many states the levels are taken apart as well: the outer one is solved with bounds in place of
// the inner times (the computation divided by the inner devices), and only the intervals that its best split uses are
// solved exactly, as flat problems, until no bound is left in the best split. Its time is then a bound for all splits,
// and met.
//
// States and what 3. may do are counted, about a second of them, or as many seconds as the time limit has. Where that
// ends, the plan and the bound are what is known.
#pragma once

#include "PipeDream/CodeReach.h"
#include "pdc/Planner/Planner.h"

#include <chrono>

namespace pdc {

/// A stage of the plan.
struct CodeLeaf {
  std::vector<std::uint64_t> nodes; ///< words of the set of nodes of this and all earlier stages
  std::vector<PlanNest> nest;
};

struct CodeSolution {
  double lowerBoundMs = 0; ///< infinite if there is no plan
  double timeMs = std::numeric_limits<double>::infinity();
  std::vector<CodeLeaf> leaves; ///< in pipeline order; none if no plan was found
};

class CodeSolver {
public:
  /// `enough`: of how many states the exact search makes a plan at once; 0 for what takes it about a second.
  CodeSolver(const CostGraph& graph, const Cluster& cluster, const PlannerOptions& options, std::size_t enough = 0);

  CodeSolution solve() const;

  /// Whether there is a plan with this memory limit. Beyond some states: whether there is one with simple states.
  bool fits(double stashBytes);

  /// Stages of the longest straight pipeline, with the same restriction.
  std::size_t longestChain() const;

private:
  using Levels = std::vector<CodeLevel>; ///< innermost first

  /// The best plan of (start, last state] whose stages end with the given states, if it is faster than `upper`.
  CodeSolution solveOn(const CodeStates& states, const Levels& levels, double lower, double upper) const;
  /// The best plan, or `known` with what could be proven.
  CodeSolution narrow(const CodeStates& states, const Levels& levels, CodeSolution known) const;
  /// Half a second, about.
  struct Work {
    double passes = 2e7;             ///< of the relaxation: states times devices
    std::size_t looks = 200'000'000; ///< at predecessors
  };
  /// solve() where there are many states, without limits that ask for an exact number of components.
  CodeSolution solveMany(CodeSolution known) const;
  /// `known` improved as far as plans prove and find that need not use every component (CodeReach.h). `goesOn`: with
  /// lower times where it is not known whether a plan is as fast.
  CodeSolution bracket(CodeStates states, CodeSolution known, bool goesOn, Work& left) const;
  CodeSolution takeApart(const CodeStates& states, CodeSolution known) const;
  /// The stages of (begin, end] at `level` and inside, appended to `leaves`.
  void trace(const CodeStates& states, const Levels& levels, const std::vector<CodeTimes>& times, std::size_t level,
             int begin, std::size_t end, double timeMs, std::vector<PlanNest>& nest,
             std::vector<CodeLeaf>& leaves) const;
  /// All states if they are at most `most`, else as many of the simple ones.
  CodeStates fewStates(std::size_t most) const;
  std::size_t enough(const Levels& levels) const { return enough_ ? enough_ : levels.size() <= 1 ? 1500 : 500; }
  bool expired() const;

  CodeNodes nodes_;
  double seconds_ = 1;         ///< that the search may take, about
  std::size_t most_ = 600'000; ///< states, of one second
  Levels levels_;              ///< of more than one component
  CodeLimits limits_;
  double timeLimitS_;
  std::size_t enough_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

} // namespace pdc
