#include "Chain/PlanChain.h"

#include "Chain/ChainBound.h"
#include "Chain/ChainFill.h"
#include "Chain/ComponentPlans.h"
#include "Chain/RackBound.h"

#include <cmath>

using namespace pdc;

namespace {

/// The search for the smallest time at which ChainFill finds a plan that is as fast as that: roughly, with few lengths
/// of stages, from the bound upwards and by bisection, and then with more lengths for what is left. Bounded by the
/// stages that it tries, so the answer is the same everywhere.
class FillSearch {
public:
  FillSearch(const SolverProblem& problem, const PlannerOptions& options, const Machine& machine, const ChainSums& sums,
             Incumbent& incumbent)
      : problem_(problem), options_(options), sums_(sums), fill_(sums, options, machine), incumbent_(incumbent) {}

  void run(double lowMs) {
    constexpr int few = 6, many = 24;
    constexpr double roughly = 1.01, closely = 1.002, finer = 1.007;
    double failedMs = lowMs, reachedMs = 0;
    int failures = 0;
    for (double step : {1.04, 1.12, 1.25, 1.5, 2.0, 4.0}) {
      double timeMs = std::min(lowMs * step, std::sqrt(failedMs * incumbent_.limitMs()));
      if (!mayContinue() || timeMs < failedMs * closely) return;
      if (isReached(timeMs, few)) {
        reachedMs = incumbent_.limitMs();
        break;
      }
      failedMs = timeMs;
      // Little is to be won, and whole components are a better guess.
      constexpr double little = 1.15;
      if (++failures == 2 && incumbent_.limitMs() < lowMs * little) return;
    }
    // What fails at one time, or with few lengths, need not at a smaller time with many.
    constexpr double much = 1.12, nearer = 1.1;
    if (mayContinue() && reachedMs > lowMs * much && isReached(lowMs * nearer, many)) reachedMs = incumbent_.limitMs();
    while (mayContinue() && failedMs * roughly < reachedMs) {
      double timeMs = std::sqrt(failedMs * reachedMs);
      (isReached(timeMs, few) ? reachedMs : failedMs) = timeMs;
    }
    // What fails with few lengths need not with many.
    failedMs = lowMs;
    while (mayContinue() && failedMs * closely < reachedMs) {
      double timeMs = std::max(std::sqrt(failedMs * reachedMs), reachedMs / finer);
      (isReached(timeMs, many) ? reachedMs : failedMs) = timeMs;
    }
  }

private:
  bool mayContinue() const { return fill_.steps() + evaluated_ < effort && !incumbent_.isLate(); }

  bool isReached(double timeMs, int lengths) {
    // What the labels leave out takes memory too.
    for (double share : {0.998, 0.98}) {
      ChainFill::Stages stages = fill_.plan({timeMs, 1, share, lengths});
      if (stages.ends.empty()) break;
      evaluated_ += static_cast<std::int64_t>(stages.ends.size() * stages.ends.size());
      if (!incumbent_.offer(sums_.partitionOf(problem_, options_, stages.ends, stages.replicas)) ||
          incumbent_.limitMs() <= timeMs * closeEnough)
        break;
    }
    return incumbent_.limitMs() <= timeMs * closeEnough;
  }

  static constexpr std::int64_t effort = 30'000'000;
  static constexpr double closeEnough = 1.002;
  const SolverProblem& problem_;
  const PlannerOptions& options_;
  const ChainSums& sums_;
  ChainFill fill_;
  Incumbent& incumbent_;
  std::int64_t evaluated_ = 0; ///< steps that evaluations are worth: a loop between any two stages
};

} // namespace

void pdc::planChain(const SolverProblem& problem, const PlannerOptions& options, const Machine& machine, double& lowMs,
                    Incumbent& incumbent) {
  if (!incumbent.found() || !isBoundable(problem, options, machine) || options.straight ||
      !options.stageReplicas.empty() || machine.sharesCores())
    return;
  ChainSums sums(problem, options, machine);
  lowMs = chainBound(sums, options, machine, lowMs, incumbent.limitMs());
  constexpr std::int64_t evaluations = 3'000'000;
  incumbent.allow(evaluations);
  const double before = incumbent.limitMs();
  if (machine.levels() <= ChainFill::mostLevels) FillSearch(problem, options, machine, sums, incumbent).run(lowMs);
  if (incumbent.limitMs() >= before) planComponents(problem, options, machine, lowMs, incumbent);
  lowMs = rackBound(sums, options, machine, lowMs, incumbent.limitMs());
}
