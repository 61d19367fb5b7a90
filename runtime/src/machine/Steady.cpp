// What the machine concludes from a run with times: the steady state, the period, and where the ranks' time went.
#include "Machine.h"

#include <algorithm>
#include <cmath>
#include <utility>

using namespace pdcrt;

/// Versions of a stage, or norms (stage < 0), in so many minibatches.
std::int64_t Machine::versionsIn(std::int64_t minibatches, int stage) const {
  return minibatches /
         std::max<std::int64_t>(1, stage < 0 ? schedule_.minibatchesPerUpdate : schedule_.minibatchesOfUpdate(stage));
}

/// Reductions of a lane in so many minibatches.
std::int64_t Machine::countIn(std::int64_t minibatches, const Reductions& lane) const {
  return versionsIn(minibatches, lane.stage) *
         (lane.stage < 0 ? 1 : schedule_.perUpdate({.kind = lane.kind, .stage = lane.stage}));
}

/// Steady is what repeats itself: everything is as far as before, but for whole periods, and in the middle of the same
/// things for as long. (Stage 0 alone may go on for long at a pace that a slower stage cannot keep.) Where the counts
/// have been seen before, it is looked whether the times, too, are the same after as many periods again.
void Machine::lookForSteadyState() {
  Snapshot now = snapshot();
  std::size_t hash = 0;
  for (std::int64_t count : now.counts) hash = (hash ^ std::hash<std::int64_t>()(count)) * 0x9e3779b97f4a7c15 + 1;
  if (cycle_ && isCycleOver(now)) {
    std::int64_t minibatches = now.base - cycle_->begin.base;
    double ms = now.ms - cycle_->begin.ms;
    if (options_.untilSteady) {
      result_.steady = true;
      result_.periodMs = ms / static_cast<double>(minibatches);
    } else {
      repeat(repeatable(minibatches), ms);
    }
    looking_ = false;
    cycle_.reset();
    basesOf_.clear();
    return;
  }
  auto [seen, isNew] = basesOf_.try_emplace(hash, now.base);
  const std::int64_t before = std::exchange(seen->second, now.base);
  if (!isNew && !cycle_) beginCycle(std::move(now), seen->second - before);
}

/// Whether the cycle has come to its end, in the state of its begin. If it is in another one, there is no cycle any
/// more.
bool Machine::isCycleOver(const Snapshot& now) {
  std::int64_t done = now.base - cycle_->begin.base;
  if (done < cycle_->minibatches) return false;
  if (done == cycle_->minibatches && isSame(cycle_->begin, now)) return true;
  cycle_.reset();
  return false;
}

void Machine::beginCycle(Snapshot now, std::int64_t minibatches) {
  constexpr std::int64_t worthIt = 3; // cycles, one of which is executed to be looked at
  if (!options_.untilSteady && repeatable(minibatches) < worthIt) return;
  cycle_.emplace(Cycle{std::move(now), minibatches, {}, {}});
  for (const Rank& rank : ranks_) cycle_->uses.push_back(rank.use);
}

Machine::Snapshot Machine::snapshot() const {
  Snapshot state{(inputs_ - 1) / periodMinibatches_ * periodMinibatches_, clock_.now(), {}, {}};
  auto relative = [&](std::int64_t index, bool versions, int stage) {
    state.counts.push_back(index - (versions ? versionsIn(state.base, stage) : state.base));
  };
  relative(inputs_, false, 0);
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    const Rank& rank = ranks_[r];
    // Before its list repeats itself, a rank is in no state that comes again.
    state.counts.push_back(rank.list.round() < 0 ? -1 - state.base : static_cast<std::int64_t>(rank.list.offset()));
    relative(rank.list.round() * schedule_.ranks[r].step, false, 0);
    if (rank.blocked || rank.computing) state.left.push_back(state.ms - rank.since);
  }
  for (const Channel& channel : channels_) {
    int owner = channel.shared ? schedule_.shared[channel.edge].owner : 0;
    for (const std::vector<Lane>* lanes : {&channel.sending, &channel.receiving})
      for (const Lane& lane : *lanes) relative(lane.next, channel.shared, owner);
  }
  for (const Reductions& reductions : reductions_)
    if (reductions.done > 0) state.counts.push_back(reductions.done - countIn(state.base, reductions));
  for (const Clock::UnderWay& one : clock_.underWay()) {
    state.counts.push_back(one.computation ? one.id : -1 - tasks_[one.id].channel);
    state.counts.push_back(one.computation ? 0 : tasks_[one.id].lane);
    state.counts.push_back(one.onLinks);
    state.left.push_back(one.left);
  }
  return state;
}

bool Machine::isSame(const Snapshot& before, const Snapshot& after) {
  if (before.counts != after.counts || before.left.size() != after.left.size()) return false;
  for (std::size_t i = 0; i < before.left.size(); ++i)
    if (std::abs(before.left[i] - after.left[i]) > 1e-9 * after.ms) return false;
  return true;
}

void Machine::conclude() {
  result_.finishMs = clock_.now();
  if (result_.steady) { // stopped there
    result_.minibatches = inputs_;
  } else {
    result_.periodMs = period();
    for (const Rank& rank : ranks_) result_.deadlock |= rank.list.peek() != nullptr;
    if (result_.deadlock) result_.problem = options_.picture ? picture() : "deadlock";
  }
  if (!options_.times) return;
  for (Rank& rank : ranks_) {
    RankUse& use = rank.use;
    if (rank.computing) use.computeMs += std::min(rank.durationMs, clock_.now() - rank.since);
    if (rank.blocked) (rank.begun ? use.waitingMs : use.fillMs) += clock_.now() - rank.since;
    use.endedMs = std::max(0.0, result_.finishMs - use.computeMs - use.sharedMs - use.transferMs - use.allReduceMs -
                                    use.fillMs - use.waitingMs);
    result_.ranks.push_back(use);
  }
}

double Machine::period() const {
  std::int64_t each = periodMinibatches_;
  std::int64_t last = minibatches_ - 1 - inFlight_; // before the drain
  if (static_cast<std::int64_t>(inputDone_.size()) <= last) last = static_cast<std::int64_t>(inputDone_.size()) - 1;
  std::int64_t periods = last / each, compared = periods / 2;
  if (last >= 0 && compared >= 1) {
    // Times may repeat only after several periods, as many as a loop holds: compare a number that most counts divide.
    for (std::int64_t divisor : {60, 12, 2})
      if (compared >= divisor) {
        compared -= compared % divisor;
        break;
      }
    return (inputDone_[periods * each] - inputDone_[(periods - compared) * each]) /
           static_cast<double>(compared * each);
  }
  // Less than two periods, because replica counts have a large common multiple: the slope of the second half.
  if (last >= 8 * inFlight_) return (inputDone_[last] - inputDone_[last / 2]) / static_cast<double>(last - last / 2);
  return minibatches_ > 0 ? clock_.now() / static_cast<double>(minibatches_) : 0;
}
