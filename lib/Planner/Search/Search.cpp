#include "Search/Search.h"

#include <algorithm>
#include <limits>
#include <tuple>

using namespace pdc;

static constexpr double tolerance = 1e-9; // of isBetter

Search::Search(const CostGraph& graph, const PlannerOptions& options, const States& states, const SplitLoads& loads,
               const Machine& machine, Relaxation& relaxation, const Placement& placement, bool placed,
               Incumbent& incumbent)
    : graph_(graph), options_(options), states_(states), loads_(loads), machine_(machine), relaxation_(relaxation),
      placement_(placement), incumbent_(incumbent), placed_(placed), cores_(static_cast<double>(machine.allCores())) {}

bool Search::run(bool ties) {
  ties_ = ties;
  complete_ = true;
  chain_.clear();
  classLeft_.clear();
  for (const DeviceClass& deviceClass : machine_.classes())
    classLeft_.push_back(static_cast<int>(deviceClass.leaves.size()));
  if (!relabel()) return true;
  for (const Suffix& root : roots())
    if (!isHopeless(root)) descend(root);
  return complete_;
}

/// The empty suffix; where places matter, for every number of devices that a plan may use, the best first.
std::vector<Search::Suffix> Search::roots() const {
  Suffix whole;
  whole.state = states_.last();
  whole.stagesLeft = relaxation_.stageCount();
  if (!placed_) return {whole};
  std::vector<Suffix> roots;
  for (int devices = placement_.devices(); devices > 0; --devices) {
    roots.push_back(whole);
    roots.back().offset = devices;
  }
  std::stable_sort(roots.begin(), roots.end(), [&](const Suffix& a, const Suffix& b) {
    return placement_.best(a.state, a.offset) < placement_.best(b.state, b.offset);
  });
  return roots;
}

/// Brings the bounds of what is left up to the time of the best plan. Returns whether anything better is possible.
bool Search::relabel() {
  double limitMs = incumbent_.limitMs();
  labelledMs_ = ties_ ? limitMs * (1 + tolerance) : limitMs * (1 - tolerance);
  if (limitMs == std::numeric_limits<double>::infinity()) labelledMs_ = std::numeric_limits<double>::max();
  if (!relaxation_.label(labelledMs_)) return false;
  leastMemory_.assign(states_.size(), 0);
  leastMoved_.assign(states_.size(), 0);
  if (!ties_ || relaxation_.stageCount() > 0) return true;
  for (int j = 1; j < states_.size(); ++j) boundTies(j);
  return true;
}

/// Least memory and bytes of the stages before a state.
void Search::boundTies(int j) {
  const int devices = static_cast<int>(machine_.components(0));
  leastMemory_[j] = std::numeric_limits<std::int64_t>::max();
  leastMoved_[j] = std::numeric_limits<double>::max();
  for (std::size_t k = 0; k < relaxation_.before(j).size(); ++k)
    for (int split = 0; split < loads_.count(); ++split) {
      const StageLoads& loads = loads_.of(split);
      int i = relaxation_.before(j)[k], most = (devices - relaxation_.fewest(i, 0, split)) / loads_.team(split);
      if (options_.straight) most = std::min(most, 1);
      if (most < 1) continue;
      const StageLoads::Stage& stage = relaxation_.stage(j, k, split);
      int fewest = loads.fewestReplicas(stage, labelledMs_, most);
      if (fewest == 0) continue;
      std::int64_t memory = std::numeric_limits<std::int64_t>::max();
      for (int replicas : {1, most})
        for (const StageForm& form : loads_.forms())
          memory = std::min(memory, loads.memoryBytes(stage, replicas, form, labelledMs_));
      leastMemory_[j] = std::min(leastMemory_[j], std::max(leastMemory_[i], memory));
      leastMoved_[j] = std::min(leastMoved_[j], leastMoved_[i] + loads.bytesMoved(stage, fewest));
    }
}

