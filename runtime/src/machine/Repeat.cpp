// Long runs: what has been seen to repeat itself exactly is not executed again, but reckoned.
//
// When the machine is in the same state as some periods before, it does the same things again and again, until the
// first list comes to what the end of the run leaves out. So everything is moved on by as many such cycles as there is
// room for, and who wants to know of what happened meanwhile is told the last cycle again, shifted.
#include "Machine.h"

#include <algorithm>

using namespace pdcrt;

/// So many cycles are not executed: whole ones, with every action of every round that a list comes to.
std::int64_t Machine::repeatable(std::int64_t cycle) const {
  std::int64_t furthest = 0;
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    const RankList& list = schedule_.ranks[r];
    if (cycle % list.step != 0) return 0;
    for (const Action& action : list.repeat) {
      const std::int64_t first =
          isVersioned(action.kind) ? schedule_.updateLast(schedule_.versionedStage(action), schedule_.versionOf(action))
                                   : action.index;
      furthest = std::max(furthest, first + (ranks_[r].list.round() + 1) * list.step);
    }
  }
  return std::max<std::int64_t>(0, (minibatches_ - 1 - furthest) / cycle);
}

void Machine::repeat(std::int64_t cycles, double cycleMs) {
  if (cycles <= 0) return;
  tellAgain(cycles, cycleMs);
  const std::int64_t cycle = cycle_->minibatches, more = cycles * cycle;
  const std::int64_t base = cycle_->begin.base + cycle;
  const double ms = static_cast<double>(cycles) * cycleMs;
  result_.repeated = {base, cycle, cycles};

  // The times of minibatches: those of the cycle again and again, then what is begun.
  std::vector<double> begun(inputDone_.begin() + base, inputDone_.end());
  inputDone_.resize(static_cast<std::size_t>(base));
  for (std::int64_t b = base; b < base + more; ++b) inputDone_.push_back(inputDone_[b - cycle] + cycleMs);
  for (double done : begun) inputDone_.push_back(done < 0 ? done : done + ms);
  stagesLeft_.insert(stagesLeft_.begin() + base, static_cast<std::size_t>(more), 0);
  inputs_ += more;

  clock_.skip(ms);
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    Rank& rank = ranks_[r];
    rank.list.skip(more);
    rank.action.index += schedule_.advanceOf(rank.action, more);
    rank.since += ms;
    rank.use.lastMs += ms;
    for (double RankUse::*part : {&RankUse::computeMs, &RankUse::sharedMs, &RankUse::transferMs, &RankUse::allReduceMs,
                                  &RankUse::fillMs, &RankUse::waitingMs})
      rank.use.*part += static_cast<double>(cycles) * (rank.use.*part - cycle_->uses[r].*part);
  }
  for (Channel& channel : channels_)
    for (std::vector<Lane>* lanes : {&channel.sending, &channel.receiving})
      for (Lane& lane : *lanes) {
        std::int64_t steps = channel.shared ? versionsIn(more, schedule_.shared[channel.edge].owner) : more;
        lane.posted += steps;
        lane.next += steps;
        lane.started += ms;
      }
  for (Reductions& reductions : reductions_) {
    const std::int64_t steps = countIn(more, reductions);
    reductions.started += steps;
    reductions.done += steps;
    reductions.startedMs += ms;
  }
  for (Task& task : tasks_) {
    if (task.allReduce)
      task.index += countIn(more, reductions_[task.channel]);
    else
      task.index += schedule_.advanceOf(actionOf(task), more);
    task.startMs += ms;
  }
}

void Machine::tellAgain(std::int64_t cycles, double cycleMs) {
  for (std::int64_t i = 1; i <= cycles; ++i)
    for (const TracedAction& traced : cycle_->told) {
      TracedAction again = traced;
      std::int64_t more = i * cycle_->minibatches;
      again.action.index += schedule_.advanceOf(again.action, more);
      again.startMs += static_cast<double>(i) * cycleMs;
      again.endMs += static_cast<double>(i) * cycleMs;
      options_.retell(again);
    }
}
