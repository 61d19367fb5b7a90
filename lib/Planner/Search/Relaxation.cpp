#include "Search/Relaxation.h"

#include <algorithm>

using namespace pdc;

Relaxation::Relaxation(const States& states, const SplitLoads& loads, const PlannerOptions& options, int devices)
    : states_(states), loads_(loads), options_(options), devices_(devices) {
  if (!options.stageReplicas.empty())
    stageCount_ = static_cast<int>(options.stageReplicas.size());
  else if (!options.stageSplits.empty())
    stageCount_ = static_cast<int>(options.stageSplits.size());
  else if (!options.stageShards.empty())
    stageCount_ = static_cast<int>(options.stageShards.size());
  else if (options.warmupPolicy == WarmupPolicy::given)
    stageCount_ = static_cast<int>(options.warmup.size());
  const auto splits = static_cast<std::size_t>(loads.count());
  labels_.resize(static_cast<std::size_t>(stageCount_ + 1) * states.size() * splits);
  leastMeeting_.assign(labels_.size() / splits, unreachable);
  before_.resize(states.size());
  std::size_t pairs = 0;
  for (int j = 0; j < states.size(); ++j) {
    for (int i = 0; i < j; ++i)
      if (states.precedes(i, j)) before_[j].push_back(i);
    pairs += before_[j].size();
  }
  constexpr std::size_t mostKept = 1'000'000; // about 170 MB
  if (pairs * splits > mostKept) return;
  kept_.resize(states.size());
  for (int j = 0; j < states.size(); ++j)
    for (int i : before_[j])
      for (int split = 0; split < loads.count(); ++split) kept_[j].push_back(loads.of(split).stage(i, j));
}

const StageLoads::Stage& Relaxation::stage(int j, std::size_t k, int split) const {
  if (!kept_.empty()) return kept_[j][k * static_cast<std::size_t>(loads_.count()) + static_cast<std::size_t>(split)];
  scratch_ = loads_.of(split).stage(before_[j][k], j);
  return scratch_;
}

int Relaxation::fewest(int state, int stages, int next) const {
  if (next >= 0)
    return loads_.isClean(state, next) ? leastMeeting_[layer(stages) * states_.size() + state]
                                       : at(stages, state, next).devices;
  int fewest = unreachable;
  for (int split = 0; split < loads_.count(); ++split) fewest = std::min(fewest, at(stages, state, split).devices);
  return fewest;
}

void Relaxation::findLeast(int stages, int state) {
  int& least = leastMeeting_[layer(stages) * states_.size() + state];
  least = unreachable;
  for (int split = 0; split < loads_.count(); ++split)
    if (loads_.isClean(state, split)) least = std::min(least, at(stages, state, split).devices);
}

/// The split of the last stage behind fewest().
int Relaxation::lastSplit(int state, int stages, int next) const {
  const int least = fewest(state, stages, next);
  int split = 0;
  while (at(stages, state, split).devices != least || (next >= 0 && !loads_.mayMeet(state, split, next))) ++split;
  return split;
}

bool Relaxation::label(double limitMs) {
  std::fill(labels_.begin(), labels_.end(), Label{});
  std::fill(leastMeeting_.begin(), leastMeeting_.end(), unreachable);
  for (int split = 0; split < loads_.count(); ++split) at(0, 0, split).devices = 0;
  findLeast(0, 0);
  for (int stages = 0; stages < std::max(stageCount_, 1); ++stages)
    for (int j = 1; j < states_.size(); ++j) {
      for (int split = 0; split < loads_.count(); ++split)
        if ((only_ < 0 || split == only_) && loads_.isOffered(split, stages)) labelState(stages, j, split, limitMs);
      findLeast(stageCount_ > 0 ? stages + 1 : 0, j);
    }
  return fewest(states_.last(), stageCount_, -1) <= devices_;
}

void Relaxation::labelState(int stages, int j, int split, double limitMs) {
  const StageLoads& loads = loads_.of(split);
  const int team = loads_.team(split);
  const double speed = loads_.best().speed;
  Label& best = at(stageCount_ > 0 ? stages + 1 : 0, j, split);
  for (std::size_t k = before_[j].size(); k-- > 0;) {
    const int i = before_[j][k], devices = fewest(i, stages, split);
    int most = (std::min(devices_, best.devices - 1) - devices) / team;
    if (devices == unreachable || std::min(devices_, best.devices - 1) < devices) continue;
    if (options_.straight) most = std::min(most, 1);
    if (most < 1) continue;
    const double workMs =
        loads_.count() == 1 ? states_.computeMs(j) - states_.computeMs(i) : states_.leastMs(j) - states_.leastMs(i);
    if (workMs / speed > limitMs * (most + 1)) continue;
    int replicas = 0;
    const int given = options_.stageReplicas.empty() ? 0 : options_.stageReplicas[stages];
    if (given == 0)
      replicas = loads.fewestReplicas(stage(j, k, split), limitMs, most);
    else if (given <= most && loads.bound(stage(j, k, split), given) <= limitMs)
      replicas = given;
    if (replicas > 0) best = {devices + replicas * team, i, replicas};
  }
}

std::vector<RelaxedStage> Relaxation::path() const {
  std::vector<RelaxedStage> path;
  int stages = stageCount_, next = -1;
  for (int j = states_.last(); j > 0; --stages) {
    const int split = lastSplit(j, stages, next);
    const Label& label = at(stages, j, split);
    path.push_back({label.from, j, label.replicas, split});
    j = label.from;
    next = split;
  }
  return {path.rbegin(), path.rend()};
}

double Relaxation::timeOf(const std::vector<RelaxedStage>& path) const {
  double largest = 0;
  for (const RelaxedStage& stage : path) {
    const StageLoads& loads = loads_.of(stage.split);
    largest = std::max(largest, loads.bound(loads.stage(stage.from, stage.to), stage.replicas));
  }
  return largest;
}
