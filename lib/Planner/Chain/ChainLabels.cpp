#include "Chain/ChainLabels.h"

#include "Chain/ChainSums.h"
#include "Numbers.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

using namespace pdc;

static constexpr double rounding = 1e-7; // of numbers of minibatches

bool ChainLabels::apply(const std::vector<SolverProblem>& problems, const States& states, const PlannerOptions& options,
                        const Machine& machine) {
  const ScheduleDef& kind = *options.schedule;
  if (!states.isComplete() || states.size() != static_cast<int>(problems[0].blocks.size()) + 1 || states.size() < 3)
    return false;
  if (machine.classes().size() != 1 || machine.classes()[0].memoryBytes <= 0 || machine.levels() == 0) return false;
  if (kind.splitsBackward || kind.isGiven || kind.stagesPerRank > 1 || (kind.hasBatches && !kind.flushes)) return false;
  if (options.warmupPolicy != WarmupPolicy::hide || !options.stageReplicas.empty() || !options.stageSplits.empty() ||
      !options.stageShards.empty())
    return false;
  return isChain(problems[0]) && ChainSums(problems[0], options, machine).everyGradientReturns;
}

ChainLabels::ChainLabels(const CostGraph& graph, const std::vector<SolverProblem>& problems, const States& states,
                         const SplitLoads& loads, const PlannerOptions& options, const Machine& machine,
                         Relaxation& relaxation)
    : states_(states), loads_(loads), options_(options), machine_(machine), relaxation_(relaxation),
      flushes_(options.schedule->hasBatches),
      waitsForSlots_(flushes_ && options.schedule->takesWarmup() && !options.schedule->forwardsFirst),
      microbatches_(static_cast<double>(options.microbatches)), n_(states.last()),
      devices_(static_cast<int>(std::min<std::int64_t>(machine.components(0), 1 << 20))),
      borders_(graph, problems, loads, options, machine) {
  backwardShare_ = machine.coreMs(1) > 0 || loads.count() > 1 ? 1 : 0; // gathers may be in backwards alone
  for (const CostNode& node : graph.nodes) {
    const double backwardMs = node.inputGradientMs + node.weightGradientMs +
                              (options.recompute != RecomputePolicy::none ? node.forwardMs : 0);
    if (backwardMs > 0) backwardShare_ = std::max(backwardShare_, backwardMs / (node.forwardMs + backwardMs));
  }
}

bool ChainLabels::label(double timeMs, Of of) {
  timeMs_ = timeMs;
  of_ = of;
  labels_.assign(1, Label{});
  fronts_.assign(static_cast<std::size_t>(n_) + 1, std::vector<Front>(static_cast<std::size_t>(loads_.count()) + 1));
  fronts_.back()[0] = {0};
  if (!relaxation_.label(timeMs)) return false;
  for (int i = n_ - 1; i >= 0; --i)
    for (int split = 0; split < loads_.count(); ++split) {
      if (only_ >= 0 && split != only_) continue;
      if (relaxation_.fewest(i, 0, i == 0 ? -1 : split) >= devices_) continue;
      for (int j = i + 1; j <= n_; ++j) extend(i, j, split);
    }
  for (const Front& front : fronts_[0])
    if (!front.empty()) return true;
  return false;
}

