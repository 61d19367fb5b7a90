#include "Search/PaperLabels.h"

#include <algorithm>
#include <limits>
#include <set>

using namespace pdc;

PaperLabels::PaperLabels(const States& states, const SplitLoads& loads, const PlannerOptions& options,
                         const Machine& machine, Relaxation& relaxation)
    : states_(states), loads_(loads), options_(options), relaxation_(relaxation),
      devices_(static_cast<int>(std::min<std::int64_t>(machine.components(0), 1 << 20))) {}

bool PaperLabels::apply(const PlannerOptions& options, const Machine& machine) {
  return options.warmupPolicy == WarmupPolicy::paper && !(options.schedule->hasBatches && options.schedule->flushes) &&
         options.schedule->takesWarmup() && options.stageReplicas.empty() && options.stageSplits.empty() &&
         !options.shards(2, true) && machine.classes().size() == 1;
}

bool PaperLabels::label(double timeMs) {
  timeMs_ = timeMs;
  const std::int64_t mostReplicas = options_.schedule->inFlightFitsBatch ? options_.microbatches : devices_;
  mostReplicas_ = static_cast<int>(std::min<std::int64_t>(mostReplicas, devices_));
  if (!relaxation_.label(timeMs)) return false;
  labels_.clear();
  fronts_.assign(static_cast<std::size_t>(states_.size()),
                 std::vector<Front>(1 + static_cast<std::size_t>(loads_.count())));
  labels_.emplace_back();
  for (Front& front : fronts_[static_cast<std::size_t>(states_.last())]) front = {0};
  for (int j = states_.last(); j > 0; --j)
    for (std::size_t k = 0; k < relaxation_.before(j).size(); ++k)
      for (int split = 0; split < loads_.count(); ++split) {
        if (team_ > 0 && loads_.team(split) != team_) continue;
        for (const StageForm& form : loads_.forms()) extend(relaxation_.before(j)[k], j, k, split, form);
      }
  return std::any_of(fronts_[0].begin(), fronts_[0].end(), [](const Front& front) { return !front.empty(); });
}

/// The fewest replicas, at least `fewest`, that hold what is in flight with so many behind them; 0: none do.
int PaperLabels::replicasFor(const StageLoads::Flight& flight, int fewest, int behind) const {
  const std::int64_t limit = loads_.best().limitBytes;
  if (flight.baseBytes > limit) return 0;
  if (flight.bytesPerWarmup == 0 || behind == 0) return fewest;
  const std::int64_t most = (limit - flight.baseBytes) / flight.bytesPerWarmup + 1; // minibatches in flight
  std::int64_t least = std::numeric_limits<int>::max();
  if (most > 1) least = (behind + most - 2) / (most - 1);
  if (options_.schedule->hasBatches) least = std::min(least, options_.microbatches / (most + 1) + 1);
  return least > devices_ ? 0 : std::max(fewest, static_cast<int>(least));
}

void PaperLabels::extend(int i, int j, std::size_t k, int split, const StageForm& form) {
  const Front& behind = frontOf(j, split);
  const int before = relaxation_.fewest(i, 0, split), team = loads_.team(split);
  if (behind.empty() || before == Relaxation::unreachable) return;
  const int most = (devices_ - before - labels_[static_cast<std::size_t>(behind.front())].devices) / team;
  if (most < 1) return;
  const StageLoads& loads = loads_.of(split);
  const StageLoads::Stage& stage = relaxation_.stage(j, k, split);
  const int fewest = loads.fewestReplicas(stage, timeMs_, options_.straight ? 1 : most, form);
  if (fewest == 0) return;
  const StageLoads::Flight flight = loads.flight(stage, fewest, form);
  Front& front = frontOf(i, split);
  for (const int id : behind) {
    const Label& label = labels_[static_cast<std::size_t>(id)];
    const int replicas = replicasFor(flight, fewest, label.replicas);
    if (replicas == 0 || (options_.straight && replicas > 1)) continue;
    const int devices = label.devices + replicas * team;
    if (devices + before > devices_ || label.replicas + replicas > mostReplicas_) continue;
    insert(front, {devices, label.replicas + replicas, id, {i, j, replicas, form, {replicas}, split}});
  }
  thin(front);
}

