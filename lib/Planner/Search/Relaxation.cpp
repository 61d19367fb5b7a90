#include "Search/Relaxation.h"

#include <algorithm>

using namespace pdc;

Relaxation::Relaxation(const States& states, const StageLoads& loads, const PlannerOptions& options, int devices)
    : states_(states), loads_(loads), options_(options), devices_(devices) {
  if (!options.stageReplicas.empty())
    stageCount_ = static_cast<int>(options.stageReplicas.size());
  else if (options.warmupPolicy == WarmupPolicy::given)
    stageCount_ = static_cast<int>(options.warmup.size());
  labels_.resize(static_cast<std::size_t>(stageCount_ + 1) * states.size());
  before_.resize(states.size());
  std::size_t pairs = 0;
  for (int j = 0; j < states.size(); ++j) {
    for (int i = 0; i < j; ++i)
      if (states.precedes(i, j)) before_[j].push_back(i);
    pairs += before_[j].size();
  }
  constexpr std::size_t mostKept = 300'000; // about 50 MB
  if (pairs > mostKept) return;
  kept_.resize(states.size());
  for (int j = 0; j < states.size(); ++j)
    for (int i : before_[j]) kept_[j].push_back(loads.stage(i, j));
}

const StageLoads::Stage& Relaxation::stage(int j, std::size_t k) const {
  if (!kept_.empty()) return kept_[j][k];
  scratch_ = loads_.stage(before_[j][k], j);
  return scratch_;
}

bool Relaxation::label(double limitMs) {
  std::fill(labels_.begin(), labels_.end(), Label{});
  at(0, 0).devices = 0;
  double speed = loads_.best().speed;
  for (int stages = 0; stages < std::max(stageCount_, 1); ++stages) {
    int next = stageCount_ > 0 ? stages + 1 : 0;
    for (int j = 1; j < states_.size(); ++j) {
      Label& best = at(next, j);
      for (std::size_t k = before_[j].size(); k-- > 0;) {
        int i = before_[j][k];
        int devices = at(stages, i).devices;
        int most = std::min(devices_, best.devices - 1) - devices;
        if (options_.straight) most = std::min(most, 1);
        if (most < 1 || (states_.computeMs(j) - states_.computeMs(i)) / speed > limitMs * (most + 1)) continue;
        int replicas = 0;
        const int given = options_.stageReplicas.empty() ? 0 : options_.stageReplicas[stages];
        if (given == 0)
          replicas = loads_.fewestReplicas(stage(j, k), limitMs, most);
        else if (given <= most && loads_.bound(stage(j, k), given) <= limitMs)
          replicas = given;
        if (replicas > 0) best = {devices + replicas, i, replicas};
      }
    }
  }
  return at(stageCount_, states_.last()).devices <= devices_;
}

std::vector<RelaxedStage> Relaxation::path() const {
  std::vector<RelaxedStage> path;
  int stages = stageCount_;
  for (int j = states_.last(); j > 0; --stages) {
    const Label& label = at(stages, j);
    path.push_back({label.from, j, label.replicas});
    j = label.from;
  }
  return {path.rbegin(), path.rend()};
}

double Relaxation::timeOf(const std::vector<RelaxedStage>& path) const {
  double largest = 0;
  for (const RelaxedStage& stage : path)
    largest = std::max(largest, loads_.bound(loads_.stage(stage.from, stage.to), stage.replicas));
  return largest;
}