/// Stages of one split between two places, with what they gather for those of other splits at either side.
void ChainLabels::extend(int i, int j, int split) {
  constexpr int mixed = ChainBorders::mixed;
  const bool isBoundBehind = j < n_ && borders_.isParted(j, split), isBound = i > 0 && borders_.isParted(i, split);
  const auto mayBeBehind = [&](bool meets) { return meets ? !isBoundBehind || mayMeet(j, split) : isBoundBehind; };
  int mostOfAll = 0;
  for (const bool meetsBehind : {true, false})
    if (mayBeBehind(meetsBehind))
      mostOfAll = std::max(mostOfAll, mostReplicas(i, j, split, frontOf(j, meetsBehind ? mixed : split)));
  if (mostOfAll < 1 || !findFewest(i, j, split, mostOfAll)) return;
  for (const bool meetsBehind : {true, false}) {
    if (!mayBeBehind(meetsBehind)) continue;
    const Front& behind = frontOf(j, meetsBehind ? mixed : split);
    if (mostReplicas(i, j, split, behind) < 1) continue;
    Border border{borders_.tripMs(j, meetsBehind ? mixed : split, of_ == Of::likelyPlans)};
    if (meetsBehind && isBoundBehind) border.valuesMs = borders_.valuesMs(i, j, split);
    for (const bool meets : {true, false}) {
      if (meets ? isBound && !mayMeet(i, split) : !isBound) continue;
      border.gradientsMs = meets && isBound ? borders_.gradientsMs(i, split) : 0;
      extend(i, j, split, border, behind, frontOf(i, meets ? mixed : split));
    }
  }
}

int ChainLabels::mostReplicas(int i, int j, int split, const Front& behind) const {
  if (behind.empty()) return 0;
  const int team = loads_.team(split), before = i == 0 ? 0 : relaxation_.fewest(i, 0, split);
  const int most = (devices_ - before - labels_[static_cast<std::size_t>(behind.front())].devices) / team;
  if ((states_.leastMs(j) - states_.leastMs(i)) / loads_.best().speed > timeMs_ * (most + 1)) return 0;
  return options_.straight ? std::min(1, most) : most;
}

/// The fewest replicas of each form that are fast enough without what is gathered. False: none is.
bool ChainLabels::findFewest(int i, int j, int split, int most) {
  const StageLoads& loads = loads_.of(split);
  const StageLoads::Stage& stage = relaxation_.stage(j, static_cast<std::size_t>(i), split);
  fewest_.clear();
  for (const StageForm& form : loads.forms()) fewest_.push_back(loads.fewestReplicas(stage, timeMs_, most, form));
  return std::any_of(fewest_.begin(), fewest_.end(), [](int fewest) { return fewest > 0; });
}

void ChainLabels::extend(int i, int j, int split, const Border& border, const Front& behind, Front& front) {
  const StageLoads& loads = loads_.of(split);
  const int most = mostReplicas(i, j, split, behind);
  for (std::size_t f = 0; f < loads.forms().size(); ++f) {
    const StageForm& form = loads.forms()[f];
    int fewest = fewest_[f]; // gathering takes no fewer
    if (fewest == 0 || fewest > most) continue;
    StageLoads::Stage stage = relaxation_.stage(j, static_cast<std::size_t>(i), split);
    // Values that have been gathered are kept, so recomputing does not gather them again.
    (form.recompute ? stage.backwardMs : stage.forwardMs) += border.valuesMs;
    stage.backwardMs += border.gradientsMs;
    const bool gathers = border.valuesMs > 0 || border.gradientsMs > 0;
    if (gathers && !(loads.bound(stage, fewest, form, loads.best()) <= timeMs_))
      fewest = loads.fewestReplicas(stage, timeMs_, most, form);
    if (fewest == 0) continue;
    flights_.clear();
    const Stage own{.loads = loads,
                    .stage = stage,
                    .split = split,
                    .team = loads_.team(split),
                    .fewest = fewest,
                    .most = most,
                    .form = form,
                    .tripMs = border.tripMs,
                    .lateValuesMs = form.recompute ? border.valuesMs : 0};
    extend(own, behind, front);
  }
}

void ChainLabels::extend(const Stage& stage, const Front& behind, Front& front) {
  for (int id : behind) {
    const Label label = labels_[static_cast<std::size_t>(id)];
    const bool isStraddling =
        of_ == Of::likelyPlans && machine_.machineSize() < devices_ && label.devices % stage.team != 0;
    if (!isStraddling) (flushes_ ? addFlushing(stage, label, id, front) : addAsynchronous(stage, label, id, front));
  }
}