/// Keeps the front sorted by devices; replicas fall along it.
void PaperLabels::insert(Front& front, Label label) {
  const auto at = [&](int id) -> const Label& { return labels_[static_cast<std::size_t>(id)]; };
  auto place = std::lower_bound(front.begin(), front.end(), label.devices,
                                [&](int id, int devices) { return at(id).devices < devices; });
  if (place != front.end() && at(*place).devices == label.devices && at(*place).replicas <= label.replicas) return;
  if (place != front.begin() && at(*std::prev(place)).replicas <= label.replicas) return;
  auto end = place;
  while (end != front.end() && at(*end).replicas >= label.replicas) ++end;
  place = front.erase(place, end);
  front.insert(place, static_cast<int>(labels_.size()));
  labels_.push_back(std::move(label));
}

void PaperLabels::thin(Front& front) {
  constexpr std::size_t most = 96;
  if (front.size() <= most) return;
  Front kept;
  for (std::size_t i = 0; i < front.size(); i += 2) {
    kept.push_back(front[i]);
    if (i + 1 == front.size()) break;
    Label joined = labels_[static_cast<std::size_t>(front[i])];
    joined.replicas = labels_[static_cast<std::size_t>(front[i + 1])].replicas;
    kept.back() = static_cast<int>(labels_.size());
    labels_.push_back(std::move(joined));
  }
  front = std::move(kept);
}

std::vector<ChainStage> PaperLabels::path() const {
  int best = -1;
  for (const Front& front : fronts_[0])
    for (const int id : front)
      if (best < 0 || labels_[static_cast<std::size_t>(id)].devices < labels_[static_cast<std::size_t>(best)].devices)
        best = id;
  std::vector<ChainStage> chain;
  for (int id = best; id > 0; id = labels_[static_cast<std::size_t>(id)].next)
    chain.push_back(labels_[static_cast<std::size_t>(id)].stage);
  return chain;
}

double PaperLabels::timeOf(const std::vector<ChainStage>& chain) const {
  double largest = 0;
  for (const ChainStage& stage : chain) {
    const StageLoads& loads = loads_.of(stage.split);
    largest =
        std::max(largest, loads.bound(loads.stage(stage.from, stage.to), stage.replicas, stage.form, loads.best()));
  }
  return largest;
}

/// Bisection between `lowMs` and the least time with a label. Returns what is proven for the plans of these labels.
static double searchLabels(PaperLabels& labels, double lowMs, const States& states, Incumbent& incumbent) {
  constexpr double justBelow = 1 - 1e-10;
  if (!labels.label(std::numeric_limits<double>::max())) return lowMs;
  std::vector<ChainStage> chain = labels.path();
  incumbent.offer(states, chain);
  double highMs = std::max(lowMs, labels.timeOf(chain));
  bool isLast = false;
  constexpr int passes = 60;
  for (int pass = 0; pass < passes && !isLast && lowMs < highMs * justBelow && !incumbent.isLate(); ++pass) {
    isLast = highMs - lowMs < 1e-9 * highMs;
    const double timeMs = isLast ? highMs * justBelow : lowMs + (highMs - lowMs) / 2;
    if (labels.label(timeMs)) {
      chain = labels.path();
      highMs = std::min(timeMs, std::max(lowMs, labels.timeOf(chain)));
      incumbent.offer(states, chain);
      isLast = false;
    } else {
      lowMs = isLast ? highMs : timeMs;
    }
  }
  return lowMs;
}

void pdc::searchPaper(PaperLabels& labels, const SplitLoads& loads, double& lowMs, const States& states,
                      Incumbent& incumbent) {
  lowMs = searchLabels(labels, lowMs, states, incumbent);
  std::set<int> teams;
  for (int split = 0; split < loads.count(); ++split) teams.insert(loads.team(split));
  for (const int team : teams) {
    if (teams.size() == 1 || (incumbent.found() && incumbent.limitMs() <= lowMs * (1 + 1e-9))) break;
    labels.restrictTo(team);
    searchLabels(labels, lowMs, states, incumbent);
  }
  labels.restrictTo(0);
}
