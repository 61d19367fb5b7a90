#include "pdc/Predict/Warmup.h"

#include "pdc/Predict/Simulate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

using namespace pdc;

std::vector<int> pdc::paperWarmup(const Plan& plan) {
  int left = 0;
  for (const PlanStage& stage : plan.stages) left += stage.replicas;
  std::vector<int> warmup;
  for (const PlanStage& stage : plan.stages) {
    warmup.push_back((left - 1) / stage.replicas);
    left -= stage.replicas;
  }
  adjustWarmup(plan, warmup);
  return warmup;
}

/// A batch holds no more than so many forwards before the first backward.
static int mostUseful(const Plan& plan, std::size_t s) {
  if (!plan.schedule->hasBatches) return std::numeric_limits<int>::max();
  std::int64_t R = plan.stages[s].replicas;
  std::int64_t perBatch = plan.schedule->flushes ? (plan.microbatches + R - 1) / R : plan.microbatches / R;
  return static_cast<int>(std::max<std::int64_t>(perBatch, 1) - 1);
}

/// ceil that forgives what floating-point division adds to an integer.
static int ceilTolerant(double value) {
  return static_cast<int>(std::ceil(value - 1e-9));
}

namespace {

/// What the bounds need to know of a plan's edges.
struct Edge {
  int from, to;
  bool forward, backward;
  double forwardMs, backwardMs; ///< of a transfer
  double roundTripMs() const { return (forward ? forwardMs : 0) + (backward ? backwardMs : 0); }
};

} // namespace

static std::vector<Edge> edgesOf(const Plan& plan) {
  pdcrt::Times times = timesOf(plan);
  std::vector<Edge> result;
  for (const EdgeTraffic& traffic : trafficOf(plan)) {
    const pdcrt::ScheduleEdge& edge = traffic.edge;
    result.push_back(
        {edge.from, edge.to, edge.forward, edge.backward, times.transfer(edge, true), times.transfer(edge, false)});
  }
  return result;
}

/// The upper bound for stages s, s-1, … 0, given those after s, with `extra` minibatches more between neighbours.
static void fillUpperBound(const Plan& plan, const std::vector<Edge>& edges, double timeMs, int extra, int s,
                           std::vector<int>& warmup) {
  for (; s >= 0; --s) {
    const PlanStage& stage = plan.stages[s];
    int R = stage.replicas;
    auto exposed = [&](const PlanStage& t) {
      return t.replicas > 1 && (t.syncDelay == 0 || t.allReduceMs > 0.25 * t.replicas * timeMs);
    };
    double most = 0;
    auto require = [&](int to, double tripMs) {
      const PlanStage& next = plan.stages[to];
      int ahead = exposed(stage) || exposed(next)
                      ? (warmup[to] + 2) * next.replicas + R - 2 * std::gcd(R, next.replicas)
                      : (warmup[to] + 1) * next.replicas;
      most = std::max(most, (ahead + extra + tripMs / timeMs) / R);
    };
    if (s + 1 < static_cast<int>(plan.stages.size())) require(s + 1, 0);
    for (const Edge& edge : edges)
      if (edge.from == s) require(edge.to, edge.roundTripMs());
    warmup[s] = std::min(ceilTolerant(most), mostUseful(plan, s));
  }
}

std::vector<int> pdc::hideUpperBound(const Plan& plan, double timeMs) {
  std::vector<int> warmup(plan.stages.size(), 0);
  if (timeMs > 0) fillUpperBound(plan, edgesOf(plan), timeMs, 0, static_cast<int>(plan.stages.size()) - 2, warmup);
  adjustWarmup(plan, warmup);
  return warmup;
}

std::vector<int> pdc::fillWarmup(const Plan& plan) {
  const std::vector<Edge> edges = edgesOf(plan);
  std::vector<int> warmup(plan.stages.size(), 0);
  std::vector<double> behindMs(plan.stages.size(), 0);
  for (std::size_t s = plan.stages.size(); s-- > 0;) {
    for (const Edge& edge : edges)
      if (edge.from == static_cast<int>(s) && edge.forward && edge.backward) {
        const auto to = static_cast<std::size_t>(edge.to);
        behindMs[s] = std::max(behindMs[s], edge.roundTripMs() + plan.stages[to].computeMs() + behindMs[to]);
      }
    const double forwardMs = plan.stages[s].forwardMs, most = mostUseful(plan, s);
    warmup[s] = static_cast<int>(forwardMs * most > behindMs[s] ? std::floor(behindMs[s] / forwardMs) : most);
  }
  adjustWarmup(plan, warmup);
  return warmup;
}