ChainLabels::Flight ChainLabels::flightOf(const Stage& stage, int replicas) const {
  const StageLoads::Flight of = stage.loads.flight(stage.stage, replicas, stage.form);
  Flight flight;
  flight.replicas = replicas;
  flight.isFastEnough =
      replicas == stage.fewest || stage.loads.bound(stage.stage, replicas, stage.form, stage.loads.best()) <= timeMs_;
  flight.computeMs = of.computeMs;
  flight.backwardMs = of.backwardMs - stage.lateValuesMs;
  flight.loopMs = of.computeMs + of.updateMs + (of.isDelayed ? 0 : of.exposedMs);
  flight.syncLoopMs = of.isDelayed ? of.computeMs + of.updateMs + of.syncMs : 0;
  flight.workMs = std::ceil(microbatches_ / replicas) * of.computeMs;
  flight.endMs = options_.shards(2, stage.form.shards) ? 0 : of.updateMs + of.exposedMs;
  flight.isExposed = replicas > 1 && (!of.isDelayed || of.syncMs > 0.25 * replicas * timeMs_);
  const std::int64_t room = stage.loads.best().limitBytes - of.baseBytes;
  if (room >= 0) flight.mostWarmup = of.bytesPerWarmup > 0 ? room / of.bytesPerWarmup : std::int64_t{1} << 40;
  return flight;
}

const ChainLabels::Flight& ChainLabels::flight(const Stage& stage, int replicas) {
  const auto at = static_cast<std::size_t>(replicas - stage.fewest);
  if (flights_.size() <= at) flights_.resize(at + 1);
  if (flights_[at].replicas == 0) flights_[at] = flightOf(stage, replicas);
  return flights_[at];
}

/// The least warm-up of a stage.
std::int64_t ChainLabels::warmupFor(const Stage& stage, const Flight& flight, double ahead) const {
  if (stage.stage.to == n_) return 0;
  const double r = flight.replicas;
  double warmup = std::ceil((ahead + flight.loopMs / timeMs_) / r - rounding) - 1;
  if (flight.syncLoopMs > 0)
    warmup = std::max(warmup, std::ceil((ahead + flight.syncLoopMs / timeMs_) / r - rounding) - 2);
  return warmup > 0 ? static_cast<std::int64_t>(warmup) : 0;
}

/// That of hideUpperBound() (Predict/Warmup.h).
std::int64_t ChainLabels::likelyWarmup(const Stage& stage, const Flight& flight, const Label& behind) const {
  if (stage.stage.to == n_) return 0;
  const std::int64_t r = flight.replicas, next = behind.replicas;
  const std::int64_t ahead = flight.isExposed || behind.isExposed
                                 ? (behind.warmup + 2) * next + r - 2 * std::gcd(r, next)
                                 : (behind.warmup + 1) * next;
  const double trips = stage.tripMs / timeMs_;
  return static_cast<std::int64_t>(std::ceil((static_cast<double>(ahead) + trips) / static_cast<double>(r) - rounding));
}

