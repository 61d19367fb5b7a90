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
      solution.tps = std::min(solution.tps, threshold); // they may differ by the rounding of sums
      gallops = false;
    } else {
      if (search.ranOutOfTime()) break;
      lower = std::min(std::max(search.next(), std::nextafter(threshold, infinity)), solution.tps);
    }
  }
  solution.lowerBound = lower;
}

/// More than any stage takes.
static double mostMemory(const PiperInstance& instance) {
  double most = 1;
  for (const PiperInstanceNode& node : instance.nodes)
    for (const auto& list : node.options)
      for (const PiperOption& option : list)
        most += option.memoryA * static_cast<double>(instance.replicas) + option.memoryB;
  return std::ceil(most);
}

/// Lowers `upper`, which fits, to the least that does, in whole bytes; `lower` does not fit.
template <class Fits>
static double leastThatFits(double lower, double upper, Fits&& fits) {
  while (upper - lower > 1) {
    double middle = lower + std::floor((upper - lower) / 2);
    if (!(middle > lower && middle < upper)) break; // beyond the precision of doubles
    (fits(middle) ? upper : lower) = middle;
  }
  return upper;
}

/// Among the plans with that TPS, up to the rounding of sums, one with the least peak memory, and among these one that
/// moves the fewest bytes.
static void breakTies(const PiperInstance& instance, PiperSearch& search, PiperSolution& solution) {
  double tps = solution.tps, bound = solution.lowerBound, threshold = tps * (1 + rounding);
  double most = std::min(solution.memory, mostMemory(instance));
  double least = leastThatFits(-1, most, [&](double memory) {
    search.setMemory(memory);
    if (search.ranOutOfTime() || !search.run(threshold)) return false;
    solution = search.solution();
    return true;
  });
  search.setMemory(least);
  search.countMoved();
  if (!search.ranOutOfTime() && search.run(threshold)) solution = search.solution();
  solution.tps = tps;
  solution.lowerBound = bound;
}

std::optional<PiperSolution> pdc::solvePiper(const PiperInstance& instance, const PiperSearchOptions& options,
                                             bool* isExhaustive) {
  PiperSearch search(instance, options);
  if (isExhaustive) *isExhaustive = search.isComplete();
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
  if (!search.ranOutOfTime()) breakTies(instance, search, solution);
  return solution;
}

std::optional<std::int64_t> pdc::fewestPiperDevices(const PiperInstance& instance, const PiperSearchOptions& options) {
  PiperSearch search(instance, {0, options.mostStates});
  if (!search.run(infinity)) return std::nullopt;
  return search.solution().devices;
}

std::optional<double> pdc::leastPiperMemory(const PiperInstance& instance, const PiperSearchOptions& options) {
  PiperSearch search(instance, {0, options.mostStates});
  auto fits = [&](double memory) {
    search.setMemory(memory);
    return search.run(infinity);
  };
  // Gallop, as little memory needs few menus.
  double lower = -1, upper = std::max(1.0, std::floor(instance.memory)), most = mostMemory(instance);
  for (; !fits(upper); upper = std::min(2 * upper, most)) {
    if (upper >= most) return std::nullopt;
    lower = upper;
  }
  return leastThatFits(lower, upper, fits);
}