bool Search::isHopeless(const Suffix& suffix) const {
  int rest = relaxation_.fewest(suffix.state, suffix.stagesLeft, suffix.split);
  if (rest == Relaxation::unreachable) return true;
  double loadMs = placed_ ? std::max(suffix.loadMs, placement_.best(suffix.state, suffix.offset)) : suffix.loadMs;
  if (!incumbent_.found()) return loadMs == std::numeric_limits<double>::infinity();
  double limitMs = incumbent_.limitMs();
  if (!ties_) return loadMs >= limitMs * (1 - tolerance);
  if (loadMs > limitMs * (1 + tolerance)) return true;
  // A plan in here is as good at best; what else could make it better?
  const PlanCost& best = incumbent_.best().cost;
  // Where cores, not loads, may make the time of a plan in here, a smaller load comes first, whatever made the best
  // one's.
  if (machine_.sharesCores()) {
    double leastMs = leastLoadMs(suffix);
    if (leastMs > best.loadMs * (1 + tolerance)) return true;
    if (leastMs < best.loadMs * (1 - tolerance)) return false;
  }
  std::int64_t memory = std::max(suffix.memoryBytes, leastMemory_[suffix.state]);
  if (memory != best.peakMemoryBytes) return memory > best.peakMemoryBytes;
  double moved = suffix.bytesMoved + leastMoved_[suffix.state];
  if (moved > static_cast<double>(best.bytesMoved)) return true;
  if (moved < static_cast<double>(best.bytesMoved - states_.size() - 2)) return false;
  int devices = 0;
  for (const PartitionStage& stage : incumbent_.best().partition.stages) devices += stage.replicas * stage.team;
  return suffix.devices + rest > devices && moved >= static_cast<double>(best.bytesMoved);
}

/// All cores compute what the suffix takes on its devices and what is left at least: no plan in here is faster.
double Search::coresMs(const Suffix& suffix) const {
  if (cores_ == 0) return 0;
  double leftMs = states_.workMs(suffix.state);
  if (!options_.schedule->hasBatches)
    leftMs += options_.leastUpdateMs(states_.updateWorkMs(suffix.state)); // else once in a batch
  return (suffix.busyMs + leftMs / loads_.best().speed) / cores_;
}

/// No plan in here has a smaller load.
double Search::leastLoadMs(const Suffix& suffix) const {
  int devices = placed_ ? suffix.offset : static_cast<int>(machine_.components(0)) - suffix.devices;
  double leftMs = states_.workMs(suffix.state) / loads_.best().speed;
  return leftMs > 0 && devices > 0 ? std::max(suffix.ownMs, leftMs / devices) : suffix.ownMs;
}

void Search::addSteps(const Suffix& suffix, const Kind& kind, std::vector<int>& ofClass, std::size_t nextClass,
                      int replicas, std::vector<Step>& steps) {
  const std::vector<DeviceClass>& classes = machine_.classes();
  const int team = loads_.team(kind.split);
  if (nextClass < classes.size()) {
    for (int count = 0; count <= std::min(classLeft_[nextClass] / team, kind.most - replicas); ++count) {
      if (incumbent_.isExhausted()) {
        complete_ = false;
        return;
      }
      if (nextClass + 1 == classes.size() && replicas + count < kind.least) continue;
      ofClass.push_back(count);
      addSteps(suffix, kind, ofClass, nextClass + 1, replicas + count, steps);
      ofClass.pop_back();
    }
    return;
  }
  if (kind.form.shards && replicas == 1 && options_.choosesShards()) return; // the same as without
  StageHost host{std::numeric_limits<double>::infinity(), std::numeric_limits<std::int64_t>::max()};
  for (std::size_t c = 0; c < classes.size(); ++c)
    if (ofClass[c] > 0) {
      host.speed = std::min(host.speed, classes[c].speed);
      host.limitBytes = std::min(host.limitBytes, classes[c].memoryBytes);
    }
  incumbent_.spend(1);
  const StageLoads& loads = loads_.of(kind.split);
  const StageLoads::Stage& stage = kind.stage;
  double bound = loads.bound(stage, replicas, kind.form, host);
  if (bound == std::numeric_limits<double>::infinity()) return;
  Carry carry = suffix.carry;
  if (placed_) bound = std::max(bound, placement_.bound(stage, suffix.offset - replicas, replicas, kind.form, carry));
  Step step{suffix, {stage.from, stage.to, replicas, kind.form, ofClass, kind.split}};
  step.after.state = stage.from;
  step.after.split = kind.split;
  step.after.busyMs += team * loads.busyMs(stage, replicas, kind.form, host.speed);
  if (ties_ && machine_.sharesCores())
    step.after.ownMs = std::max(suffix.ownMs, loads.loadBound(stage, replicas, kind.form, host));
  step.after.loadMs = std::max({suffix.loadMs, bound, coresMs(step.after)});
  step.after.devices += replicas * team;
  if (placed_) {
    step.after.offset -= replicas;
    step.after.carry = carry;
  }
  if (relaxation_.stageCount() > 0) --step.after.stagesLeft;
  if (ties_) {
    step.after.memoryBytes = std::max(suffix.memoryBytes, loads.memoryBytes(stage, replicas, kind.form, labelledMs_));
    step.after.bytesMoved += loads.bytesMoved(stage, replicas);
  }
  if (!isHopeless(step.after)) steps.push_back(std::move(step));
}

