#include "Piper/Solver.h"

#include "Piper/Search.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace pdc;

static constexpr double infinity = std::numeric_limits<double>::infinity();
static constexpr double rounding = 1e-12; ///< of sums, relative

/// Shrinks [lower, solution.tps] until the bounds meet or time is up.
static void closeGap(PiperSearch& search, PiperSolution& solution) {
  double lower = std::min(search.workBound(), solution.tps);
  bool gallops = true; // up from the lower bound until a plan is found, then bisect
  for (double growth = 1.01; lower < solution.tps; growth *= growth) {
    double threshold = lower + (solution.tps - lower) / 2;
    if (gallops) threshold = std::min(threshold, lower * growth);
    if (!(threshold < solution.tps)) threshold = lower;
    if (search.run(threshold)) {
      solution = search.solution();
      gallops = false;
    } else {
      if (search.ranOutOfTime()) break;
      lower = std::min(search.next(), solution.tps);
    }
  }
  solution.lowerBound = lower;
}

/// Among the plans with that TPS, up to the rounding of sums, one with the least peak memory, and among these one that
/// moves the fewest bytes.
static void breakTies(PiperSearch& search, PiperSolution& solution) {
  double tps = solution.tps, bound = solution.lowerBound, threshold = tps * (1 + rounding);
  double lower = 0, upper = solution.memory;
  while (upper - lower > 1 && !search.ranOutOfTime()) {
    double middle = lower + std::floor((upper - lower) / 2);
    search.setMemory(middle);
    if (search.run(threshold)) {
      solution = search.solution();
      upper = middle;
    } else {
      lower = middle;
    }
  }
  search.setMemory(upper);
  search.countMoved();
  if (!search.ranOutOfTime() && search.run(threshold)) solution = search.solution();
  solution.tps = tps;
  solution.lowerBound = bound;
}

std::optional<PiperSolution> pdc::solvePiper(const PiperInstance& instance, const PiperSearchOptions& options) {
  PiperSearch search(instance, options);
  bool isFeasible = search.run(infinity);
  if (search.ranOutOfTime()) { // a plan, however late, or the proof that there is none
    PiperSearch patient(instance, {0, options.mostStates});
    if (!patient.run(infinity)) return std::nullopt;
    PiperSolution solution = patient.solution();
    solution.lowerBound = std::min(solution.tps, search.workBound());
    return solution;
  }
  if (!isFeasible) return std::nullopt;
  PiperSolution solution = search.solution();
  closeGap(search, solution);
  if (!search.isComplete()) solution.lowerBound = std::min(search.workBound(), solution.tps);
  if (!search.ranOutOfTime()) breakTies(search, solution);
  return solution;
}

std::optional<std::int64_t> pdc::fewestPiperDevices(const PiperInstance& instance, const PiperSearchOptions& options) {
  PiperSearch search(instance, {0, options.mostStates});
  if (!search.run(infinity)) return std::nullopt;
  return search.solution().devices;
}

std::optional<double> pdc::leastPiperMemory(const PiperInstance& instance, const PiperSearchOptions& options) {
  PiperSearch search(instance, {0, options.mostStates});
  double most = 0;
  for (const PiperInstanceNode& node : instance.nodes)
    for (const auto& list : node.options)
      for (const PiperOption& option : list)
        most += option.memoryA * static_cast<double>(instance.replicas) + option.memoryB;
  auto fits = [&](double memory) {
    search.setMemory(memory);
    return search.run(infinity);
  };
  double lower = std::floor(instance.memory), upper = std::max(1.0, lower);
  while (!fits(upper)) {
    if (upper > most) return std::nullopt;
    lower = upper;
    upper *= 2;
  }
  while (upper - lower > 1) {
    double middle = lower + std::floor((upper - lower) / 2);
    (fits(middle) ? upper : lower) = middle;
  }
  return upper;
}
