// A stage can forward minibatch b + room only after its backward of b, and the value's way to a later stage and back
// lies between: so room minibatches take at least one loop. Stage u runs w_u forwards ahead of its backwards, which
// shortens the room of stages before it.
//
// For a given time the least warm-up follows from the last stage backwards, because the loops of stage s depend on the
// warm-up of s and of later stages only, and more warm-up later never permits less before.
//
// A shared parameter makes a loop, too: the version that the user's forward of b needs comes of its backwards of all
// minibatches below b - w·R of the owner, which its own list must have before that forward: w·R of the user is no more.
#include "pdc/Cost/PipelineLoops.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace pdc;

static constexpr double infinity = std::numeric_limits<double>::infinity();
/// Times that differ by rounding only are equal.
static constexpr double tolerance = 1 + 1e-10;

PipelineLoops::PipelineLoops(const Pipeline& pipeline, const Loads& loads)
    : pipeline_(pipeline), loads_(loads), firstEdge_(pipeline.stages.size() + 1, pipeline.edges.size()),
      there_(pipeline.stages.size()), back_(pipeline.stages.size()) {
  for (std::size_t i = pipeline.edges.size(); i-- > 0;) firstEdge_[pipeline.edges[i].from] = i;
  for (std::size_t s = pipeline.stages.size(); s-- > 0;) firstEdge_[s] = std::min(firstEdge_[s], firstEdge_[s + 1]);
}

/// Calls visit(u, f(s,u) + b(u,s)) for each later stage u that stage s sends values to and gets gradients from.
template <class Visit>
void PipelineLoops::forEach(int s, Visit visit) const {
  auto n = static_cast<int>(pipeline_.stages.size());
  std::fill(there_.begin() + s, there_.end(), -infinity);
  std::fill(back_.begin() + s, back_.end(), -infinity);
  there_[s] = pipeline_.stages[s].forwardMs;
  back_[s] = pipeline_.stages[s].backwardMs();
  std::size_t edge = firstEdge_[s];
  for (int t = s; t < n; ++t) {
    // Edges into t come from stages before it, so both ways to t are complete here.
    if (t > s && there_[t] >= 0 && back_[t] >= 0) visit(t, there_[t] + back_[t]);
    for (; edge < pipeline_.edges.size() && pipeline_.edges[edge].from == t; ++edge) {
      const PipelineEdge& e = pipeline_.edges[edge];
      const PipelineStage& to = pipeline_.stages[e.to];
      if (e.forward) there_[e.to] = std::max(there_[e.to], there_[t] + loads_.forwardMs[edge] + to.forwardMs);
      if (e.backward) back_[e.to] = std::max(back_[e.to], back_[t] + loads_.backwardMs[edge] + to.backwardMs());
    }
  }
}

/// Time per minibatch of the loops between s and u; infinite where there is no room.
double PipelineLoops::timeOf(int s, int u, double loopMs, std::int64_t w, std::int64_t wu) const {
  const PipelineStage &stage = pipeline_.stages[s], &later = pipeline_.stages[u];
  std::int64_t R = stage.replicas, ahead = wu * later.replicas, windows = (ahead + R - 1) / R;
  double ms = loopMs + stage.updateMs;
  // With d = 0 a forward waits for the update, and so for all backwards of its window of R minibatches.
  std::int64_t room = stage.syncDelay == 0 ? R * (w + 1 - windows) : (w + 1) * R - ahead;
  if (room <= 0) return infinity;
  if (stage.syncDelay == 0) return (ms + stage.exposedSyncMs) / static_cast<double>(room);
  // With d = 1 it waits for the update before.
  return std::max(ms / static_cast<double>(room),
                  (ms + stage.allReduceMs) / static_cast<double>(R * (w + 2 - windows)));
}

/// The owner's warm-up, at least.
std::int64_t PipelineLoops::leastAhead(const SharedUse& use, const std::vector<int>& warmup) const {
  const std::int64_t R = pipeline_.stages[use.owner].replicas;
  return (std::int64_t{warmup[use.user]} * pipeline_.stages[use.user].replicas + R - 1) / R;
}

ResourceLoad PipelineLoops::slowest(const std::vector<int>& warmup) const {
  ResourceLoad slowest{ResourceKind::loop};
  for (const SharedUse& use : pipeline_.shared)
    if (warmup[use.owner] < leastAhead(use, warmup)) return {ResourceKind::loop, infinity, use.owner, use.user};
  for (int s = 0; s + 1 < static_cast<int>(pipeline_.stages.size()); ++s)
    forEach(s, [&](int u, double loopMs) {
      double ms = timeOf(s, u, loopMs, warmup[s], warmup[u]);
      if (ms > slowest.ms) slowest = {ResourceKind::loop, ms, s, u};
    });
  return slowest;
}