/// The lower bound for stage s, given those after s.
static int lowerBoundOf(const Plan& plan, const std::vector<Edge>& edges, double timeMs, int s,
                        const std::vector<int>& warmup) {
  auto n = static_cast<int>(plan.stages.size());
  constexpr double none = -std::numeric_limits<double>::infinity(); // there is no such path
  std::vector<double> there(n, none), back(n, none);                // longest from s to u, and from u to s
  const PlanStage& stage = plan.stages[s];
  there[s] = stage.forwardMs;
  back[s] = stage.computeMs() - stage.forwardMs;
  for (const Edge& edge : edges) { // sorted by `from`, so what leads to it is known
    if (edge.from < s) continue;
    const PlanStage& next = plan.stages[edge.to];
    if (edge.forward) there[edge.to] = std::max(there[edge.to], there[edge.from] + edge.forwardMs + next.forwardMs);
    if (edge.backward)
      back[edge.to] = std::max(back[edge.to], back[edge.from] + edge.backwardMs + next.computeMs() - next.forwardMs);
  }
  int most = 0;
  double R = stage.replicas, exposedMs = stage.unhiddenSyncMs();
  for (int u = s + 1; u < n; ++u) {
    if (there[u] == none || back[u] == none) continue;
    double loopMs = there[u] + back[u] + stage.updateMs, behind = 1.0 * warmup[u] * plan.stages[u].replicas;
    double whole = std::ceil(behind / R - 1e-9);
    if (stage.syncDelay == 0) {
      most = std::max(most, ceilTolerant((loopMs + (R > 1 ? exposedMs : 0)) / (timeMs * R) + whole) - 1);
    } else {
      most = std::max(most, ceilTolerant((behind + loopMs / timeMs) / R) - 1);
      most = std::max(most, ceilTolerant((loopMs + stage.allReduceMs) / (timeMs * R) + whole) - 2);
    }
  }
  return most;
}

/// What stage s needs as the owner of parameters, given the stages after it: no user runs further ahead.
static int leastOfOwner(const Plan& plan, int s, const std::vector<int>& warmup) {
  std::int64_t most = 0, R = plan.stages[s].replicas;
  for (const PlanSharedParameter& parameter : plan.sharedParameters)
    if (parameter.stages[0] == s)
      for (int user : parameter.stages)
        if (user != s) most = std::max(most, std::int64_t{warmup[user]} * plan.stages[user].replicas);
  return static_cast<int>((most + R - 1) / R);
}

std::vector<int> pdc::hideLowerBound(const Plan& plan, double timeMs) {
  std::vector<Edge> edges = edgesOf(plan);
  std::vector<int> warmup(plan.stages.size(), 0);
  if (timeMs > 0)
    for (int s = static_cast<int>(plan.stages.size()) - 2; s >= 0; --s)
      warmup[s] = std::min(std::max(lowerBoundOf(plan, edges, timeMs, s, warmup), leastOfOwner(plan, s, warmup)),
                           mostUseful(plan, s));
  adjustWarmup(plan, warmup);
  return warmup;
}

namespace {

/// Asks the simulator, as long as it has not taken too long.
class Judge {
public:
  Judge(const Plan& plan, const pdcrt::Times& times) : plan_(plan), times_(times) {}

  /// Whether the warm-up can still be judged.
  bool canJudge(const std::vector<int>& warmup) const {
    double actions = 0, perMinibatch = 0, inFlight = 0, period = std::max<double>(1, 1.0 * plan_.microbatches);
    for (std::size_t s = 0; s < warmup.size(); ++s) {
      actions += 11.0 * (warmup[s] + 4) * plan_.stages[s].replicas; // in the lists
      perMinibatch += 11;
      inFlight = std::max(inFlight, (warmup[s] + 1.0) * plan_.stages[s].replicas);
      period = std::max(period, 1.0 * plan_.stages[s].replicas);
    }
    return actions + perMinibatch * (6 * inFlight + 4 * period + 64) <= left_;
  }

  /// Steady-state time per minibatch with this warm-up; infinite if it is not legal, or if there is no time left.
  double period(std::vector<int> warmup) {
    adjustWarmup(plan_, warmup);
    if (!canJudge(warmup)) return INFINITY;
    for (std::size_t s = 0; s < warmup.size(); ++s) plan_.stages[s].warmup = warmup[s];
    pdcrt::Schedule schedule = buildSchedule(shapeOf(plan_));
    Simulation simulation = simulate(times_, schedule);
    left_ -= 11.0 * static_cast<double>(simulation.run.minibatches) * static_cast<double>(warmup.size());
    for (const pdcrt::RankList& rank : schedule.ranks) left_ -= static_cast<double>(rank.start.size());
    return simulation.run.passed ? simulation.timePerMinibatchMs : INFINITY;
  }

private:
  Plan plan_;
  const pdcrt::Times& times_;
  double left_ = 2e7; ///< actions; a second or two
};

} // namespace

