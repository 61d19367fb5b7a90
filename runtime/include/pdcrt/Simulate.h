// The event-driven simulator: the machine of Machine.h, whose actions take time.
//
//   Times times;
//   times.computation = [](const Action& action) { return 1.0; };
//   CheckResult result = check(schedule, minibatches, {.times = &times});
//
// result.periodMs is the steady-state time of a minibatch, result.ranks says how the ranks spent theirs.
#pragma once

#include "pdcrt/Machine.h"

#include <functional>
#include <vector>

namespace pdcrt {

/// One direction of one link, and how long a transfer alone would keep it busy.
struct LinkUse {
  int link = 0;
  double ms = 0;
};

/// What one transfer or all-reduce takes: first the latency, then `aloneMs` at least, and more where the links that it
/// uses are shared. Those who use a link at the same time get equal parts of it; the slowest of its links decides.
struct Load {
  double latencyMs = 0;
  double aloneMs = 0;
  std::vector<LinkUse> links;
};

/// How long things take, in milliseconds; what is empty takes no time.
struct Times {
  std::function<double(const Action&)> computation;
  /// One minibatch over `edge`, alone on its link.
  std::function<double(const ScheduleEdge& edge, bool forward)> transfer;
  /// One exchange of a stage's replicas: an all-reduce, or a reduce-scatter, or an all-gather of all or of a group.
  std::function<double(ActionKind kind, int stage)> allReduce;
  /// Ranks that can compute at once at full speed; more of them share the time equally. 0: every rank.
  int cores = 0;
  /// By rank: the group with which it shares cores, and by group: how many (0: every rank has its own). Empty: all
  /// ranks are one group.
  std::vector<int> coreGroup, groupCores;
  /// By rank: how many of them its computations keep busy. Empty: one each.
  std::vector<int> busyCores = {};
  /// Whether each rank has one link out and one link in, which its transfers and all-reduces share equally.
  bool sharedLinks = false;
  /// A network with `links` links, instead of transfer, allReduce and sharedLinks. The load is empty when they are
  /// called; they fill it in.
  int links = 0;
  std::function<void(const ScheduleEdge& edge, bool forward, int fromRank, int toRank, Load&)> transferLoad;
  /// `group`: of replicas that have everything together, of a gather; else 0.
  std::function<void(ActionKind kind, int stage, int group, Load&)> allReduceLoad;
  /// Shared parameters (`version`) or the gradients of their uses between replicas of owner and user.
  std::function<void(const SharedEdge& edge, bool version, int fromRank, int toRank, Load&)> sharedLoad;
};

} // namespace pdcrt
