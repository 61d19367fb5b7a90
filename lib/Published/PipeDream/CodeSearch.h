// Exact search for the best split of one interval of states at one level, cost model `pipedream-code` (Code.h).
//
// Whether a split with a time of at most τ exists is decided by one pass over the pairs of nested states. The label of
// a state is the set of exact numbers of components on which the states up to it can run. For fixed τ the numbers of
// replicas that a stage may have are {1} if that meets τ, and all from a least number r on, since compute and sync
// per replica fall with every replica from the second on; so a pass costs no loop over components. A pass that fails
// returns the smallest time above τ of a stage that it rejected: no split is faster than that, because below it the
// same pass would run again. Bisection between those bounds ends in a τ that is a proven bound and is met: the optimum.
//
// Time O(pairs · runs · components/64), memory O(pairs).
#pragma once

#include "PipeDream/CodeStates.h"

#include <functional>
#include <limits>

namespace pdc {

/// A level of more than one component.
struct CodeLevel {
  int count = 1;
  double bytesPerMs = 0;
  int inner = 1; ///< components of the level inside
};

struct CodeLimits {
  bool straight = false;
  double stashBytes = std::numeric_limits<double>::infinity(); ///< S of Code.h
};

/// Times of intervals on one component: entry (begin + 1)·states + end, infinite where begin is not inside end;
/// begin = -1 is the empty set.
using CodeTimes = std::vector<double>;

/// A stage that ends with a state and has this many replicas.
struct CodeCut {
  std::size_t end = 0;
  int replicas = 1;
};

/// What a stage costs as a function of its replicas.
struct CodeStage {
  double insideMs = 0, weights = 0;
  double edge = 0; ///< largest cut at its ends that is charged
  double share = 1;

  /// In the order of operations of the source.
  double timeMs(int replicas, double bytesPerMs) const {
    double sync = 4.0 * (replicas - 1) * weights / (bytesPerMs * replicas) / share;
    double compute = (insideMs + sync) / replicas, transfer = 2.0 * edge / (bytesPerMs * replicas);
    return compute > transfer ? compute : transfer;
  }
};

class CodeSearch {
public:
  /// Stages end with states of `states` (as CodeStates::select sorts) after `begin` (-1: from the start) up to `end`.
  /// `inside` may be null at the innermost level.
  CodeSearch(const CodeStates& states, const CodeLevel& level, const CodeLimits& limits, const CodeTimes* inside,
             int begin, std::size_t end);

  /// Whether a split of at most `timeMs` exists. If not, `rejected` is a bound that no split is below.
  bool reaches(double timeMs);
  double rejected() const { return rejected_; }

  struct Answer {
    double lowerBoundMs = 0;                                 ///< no split is faster
    double timeMs = std::numeric_limits<double>::infinity(); ///< a split with at most this time exists, if finite
  };
  /// The smallest time of a split if that is less than `upper`; both numbers are equal then. `stop` is asked now and
  /// then whether to give up.
  Answer best(double lower, double upper, const std::function<bool()>& stop);

  /// The split with the fewest stages among those of at most `timeMs`, and among these with the earliest cuts, the last
  /// cut first. reaches(timeMs) must hold.
  std::vector<CodeCut> trace(double timeMs) const;

private:
  using Bits = std::uint64_t;

  CodeStage stage(int from, std::size_t to) const;
  double stash(int from, std::size_t to) const;
  double slowestStage() const;
  /// Adds to `after` the numbers of components to which the stage leads from those of `before`; lowers `rejected` to
  /// the least time above timeMs of what it refuses.
  void extend(const Bits* before, Bits* after, const CodeStage& stage, double stash, bool last, double timeMs,
              double& rejected) const;

  const CodeStates& states_;
  CodeLevel level_;
  CodeLimits limits_;
  const CodeTimes* inside_;
  int begin_;
  std::size_t words_;                 ///< of a set of numbers of components
  std::vector<std::size_t> members_;  ///< states, `end` last
  std::vector<std::uint32_t> before_; ///< places in members_ of the states inside each, one after the other
  std::vector<std::size_t> first_;    ///< where each one's begin in before_
  std::vector<Bits> reach_;
  double rejected_ = 0;
};

/// The times of all intervals at a level for the level outside: exact dynamic programming over exact numbers of
/// components. Time O(states³ · count²), for few components.
CodeTimes timesOfIntervals(const CodeStates& states, const CodeLevel& level, const CodeLimits& limits,
                           const CodeTimes* inside);

/// The sum of the nodes' times of an interval.
inline double computeMs(const CodeStates& states, int from, std::size_t to) {
  double ms = states.timeMs[to] - (from < 0 ? 0 : states.timeMs[static_cast<std::size_t>(from)]);
  return ms > 0 ? ms : 0;
}

} // namespace pdc