/// The warm-up with that of stage s raised to `more`, and those of the stages before it as far as it needs.
static std::vector<int> raised(const Plan& plan, std::vector<int> warmup, std::size_t s, int more) {
  warmup[s] = more;
  for (; s > 0; --s) {
    std::int64_t ahead = std::int64_t{warmup[s]} * plan.stages[s].replicas, R = plan.stages[s - 1].replicas;
    warmup[s - 1] = std::max(warmup[s - 1], static_cast<int>((ahead + R - 1) / R));
  }
  for (s = 0; s < warmup.size(); ++s) warmup[s] = std::min(warmup[s], mostUseful(plan, s));
  return warmup;
}

std::vector<int> pdc::hideWarmup(const Plan& plan) {
  return hideWarmup(plan, timesOf(plan));
}

std::vector<int> pdc::hideWarmup(const Plan& plan, const pdcrt::Times& times) {
  constexpr double tolerance = 1.001;
  std::vector<int> warmup = hideUpperBound(plan, plan.timeMs);
  if (plan.timeMs <= 0) return warmup;
  std::vector<int> lower = hideLowerBound(plan, plan.timeMs);
  Judge judge(plan, times);
  if (!judge.canJudge(lower)) return warmup;
  if (judge.period(lower) <= tolerance * plan.timeMs) return lower;

  // Links that are shared between directions delay single transfers, which a little more room makes up for.
  std::vector<Edge> edges = edgesOf(plan);
  int last = static_cast<int>(plan.stages.size()) - 1, extra = 0;
  double best = judge.period(warmup);
  auto tryMore = [&](int more, int behind) {
    std::vector<int> attempt(plan.stages.size(), 0);
    attempt[last] = std::min(behind, mostUseful(plan, last));
    fillUpperBound(plan, edges, plan.timeMs, more, last - 1, attempt);
    double period = judge.period(attempt);
    if (period * tolerance > best) return;
    best = period;
    extra = more;
    warmup = attempt;
  };
  for (int more = 1; more <= 6 && best > tolerance * plan.timeMs; ++more) tryMore(more, 0);
  // The last stage has two input buffers if it never runs ahead, which may be too few as well.
  for (int behind = 1; behind <= 2 && !plan.schedule->hasBatches; ++behind)
    for (int more = 0; more <= 3 && best > tolerance * plan.timeMs; ++more) tryMore(more, behind);
  // Which stage has to be further ahead is anybody's guess then.
  bool better = true;
  while (better && best > tolerance * plan.timeMs) {
    better = false;
    for (int s = last; s >= 0 && !better; --s)
      for (int more = 1; more <= 3 && !better; ++more) {
        std::vector<int> attempt = raised(plan, warmup, static_cast<std::size_t>(s), warmup[s] + more);
        double period = judge.period(attempt);
        if (period * 1.01 > best) continue; // each costs memory
        best = period;
        warmup = attempt;
        better = true;
      }
  }

  double target = tolerance * std::max(plan.timeMs, best);
  if (judge.period(lower) <= target) return lower;
  for (int s = last - 1; s >= 0; --s) {
    int enough = warmup[s];
    for (int w = lowerBoundOf(plan, edges, plan.timeMs, s, warmup); w < enough; ++w) {
      std::vector<int> attempt = warmup;
      attempt[s] = w;
      fillUpperBound(plan, edges, plan.timeMs, extra, s - 1, attempt);
      if (judge.period(attempt) <= target) {
        warmup = attempt;
        break;
      }
    }
  }
  adjustWarmup(plan, warmup);
  return warmup;
}

void pdc::adjustWarmup(const Plan& plan, std::vector<int>& warmup) {
  if (plan.schedule->hasBatches) {
    for (std::size_t s = 0; s < warmup.size(); ++s) {
      warmup[s] = std::min(warmup[s], mostUseful(plan, s));
      // Without a drain no stage may run ahead of the one before it.
      if (s > 0 && !plan.schedule->flushes)
        warmup[s] = std::min(warmup[s], warmup[s - 1] * plan.stages[s - 1].replicas / plan.stages[s].replicas);
    }
  } else if (plan.weights == pdcrt::WeightPolicy::verticalSync) {
    const PlanStage& input = plan.stages[0];
    for (std::size_t s = 1; s < warmup.size(); ++s) {
      int needed = plan.stages[s].replicas * (warmup[s] + plan.stages[s].syncDelay);
      warmup[0] = std::max(warmup[0], (needed + input.replicas - 1) / input.replicas - input.syncDelay);
    }
  }
}
