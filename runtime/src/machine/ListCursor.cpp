// Walks a list without expanding it.
#include "Parts.h"

#include <algorithm>

using namespace pdcrt;

ListCursor::ListCursor(const Schedule& schedule, int rank, std::int64_t minibatches, bool evaluation)
    : schedule_(&schedule), start_(&schedule.ranks[rank].start), minibatches_(minibatches) {
  if (evaluation) {
    evaluation_ = std::make_shared<std::vector<Action>>(expandEvaluation(schedule, rank, minibatches));
    start_ = evaluation_.get();
  } else {
    const RankList& list = schedule.ranks[rank];
    step_ = list.step;
    repeat_.reserve(list.repeat.size());
    for (const Action& action : list.repeat) {
      std::int64_t each = isVersioned(action.kind) ? schedule.minibatchesOfUpdate(schedule.versionedStage(action)) : 1;
      std::size_t end = 0;
      while (end < ends_.size() && ends_[end] != endOf(action)) ++end;
      if (end == ends_.size()) ends_.push_back(endOf(action));
      repeat_.push_back({action.index, list.step / each, action.stage, action.peer, action.kind, action.wait,
                         static_cast<std::uint16_t>(end)});
    }
  }
  find();
}

/// Minibatches count from 0, versions from 1.
std::int64_t ListCursor::endOf(const Action& action) const {
  if (!isVersioned(action.kind)) return minibatches_;
  std::int64_t each = schedule_->minibatchesOfUpdate(schedule_->versionedStage(action));
  return (minibatches_ + each - 1) / each + 1; // the update of the last minibatch is the last one
}

void ListCursor::find() {
  found_ = false;
  while (round_ < 0) {
    if (position_ == start_->size()) {
      round_ = 0;
      position_ = 0;
      any_ = false;
      break;
    }
    action_ = (*start_)[position_++];
    found_ = action_.index < endOf(action_);
    if (found_) return;
  }
  while (!repeat_.empty()) {
    if (position_ == repeat_.size()) {
      // Everything in a round is later than in the round before: after one that adds nothing, nothing comes.
      if (!any_) return;
      ++round_;
      position_ = 0;
      any_ = false;
    }
    const Repeated& next = repeat_[position_++];
    action_ = {next.kind, next.wait, next.stage, next.peer, next.index + round_ * next.advance};
    if (action_.index >= ends_[next.end]) continue;
    any_ = found_ = true;
    return;
  }
}

void ListCursor::skip(std::int64_t minibatches) {
  std::int64_t rounds = minibatches / step_;
  round_ += rounds;
  executed_ += rounds * static_cast<std::int64_t>(repeat_.size());
  if (found_) action_.index += rounds * repeat_[position_ - 1].advance;
}
