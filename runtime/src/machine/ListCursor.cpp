#include "ListCursor.h"

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
    for (const Action& action : list.repeat)
      repeat_.push_back({action.index, schedule.advanceOf(action, list.step), action.stage, action.peer, action.kind,
                         action.wait, endLike(action)});
  }
  find();
}

std::uint16_t ListCursor::endLike(const Action& action) {
  const std::int64_t each =
      isVersioned(action.kind) ? schedule_->minibatchesOfUpdate(schedule_->versionedStage(action)) : 0;
  const std::int64_t perUpdate = schedule_->perUpdate(action);
  std::size_t end = 0;
  while (end < ends_.size() && (ends_[end].each != each || ends_[end].perUpdate != perUpdate)) ++end;
  if (end == ends_.size()) ends_.push_back({action, each, perUpdate, schedule_->endOf(action, minibatches_)});
  return static_cast<std::uint16_t>(end);
}

void ListCursor::limit(std::int64_t minibatches) {
  minibatches_ = minibatches;
  for (End& end : ends_) end.index = schedule_->endOf(end.like, minibatches);
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
    found_ = evaluation_ || action_.index < schedule_->endOf(action_, minibatches_);
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
    if (action_.index >= ends_[next.end].index) continue;
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

std::vector<Action> pdcrt::expand(const Schedule& schedule, int rank, std::int64_t minibatches) {
  std::vector<Action> result;
  for (ListCursor list(schedule, rank, minibatches); list.peek(); list.pop()) result.push_back(*list.peek());
  return result;
}