double PipelineLoops::slowestMsOfBatches(const std::vector<int>& warmup) const {
  double slowestMs = 0;
  for (int s = 0; s + 1 < static_cast<int>(pipeline_.stages.size()); ++s)
    forEach(s, [&](int u, double loopMs) {
      const std::int64_t room = (std::int64_t{warmup[s]} + 1) * pipeline_.stages[s].replicas -
                                std::int64_t{warmup[u]} * pipeline_.stages[u].replicas;
      slowestMs = std::max(slowestMs, room > 0 ? loopMs / static_cast<double>(room) : infinity);
    });
  return slowestMs;
}

std::vector<int> PipelineLoops::warmupFor(double timeMs, double& next) const {
  std::vector<int> warmup(pipeline_.stages.size(), 0);
  next = infinity;
  for (int s = static_cast<int>(pipeline_.stages.size()) - 2; s >= 0; --s) {
    const PipelineStage& stage = pipeline_.stages[s];
    double R = stage.replicas;
    std::int64_t most = 0;
    loops_.clear();
    forEach(s, [&](int u, double loopMs) {
      loops_.emplace_back(u, loopMs);
      if (timeOf(s, u, loopMs, most, warmup[u]) <= timeMs * tolerance) return;
      double ahead = static_cast<double>(warmup[u]) * pipeline_.stages[u].replicas;
      double ms = loopMs + stage.updateMs + stage.exposedSyncMs;
      // A guess from above; rounding decides the rest.
      double guess = stage.syncDelay == 0
                         ? std::ceil(ms / (timeMs * R)) - 1 + std::ceil(ahead / R)
                         : std::max(std::ceil((ahead + ms / timeMs) / R) - 1,
                                    std::ceil((ms + stage.allReduceMs) / (timeMs * R)) - 2 + std::ceil(ahead / R));
      auto w = static_cast<std::int64_t>(std::clamp(guess, 0.0, 1e9));
      while (timeOf(s, u, loopMs, w, warmup[u]) > timeMs * tolerance && w < 1'000'000'000) ++w;
      while (w > 0 && timeOf(s, u, loopMs, w - 1, warmup[u]) <= timeMs * tolerance) --w;
      most = std::max(most, w);
    });
    std::int64_t least = 0;
    for (const SharedUse& use : pipeline_.shared)
      if (use.owner == s) least = std::max(least, leastAhead(use, warmup));
    warmup[s] = static_cast<int>(std::max(most, least));
    if (most <= least) continue; // less only where the users have less
    double enough = 0;           // the time from which one less suffices
    for (auto [u, loopMs] : loops_) enough = std::max(enough, timeOf(s, u, loopMs, most - 1, warmup[u]));
    next = std::min(next, enough);
  }
  return warmup;
}

WarmupChoice pdc::fastestWarmup(const PipelineLoops& loops, double leastMs,
                                const std::function<void(std::vector<int>&)>& adjust,
                                const std::function<bool(const std::vector<int>&)>& fits) {
  WarmupChoice best;
  double next = infinity;
  auto attempt = [&](double timeMs) {
    std::vector<int> warmup = loops.warmupFor(timeMs, next);
    adjust(warmup);
    if (!fits(warmup)) return false;
    best = {std::max(leastMs, loops.slowest(warmup).ms), std::move(warmup)};
    return true;
  };
  if (attempt(std::max(leastMs, std::numeric_limits<double>::min())) || !attempt(1e300)) return best;
  // Between a time that fails and one that works; only thresholds of the loops matter, so that this ends exactly.
  double low = leastMs;
  loops.warmupFor(std::max(low, std::numeric_limits<double>::min()), next);
  double candidate = next;
  // Most plans that are looked at closely need little more, so upwards in growing steps before halving.
  double step = 1.002;
  while (candidate < best.timeMs) {
    double middle = low > 0 ? std::min(std::sqrt(low) * std::sqrt(best.timeMs), low * step) : best.timeMs / 2;
    double timeMs = std::max(candidate, std::min(middle, best.timeMs));
    WarmupChoice previous = best;
    if (attempt(timeMs)) {
      if (timeMs == candidate) break;
      if (best.timeMs >= previous.timeMs) break;
    } else {
      low = timeMs;
      candidate = next;
      step *= step;
    }
  }
  return best;
}
