#include "Chain/ChainBound.h"

#include "Numbers.h"

#include <algorithm>
#include <cmath>

using namespace pdc;

bool pdc::isBoundable(const SolverProblem& problem, const PlannerOptions& options, const Machine& machine) {
  return machine.classes().size() == 1 && machine.classes()[0].memoryBytes > 0 && machine.levels() > 0 &&
         !options.schedule->hasBatches && options.warmupPolicy == WarmupPolicy::hide && isChain(problem);
}

FewestLeaves::FewestLeaves(const ChainSums& sums, const PlannerOptions& options, const Machine& machine)
    : sums_(sums), options_(options), machine_(machine), devices_(static_cast<int>(machine.components(0))),
      levels_(machine.levels()), overlaps_(options.sync == SyncPolicy::overlap),
      stashes_(options.weights != pdcrt::WeightPolicy::latest),
      limitBytes_(static_cast<double>(machine.classes()[0].memoryBytes)) {
  for (int i = 0; i <= sums.n; ++i) {
    slots_.push_back((stashes_ ? sums.parameters[i] : 0) + sums.savedBytes[i]);
    work_.push_back(sums.workMs(0, i));
  }
}

/// All terms of a stage whose leaves meet at level `span`.
bool FewestLeaves::isFastEnough(const Stage& stage, int span, int replicas) const {
  double r = replicas, most = r * timeMs_ * forgiven;
  bool isAlone = stage.from == 0 && stage.to == sums_.n, isDelayed = overlaps_ && replicas > 1 && !isAlone;
  double ring = 2 * (r - 1) / r * stage.parameters, sync = 0;
  // Of the latency, 2(r - 1) of it, what two replicas have per replica: so that the terms fall with r from two on.
  if (replicas > 1) sync = r * machine_.routeLatencyMs(span) + ring / machine_.routeBytesPerMs(span);
  if (sync > most || stage.workMs > most) return false;
  double crossing = stage.in + stage.out;
  if (crossing + ring > most * machine_.bytesPerMs(0)) return false;
  for (int level = 1; level < levels_; ++level) {
    auto inside = static_cast<double>(machine_.inside(level));
    if (2 * inside - 1 > r) break;
    if (crossing * inside + (machine_.inside(level) < replicas ? ring : 0) > most * machine_.bytesPerMs(level))
      return false;
  }
  double states = options_.leastOptimizerState() + (stashes_ ? 0 : 1);
  double base =
      stage.parameters * states + stage.gradients * (isDelayed ? 2 : 1) + stage.frozen + 3 * stage.in + 2 * stage.out;
  double perMinibatch = stage.slotBytes + stage.in + stage.out, left = limitBytes_ * forgiven - base;
  if (left < perMinibatch) return false;
  if (stage.to == sums_.n || perMinibatch <= 0) return true;
  return std::floor(left / perMinibatch) * most >= sums_.behindMs(stage.from);
}

int FewestLeaves::fewest(const Stage& stage, int span, int least, int most) const {
  if (least > most) return 0;
  if (isFastEnough(stage, span, least)) return least;
  // A single replica has neither all-reduce nor second gradient; from two on the terms fall within a range.
  int low = least;
  if (low == 1) {
    if (most < 2) return 0;
    if (isFastEnough(stage, span, low = 2)) return 2;
  }
  for (int level = 1; level < levels_; ++level) {
    // Another term begins at 2P - 1.
    auto border = static_cast<int>(std::min<std::int64_t>(2 * machine_.inside(level) - 2, most));
    if (border <= low || border == most) continue;
    if (int found = isFastEnough(stage, span, border) ? border : 0; found > 0) {
      most = border;
      break;
    }
    low = border;
    if (isFastEnough(stage, span, low + 1)) return low + 1;
    ++low;
  }
  if (low >= most || !isFastEnough(stage, span, most)) return 0;
  int high = most;
  while (high - low > 1) {
    int middle = low + (high - low) / 2;
    (isFastEnough(stage, span, middle) ? high : low) = middle;
  }
  return high;
}

/// The first leaf behind the stage, if that is before `before`; else infinity.
double FewestLeaves::endOf(const Stage& stage, double begin, double before) const {
  double best = before;
  auto first = static_cast<std::int64_t>(begin);
  int least = std::max(1, static_cast<int>(std::ceil(stage.workMs / (timeMs_ * forgiven) * (1 - 1e-9))));
  for (int span = 0; span < levels_; ++span) {
    // Within one component of the next level, from `first` on or from the next border.
    std::int64_t inside = span + 1 < levels_ ? machine_.inside(span + 1) : devices_;
    int most = static_cast<int>(std::min<double>(static_cast<double>(inside), best - begin - 1));
    int r = fewest(stage, span, least, most);
    if (r == 0) continue;
    std::int64_t left = inside - first % inside;
    double end = static_cast<double>(r <= left ? first + r : first + left + r);
    best = std::min(best, end);
    if (r <= left) break;
  }
  return best < before ? best : infinity;
}

void FewestLeaves::improve(int i, int j) {
  Stage stage{i,
              j,
              work_[j] - work_[i],
              sums_.parameters[j] - sums_.parameters[i],
              sums_.gradients[j] - sums_.gradients[i],
              sums_.frozen[j] - sums_.frozen[i],
              slots_[j] - slots_[i],
              sums_.inBytes(i, j),
              sums_.outBytes(i, j)};
  need_[j] = std::min(need_[j], endOf(stage, need_[i], need_[j]));
}