void ChainLabels::addAsynchronous(const Stage& stage, const Label& label, int id, Front& front) {
  constexpr int tries = 24, beyond = 3;
  const int i = stage.stage.from, j = stage.stage.to;
  const int before = i == 0 ? 0 : relaxation_.fewest(i, 0, stage.split);
  const int most = std::min(stage.most, (devices_ - before - label.devices) / stage.team);
  const double ahead = label.ahead + stage.tripMs / timeMs_;
  const auto add = [&](int replicas, double aheadOfIt, double computeMs, std::int64_t warmup, bool isExposed) {
    insert(front, {.devices = label.devices + replicas * stage.team,
                   .ahead = aheadOfIt + computeMs / timeMs_,
                   .behindMs = 0,
                   .next = id,
                   .to = j,
                   .replicas = replicas,
                   .split = stage.split,
                   .form = stage.form,
                   .isExposed = isExposed,
                   .warmup = warmup});
  };
  if (most < stage.fewest) return;
  // Fewer replicas have no room for what is in flight, even with the memory that the most of them have.
  int replicas = stage.fewest;
  if (j < n_) {
    const double computeMs = flight(stage, stage.fewest).computeMs;
    const std::int64_t slots = 1 + std::max(flight(stage, stage.fewest).mostWarmup, flightOf(stage, most).mostWarmup);
    if (slots <= 0) return;
    const double least = std::ceil((ahead + computeMs / timeMs_) / static_cast<double>(slots) - rounding);
    if (least > most) return;
    replicas = std::max(replicas, static_cast<int>(least));
  }
  int fitting = 0;
  for (int last = replicas + tries; replicas <= most && replicas < last; ++replicas) {
    const Flight& own = flight(stage, replicas);
    if (!own.isFastEnough) continue;
    std::int64_t warmup = warmupFor(stage, own, ahead);
    if (of_ == Of::likelyPlans) warmup = std::max(warmup, likelyWarmup(stage, own, label));
    if (warmup > own.mostWarmup) continue;
    const double kept = static_cast<double>(warmup) * replicas;
    add(replicas, std::max(ahead, kept), own.computeMs, warmup, own.isExposed);
    if (kept <= ahead) return;
    if (++fitting < beyond) continue;
    ++replicas;
    break;
  }
  if (replicas <= most && of_ == Of::allPlans) add(replicas, ahead, flight(stage, stage.fewest).computeMs, 0, false);
}

void ChainLabels::addFlushing(const Stage& stage, const Label& label, int id, Front& front) {
  const int i = stage.stage.from, j = stage.stage.to;
  const int before = i == 0 ? 0 : relaxation_.fewest(i, 0, stage.split);
  const int most = std::min(stage.most, (devices_ - before - label.devices) / stage.team);
  const double batchMs = microbatches_ * timeMs_ * (1 + 1e-12), wayMs = states_.leastMs(i) / loads_.best().speed;
  for (int replicas = stage.fewest; replicas <= most; ++replicas) {
    // Batches that replicas share unevenly repeat themselves after many of them only.
    if (of_ == Of::likelyPlans && options_.microbatches % replicas != 0) continue;
    const Flight& own = flight(stage, replicas);
    const double behindMs = label.behindMs + stage.tripMs + own.computeMs,
                 passedMs = label.ahead + stage.tripMs + own.computeMs;
    double workMs = own.workMs;
    if (waitsForSlots_ && own.mostWarmup >= 0) {
      const auto slots = static_cast<double>(own.mostWarmup) + 1;
      workMs = std::max(workMs, (std::floor((std::ceil(microbatches_ / replicas) - 1) / slots) + 1) * behindMs);
    }
    if (passedMs + wayMs > batchMs) return;
    std::int64_t warmup = 0;
    if (of_ == Of::likelyPlans && waitsForSlots_) {
      warmup =
          std::min(likelyWarmup(stage, own, label), static_cast<std::int64_t>(std::ceil(microbatches_ / replicas)) - 1);
      if (warmup > own.mostWarmup) continue;
    }
    Label next{.devices = label.devices + replicas * stage.team,
               .behindMs = behindMs,
               .next = id,
               .to = j,
               .replicas = replicas,
               .split = stage.split,
               .form = stage.form,
               .isExposed = own.isExposed,
               .warmup = warmup};
    const double laterMs = label.lagMs + stage.tripMs + own.computeMs,
                 lastMs = laterMs + static_cast<double>(label.lag / replicas) * own.backwardMs;
    next.ahead = std::max({workMs, passedMs, lastMs});
    next.lag = options_.microbatches - 1 - (options_.microbatches - 1) / replicas * replicas;
    next.lagMs = workMs;
    const bool isLastOfUse = std::max(laggedMs(next), lastMs) <= passedMs;
    Label later = next;
    later.lag = label.lag;
    later.lagMs = laterMs;
    if (label.lag > 0 && laggedMs(later) > laggedMs(next)) next = later;
    if (laggedMs(next) <= next.ahead) next.lag = 0, next.lagMs = 0;
    if (own.isFastEnough && next.ahead + wayMs + (i == 0 ? own.endMs : 0) <= batchMs) insert(front, next);
    if (own.isFastEnough && isLastOfUse) return;
  }
}

