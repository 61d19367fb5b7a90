// What the machine concludes from a run with times: the steady state, the period, and where the ranks' time went.
#include "CheckMachine.h"

#include <algorithm>
#include <cmath>

using namespace pdcrt;

/// Steady is what repeats itself: every rank is as far as before, but for whole periods, and in the middle of the same
/// thing for as long. (Stage 0 alone may go on for long at a pace that a slower stage cannot keep.)
void Machine::findSteadyState() {
  constexpr std::int64_t longestCycle = 64; // periods; as many as a loop of the pipeline may hold
  std::int64_t each = periodMinibatches_, last = (inputs_ - 1) / each;
  Snapshot now;
  for (const Rank& rank : ranks_) now.ranks.push_back({rank.list.executed(), clock_.now() - rank.since});
  snapshots_.push_back(std::move(now));
  if (snapshots_.size() > longestCycle + 1) snapshots_.pop_front();
  for (std::int64_t cycle = 1; cycle < static_cast<std::int64_t>(snapshots_.size()); ++cycle) {
    std::int64_t compared = (2 * inFlight_ + each - 1) / each + cycle;
    if (last - cycle - compared < 0) return;
    double step = inputDone_[last * each] - inputDone_[(last - cycle) * each];
    bool same = true;
    for (std::int64_t i = 1; same && i <= compared; ++i)
      same = std::abs(inputDone_[(last - i) * each] - inputDone_[(last - i - cycle) * each] - step) <=
             1e-9 * inputDone_[last * each];
    if (!same || !isSameButFor(snapshots_[snapshots_.size() - 1 - cycle], snapshots_.back(), cycle)) continue;
    result_.steady = true;
    result_.periodMs = step / static_cast<double>(cycle * each);
    return;
  }
}

bool Machine::isSameButFor(const Snapshot& before, const Snapshot& after, std::int64_t periods) const {
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    const RankList& list = schedule_.ranks[r];
    std::int64_t rounds = periods * periodMinibatches_ / list.step;
    if (after.ranks[r].first - before.ranks[r].first != rounds * static_cast<std::int64_t>(list.repeat.size()) ||
        std::abs(after.ranks[r].second - before.ranks[r].second) > 1e-9 * clock_.now())
      return false;
  }
  return true;
}

void Machine::conclude() {
  result_.finishMs = clock_.now();
  if (result_.steady) {
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
