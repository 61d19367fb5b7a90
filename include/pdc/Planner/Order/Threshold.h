// Search for the smallest bottleneck with a certificate.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>

namespace pdc {

/// What a run with a bound on the bottleneck says.
struct ThresholdRun {
  enum class Answer { feasible, infeasible, unknown } answer = Answer::unknown;
  /// feasible: the bottleneck of the plan found, at most the threshold. infeasible: a lower bound on every bottleneck,
  /// at least the threshold (a run that knows the smallest load it rejected says that one). unknown: ignored.
  double value = 0;
};

/// The interval in which the smallest bottleneck lies, and whether it is a point up to rounding.
struct ThresholdInterval {
  double lower = 0, upper = 0;
  bool isClosed(double relative) const { return lower >= upper * (1 - relative); }
};

/// Narrows the interval until it is closed or a run says unknown. `run(τ)` looks for a plan with a bottleneck of at
/// most τ. `upper` is the bottleneck of a plan that is known, so the first run asks whether it can be beaten at all:
/// often it cannot, and one run proves it. Then bisection (geometric while the ends are far apart), each answer
/// narrowing by the value that it carries; about log2(upper / lower / relative) runs at most.
inline ThresholdInterval searchThreshold(ThresholdInterval interval, double relative,
                                         const std::function<ThresholdRun(double)>& run) {
  bool asksForLess = true;
  while (!interval.isClosed(relative)) {
    double lower = interval.lower, upper = interval.upper, middle = (lower + upper) / 2;
    if (lower > 0 && upper > 2 * lower) middle = std::sqrt(lower) * std::sqrt(upper);
    double tau = asksForLess ? upper * (1 - relative) : middle;
    asksForLess = false;
    ThresholdRun result = run(tau);
    if (result.answer == ThresholdRun::Answer::unknown) break;
    if (result.answer == ThresholdRun::Answer::feasible)
      interval.upper = std::min(tau, result.value);
    else
      interval.lower = std::max(tau, result.value);
  }
  return interval;
}

} // namespace pdc