void ChainLabels::insert(Front& front, const Label& label) {
  const auto at = [&](int id) -> Label& { return labels_[static_cast<std::size_t>(id)]; };
  const auto place = std::upper_bound(front.begin(), front.end(), label.devices,
                                      [&](int devices, int id) { return devices < at(id).devices; });
  for (auto better = place; better != front.begin();)
    if (--better; isAsGood(at(*better), label)) {
      if (of_ == Of::allPlans) at(*better).behindMs = std::min(at(*better).behindMs, label.behindMs);
      return;
    }
  auto first = place;
  while (first != front.begin() && at(*(first - 1)).devices == label.devices) --first;
  const auto id = static_cast<int>(labels_.size());
  labels_.push_back(label);
  const auto isWorse = [&](int other) {
    if (!isAsGood(label, at(other))) return false;
    if (of_ == Of::allPlans) labels_.back().behindMs = std::min(labels_.back().behindMs, at(other).behindMs);
    return true;
  };
  first = front.insert(first, id);
  front.erase(std::remove_if(first + 1, front.end(), isWorse), front.end());
  constexpr std::size_t mostLabels = 48;
  if (front.size() > mostLabels) thin(front);
}

/// What is in no number above either of two labels, with the stages of the second.
ChainLabels::Label ChainLabels::joined(const Label& first, const Label& second) {
  Label label = second;
  label.devices = std::min(first.devices, second.devices);
  label.ahead = std::min(first.ahead, second.ahead);
  label.behindMs = std::min(first.behindMs, second.behindMs);
  label.lagMs = std::min(first.lagMs, second.lagMs);
  label.lag = std::min(first.lag, second.lag);
  return label;
}

/// Joins the two neighbours of which that takes least, or leaves one of them out.
void ChainLabels::thin(Front& front) {
  const auto at = [&](std::size_t k) -> const Label& { return labels_[static_cast<std::size_t>(front[k])]; };
  std::size_t closest = 1;
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t k = 1; k + 1 < front.size(); ++k) {
    const Label &a = at(k - 1), &b = at(k), both = joined(a, b);
    const auto lostMs = [&](const Label& label) {
      return (label.ahead - both.ahead) +
             std::max(0.0, std::max(label.ahead, laggedMs(label)) - std::max(label.ahead, laggedMs(both)));
    };
    // One that is as good as the other but for what replicas stagger takes its place at no other cost.
    double apart = lostMs(a) / (std::abs(b.ahead) + 1e-300);
    if (a.ahead > b.ahead)
      apart += lostMs(b) / (std::abs(b.ahead) + 1e-300) +
               static_cast<double>(b.devices - a.devices) / static_cast<double>(b.devices + 1);
    if (apart < least) least = apart, closest = k;
  }
  if (of_ == Of::allPlans) {
    const bool isFirst = at(closest - 1).ahead <= at(closest).ahead; // whose stages are those of a plan
    labels_.push_back(isFirst ? joined(at(closest), at(closest - 1)) : joined(at(closest - 1), at(closest)));
    front[closest - 1] = static_cast<int>(labels_.size()) - 1;
  }
  front.erase(front.begin() + static_cast<std::ptrdiff_t>(closest));
}

std::vector<std::vector<ChainStage>> ChainLabels::paths() const {
  std::vector<std::vector<ChainStage>> paths;
  for (const Front& front : fronts_[0])
    for (int id : front) {
      std::vector<ChainStage> path;
      int place = 0;
      for (int at = id; at > 0;) {
        const Label& label = labels_[static_cast<std::size_t>(at)];
        path.push_back({place, label.to, label.replicas, label.form, {label.replicas}, label.split});
        place = label.to;
        at = label.next;
      }
      paths.push_back(std::move(path));
    }
  return paths;
}

