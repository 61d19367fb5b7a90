// Walks a list without expanding it.
#include "CheckParts.h"

#include <algorithm>

using namespace pdcrt;

ListCursor::ListCursor(const Schedule& schedule, int rank, std::int64_t minibatches, bool evaluation)
    : schedule_(&schedule), start_(&schedule.ranks[rank].start), repeat_(&schedule.ranks[rank].repeat),
      step_(schedule.ranks[rank].step), minibatches_(minibatches) {
  if (evaluation) {
    evaluation_ = std::make_shared<std::vector<Action>>(expandEvaluation(schedule, rank, minibatches));
    start_ = evaluation_.get();
    repeat_ = nullptr;
  }
  find();
}

void ListCursor::find() {
  found_ = false;
  while (true) {
    const std::vector<Action>& actions = round_ < 0 ? *start_ : *repeat_;
    if (position_ == actions.size()) {
      // Everything in a round is later than in the round before: after one that adds nothing, nothing comes.
      if (!repeat_ || repeat_->empty() || (round_ >= 0 && !any_)) return;
      ++round_;
      position_ = 0;
      any_ = false;
      continue;
    }
    action_ = actions[position_++];
    std::int64_t first; // minibatch that the action needs
    if (isVersioned(action_.kind)) {
      std::int64_t each = schedule_->minibatchesOfUpdate(schedule_->versionedStage(action_));
      if (round_ > 0) action_.index += round_ * step_ / each;
      first = (action_.index - 1) * each;
    } else {
      if (round_ > 0) action_.index += round_ * step_;
      first = action_.index;
    }
    if (first >= minibatches_) continue;
    any_ = true;
    found_ = true;
    return;
  }
}