/// stageMemory() with one minibatch in flight, in part: parameters, optimizer, a gradient set, and what is saved. Left
/// out are scratch, handovers, what is sent and received, and frozen parameters that several nodes use.
double FewestLeaves::leastBytes(int i, int j) const {
  double states = options_.leastOptimizerState() + (stashes_ ? 0 : 1);
  return (sums_.parameters[j] - sums_.parameters[i]) * states + sums_.gradients[j] - sums_.gradients[i] +
         sums_.frozen[j] - sums_.frozen[i] + slots_[j] - slots_[i];
}

double FewestLeaves::need(double timeMs) {
  timeMs_ = timeMs;
  const int n = sums_.n;
  const double perT = 1 / (timeMs * forgiven), perM = perT / (limitBytes_ * forgiven);
  need_.assign(work_.size(), infinity);
  behindShare_.assign(work_.size(), 0);
  for (int i = 0; i <= n; ++i) behindShare_[i] = sums_.behindMs(i) * perM;
  need_[0] = 0;
  constexpr int block = 64;
  int first = 0; // what begins before it does not fit into memory, whatever T is
  for (int j = 1; j <= n; ++j) {
    while (first < j && leastBytes(first, j) > limitBytes_ * forgiven) ++first;
    // No label above this one leads to a plan.
    double most = 2.0 * devices_ - (work_[n] - work_[j]) * perT * (1 - 1e-9);
    need_[j] = std::floor(most + 1e-6) + 1;
    const double limit = need_[j];
    for (int end = j; end > first; end -= block) {
      int begin = std::max(first, end - block);
      // Replicas that computation alone needs; more than a component has must reduce over the links between several.
      double atLeast = (work_[j] - work_[end - 1]) * perT, reducing = 0;
      for (int level = 1; level < levels_ && atLeast > static_cast<double>(machine_.inside(level)) + 1; ++level)
        reducing = 2 * (1 - 1 / atLeast) / machine_.routeBytesPerMs(level) * perT;
      auto leaves = [&, works = work_[j], slots = slots_[j], parameters = sums_.parameters[j], isLast = j == n](int i) {
        double computing = (works - work_[i]) * perT, keeping = isLast ? 0 : (slots - slots_[i]) * behindShare_[i];
        return need_[i] + std::max({computing, keeping, (parameters - sums_.parameters[i]) * reducing});
      };
      double least = infinity;
      for (int i = begin; i < end; ++i) least = std::min(least, leaves(i));
      if (least * (1 - 1e-9) > need_[j] - 1) continue;
      for (int i = end - 1; i >= begin; --i)
        if (leaves(i) * (1 - 1e-9) <= need_[j] - 1) improve(i, j);
    }
    if (need_[j] >= limit) need_[j] = infinity;
  }
  return need_[n];
}

double pdc::chainBound(const ChainSums& sums, const PlannerOptions& options, const Machine& machine, double lowMs,
                       double highMs) {
  constexpr int mostPlaces = 20'000, mostPasses = 6, mostRoughPasses = 12;
  constexpr double closeEnough = 1.001, rough = 1.02;
  if (sums.n > mostPlaces || !sums.everyGradientReturns || !(highMs < 1e300) || lowMs <= 0) return lowMs;
  FewestLeaves leaves(sums, options, machine);
  auto devices = static_cast<double>(machine.components(0));
  double guess = std::min(lowMs * closeEnough, highMs);
  for (int pass = 0; highMs > lowMs * (pass < mostPasses ? closeEnough : rough) && pass < mostRoughPasses; ++pass) {
    double need = leaves.need(guess), share = need / devices;
    (share > 1 ? lowMs : highMs) = guess;
    // Leaves are needed about as 1/T; past the guess, so that the other side is likely to be hit next.
    guess *= share < 2 ? share * (share > 1 ? 1.0005 : 0.9995) : 1.6;
    if (guess <= lowMs || guess >= highMs) guess = std::sqrt(lowMs * highMs);
    guess = std::clamp(guess, lowMs * std::sqrt(closeEnough), highMs / std::sqrt(closeEnough));
  }
  return lowMs;
}

double pdc::chainMemoryBound(const SolverProblem& problem, const PlannerOptions& options, const Machine& machine) {
  if (!isBoundable(problem, options, machine)) return 0;
  ChainSums sums(problem, options, machine);
  if (!sums.everyGradientReturns) return 0;
  auto limitBytes = static_cast<double>(machine.classes()[0].memoryBytes);
  bool stashes = options.weights != pdcrt::WeightPolicy::latest;
  // Of the last stage from each place on; in front of it, of each place.
  std::vector<double> workMs(static_cast<std::size_t>(sums.n), infinity), memoryMs(workMs.size(), 0);
  for (int i = 0; i < sums.n; ++i) {
    double slot = sums.savedBytes[i + 1] - sums.savedBytes[i];
    if (stashes) slot += sums.parameters[i + 1] - sums.parameters[i];
    memoryMs[i] = slot * sums.behindMs(i) / limitBytes;
    double atOnceBytes = sums.parameters[sums.n] - sums.parameters[i] + sums.gradients[sums.n] - sums.gradients[i] +
                         sums.frozen[sums.n] - sums.frozen[i] + sums.savedBytes[sums.n] - sums.savedBytes[i];
    if (atOnceBytes <= limitBytes) workMs[i] = sums.workMs(i, sums.n);
  }
  double least = infinity, before = 0;
  for (int i = 0; i < sums.n; ++i) {
    least = std::min(least, before + workMs[i]);
    before += memoryMs[i];
  }
  if (least == infinity) return 0; // nothing fits, which is for others to say
  return least / static_cast<double>(machine.components(0)) * (1 - 1e-9);
}