bool ChainLabels::offer(Incumbent& incumbent, bool remember) const {
  const std::size_t few = flushes_ ? 1 : 3; // batches are simulated
  bool isBetter = false;
  const std::vector<std::vector<ChainStage>> all = paths();
  for (std::size_t k = 0; k < all.size() && !incumbent.isLate(); ++k)
    if (k < few || k + 1 == all.size()) {
      const bool isBest = incumbent.offer(states_, all[k]);
      isBetter |= isBest;
      if (isBest || (remember && k == 0)) incumbent.remember(states_, all[k]);
    }
  return isBetter;
}

/// Raises `lowMs` to where labels are of all plans, but for 0.05 %. Returns whether the best plan is proven.
static bool raiseBound(ChainLabels& labels, double& lowMs, Incumbent& incumbent) {
  constexpr double justBelow = 1 - 1e-10, closeEnough = 5e-4;
  double reachedMs = incumbent.limitMs();
  for (int pass = 0; pass < 24 && !incumbent.isLate(); ++pass) {
    const double limitMs = incumbent.limitMs(), highMs = std::min(reachedMs, limitMs);
    if (limitMs <= lowMs * (1 + 1e-9)) return true;
    if (highMs < limitMs && highMs - lowMs < closeEnough * highMs) return false;
    const bool isLast = pass == 0 || highMs - lowMs < closeEnough * highMs;
    const double timeMs = isLast ? highMs * justBelow : std::sqrt(lowMs * highMs);
    if (labels.label(timeMs, ChainLabels::Of::allPlans)) {
      reachedMs = timeMs;
      labels.offer(incumbent);
    } else {
      lowMs = timeMs;
      if (isLast && highMs == limitMs) return true;
    }
  }
  return false;
}

/// The plans of the smallest time, and of a little more, between `leastMs` and `mostMs`, that labels of likely plans
/// reach.
static void offerLikely(ChainLabels& labels, double leastMs, double mostMs, Incumbent& incumbent) {
  constexpr double closeEnough = 1.001, step = 1.25, largeStep = 2;
  constexpr int fewPasses = 5, mostPasses = 24;
  double lowMs = leastMs, highMs = 0;
  for (int pass = 0; pass < mostPasses && !incumbent.isLate(); ++pass) {
    if (highMs > 0 && highMs <= lowMs * closeEnough) break;
    if (highMs == 0 && lowMs >= mostMs) return;
    double timeMs = lowMs * (pass == 0 ? closeEnough : pass < fewPasses ? step : largeStep);
    timeMs = highMs > 0 ? std::sqrt(lowMs * highMs) : std::min(mostMs, timeMs);
    (labels.label(timeMs, ChainLabels::Of::likelyPlans) ? highMs : lowMs) = timeMs;
  }
  for (double slack : {1.0, 1.01, 1.03})
    if (highMs > 0 && labels.label(slack * highMs, ChainLabels::Of::likelyPlans)) labels.offer(incumbent, true);
}

bool pdc::searchChain(ChainLabels& labels, int splits, double& lowMs, Incumbent& incumbent) {
  if (lowMs <= 0) return false;
  constexpr double endless = 1e300;
  offerLikely(labels, lowMs, endless, incumbent);
  if (!incumbent.found()) return false;
  const bool isProven = raiseBound(labels, lowMs, incumbent);
  if (splits == 1 || isProven) return isProven;
  if (labels.devices() <= mostRanksExecuted) { // the best may be executed slower than these
    labels.keepApart(true);
    offerLikely(labels, lowMs, endless, incumbent);
    labels.keepApart(false);
  }
  for (int split = 0; split < splits; ++split) {
    labels.restrictTo(split);
    offerLikely(labels, lowMs, incumbent.limitMs(), incumbent);
  }
  labels.restrictTo(-1);
  return incumbent.limitMs() <= lowMs * 1.001 && raiseBound(labels, lowMs, incumbent);
}