/// The stages of one split that begin at a state and end where the suffix begins.
void Search::listSteps(const Suffix& suffix, std::size_t k, int split, std::vector<Step>& steps) {
  const int devices = placed_ ? suffix.offset : static_cast<int>(machine_.components(0)) - suffix.devices;
  const int from = relaxation_.before(suffix.state)[k];
  const int stagesLeft = relaxation_.stageCount() > 0 ? suffix.stagesLeft - 1 : 0;
  if (suffix.split >= 0 && !loads_.mayMeet(suffix.state, split, suffix.split)) return;
  if (!loads_.isOffered(split, stagesLeft)) return;
  int most = (devices - relaxation_.fewest(from, stagesLeft, split)) / loads_.team(split), least = 1;
  if (options_.straight) most = std::min(most, 1);
  const int given = options_.stageReplicas.empty() ? 0 : options_.stageReplicas[stagesLeft];
  if (given > 0) {
    least = given;
    most = std::min(most, least);
  }
  if (most < least || (placed_ && from == 0 && most < devices)) return;
  const StageLoads::Stage& stage = relaxation_.stage(suffix.state, k, split);
  if (given == 0) least = loads_.of(split).fewestReplicas(stage, labelledMs_, most);
  if (least == 0) return;
  if (placed_ && from == 0) least = most = devices;
  std::vector<int> ofClass;
  for (const StageForm& form : loads_.forms())
    if (loads_.isOffered(form, stagesLeft)) addSteps(suffix, {stage, split, form, least, most}, ofClass, 0, 0, steps);
}

void Search::listSteps(const Suffix& suffix, std::vector<Step>& steps) {
  for (std::size_t k = 0; k < relaxation_.before(suffix.state).size(); ++k)
    for (int split = 0; split < loads_.count(); ++split) listSteps(suffix, k, split, steps);
  auto loadOf = [&](const Suffix& after) {
    return placed_ ? std::max(after.loadMs, placement_.best(after.state, after.offset)) : after.loadMs;
  };
  std::stable_sort(steps.begin(), steps.end(), [&](const Step& a, const Step& b) {
    double loadA = loadOf(a.after), loadB = loadOf(b.after);
    return std::tie(loadA, a.after.memoryBytes, a.after.bytesMoved, a.after.devices) <
           std::tie(loadB, b.after.memoryBytes, b.after.bytesMoved, b.after.devices);
  });
}

void Search::descend(const Suffix& suffix) {
  if (incumbent_.isExhausted()) {
    complete_ = false;
    return;
  }
  if (suffix.state == 0) {
    if (suffix.stagesLeft > 0) return;
    std::vector<ChainStage> chain(chain_.rbegin(), chain_.rend());
    if (incumbent_.offer(states_, chain) && !relabel()) labelledMs_ = 0;
    return;
  }
  std::vector<Step> steps;
  listSteps(suffix, steps);
  for (Step& step : steps) {
    if (isHopeless(step.after)) continue;
    const int team = loads_.team(step.stage.split);
    for (std::size_t c = 0; c < classLeft_.size(); ++c) classLeft_[c] -= team * step.stage.ofClass[c];
    chain_.push_back(step.stage);
    descend(step.after);
    chain_.pop_back();
    for (std::size_t c = 0; c < classLeft_.size(); ++c) classLeft_[c] += team * step.stage.ofClass[c];
  }
}
