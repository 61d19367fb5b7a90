// Schedules that no generator makes: the lists of a pipeline with one rank per stage replica, put on ranks that host
// several, with backwards in two halves, in any order that a random number generator finds possible.
//
// The lists are executed action by action, a wait only where what it waits for is done. The order in which a rank's
// actions happened is its list: so all waits can be fulfilled in a run, too.
#pragma once

#include "pdcrt/Schedule.h"

#include <algorithm>
#include <deque>
#include <numeric>
#include <random>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

struct Merge {
  std::vector<std::vector<pdcrt::Host>> ranks; ///< which stage replicas each rank hosts
  std::int64_t minibatches = 0;                ///< of the run; the lists do not go on after it
  int handovers = 0;                           ///< 0: backwards stay whole
  std::uint64_t seed = 0;
};

class MergedSchedule {
public:
  static pdcrt::Schedule of(const pdcrt::Schedule& apart, const Merge& merge) {
    return MergedSchedule(apart, merge).run();
  }

private:
  /// A stage replica, its list, and the weight gradients that it still has to compute.
  struct Task {
    pdcrt::Host host;
    std::size_t rank;
    std::deque<pdcrt::Action> list, weightGradients;
  };

  MergedSchedule(const pdcrt::Schedule& apart, const Merge& merge)
      : merge_(merge), result_(apart), random_(merge.seed) {
    result_.ranks.clear();
    for (std::size_t rank = 0; rank < merge.ranks.size(); ++rank) {
      result_.ranks.push_back({.hosts = merge.ranks[rank], .start = {}, .repeat = {}, .step = stepOf(apart)});
      for (const pdcrt::Host& host : merge.ranks[rank]) {
        const auto list = pdcrt::expand(apart, apart.rankOf(host.stage, host.replica), merge.minibatches);
        tasks_.push_back({host, rank, {list.begin(), list.end()}, {}});
      }
    }
    if (merge.handovers == 0) return;
    // What backward_weight reads stays until then: the slot, and what has arrived.
    const int more = merge.handovers;
    for (pdcrt::ScheduleStage& stage : result_.stages) {
      stage.handovers = merge.handovers;
      stage.slots += more;
    }
    for (std::size_t e = 0; e < result_.edges.size(); ++e) {
      pdcrt::EdgeRings& rings = result_.rings[e];
      if (result_.edges[e].forward) rings.forwardSend += more, rings.forwardReceive += more;
      if (result_.edges[e].backward) rings.backwardReceive += more;
    }
  }

  static std::int64_t stepOf(const pdcrt::Schedule& schedule) {
    std::int64_t step = std::max<std::int64_t>(1, schedule.minibatchesPerUpdate);
    for (const pdcrt::ScheduleStage& stage : schedule.stages) step = std::lcm(step, stage.replicas);
    return step;
  }

  pdcrt::Schedule run() {
    while (true) {
      std::vector<Task*> listed, weightGradients;
      for (Task& task : tasks_) {
        if (!task.list.empty() && isPossible(task)) listed.push_back(&task);
        if (!task.weightGradients.empty()) weightGradients.push_back(&task);
      }
      if (listed.empty() && weightGradients.empty()) return std::move(result_); // without deadlock, it is the end
      // Weight gradients come late, so that much lies between the halves of a backward.
      const bool weight = listed.empty() || (!weightGradients.empty() && random_() % 16 == 0);
      std::vector<Task*>& possible = weight ? weightGradients : listed;
      Task* task = possible[random_() % possible.size()];
      std::deque<pdcrt::Action>& queue = weight ? task->weightGradients : task->list;
      const pdcrt::Action action = queue.front();
      queue.pop_front();
      take(*task, action);
    }
  }

  bool isPossible(const Task& task) const {
    const pdcrt::Action& action = task.list.front();
    const bool updates =
        action.kind == pdcrt::ActionKind::update || (action.kind == pdcrt::ActionKind::allReduce && !action.wait);
    if (updates && !task.weightGradients.empty()) return false; // all of them belong to an update no later
    if (action.kind == pdcrt::ActionKind::backward && merge_.handovers > 0)
      return static_cast<int>(task.weightGradients.size()) < merge_.handovers;
    if (!action.wait) return true;
    if (action.kind == pdcrt::ActionKind::allReduce) {
      for (int replica = 0; replica < result_.stages[static_cast<std::size_t>(action.stage)].replicas; ++replica)
        if (!posted_.contains({action.kind, action.stage, replica, action.index})) return false;
      return true;
    }
    using pdcrt::ActionKind;
    const bool values = pdcrt::isForwardTransfer(action.kind);
    const int low = std::min(action.stage, action.peer), high = std::max(action.stage, action.peer);
    const int from = values ? low : high, to = values ? high : low;
    return posted_.contains({values ? ActionKind::sendForward : ActionKind::sendBackward, from, to, action.index}) &&
           posted_.contains(
               {values ? ActionKind::receiveForward : ActionKind::receiveBackward, to, from, action.index});
  }

  void take(Task& task, pdcrt::Action action) {
    if (action.kind == pdcrt::ActionKind::backward && merge_.handovers > 0) {
      action.kind = pdcrt::ActionKind::backwardWeight;
      task.weightGradients.push_back(action);
      action.kind = pdcrt::ActionKind::backwardInput;
    }
    result_.ranks[task.rank].start.push_back(action);
    if (action.wait) return;
    const int other = action.kind == pdcrt::ActionKind::allReduce ? task.host.replica : action.peer;
    posted_.insert({action.kind, action.stage, other, action.index});
  }

  const Merge& merge_;
  pdcrt::Schedule result_;
  std::mt19937_64 random_;
  std::vector<Task> tasks_;
  std::set<std::tuple<pdcrt::ActionKind, int, int, std::int64_t>> posted_;
};
