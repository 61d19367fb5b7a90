#include "pdc/Schedule/Warmup.h"

#include "pdc/Schedule/PlanSchedule.h"

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

/// A batch of a flushing schedule holds no more than so many forwards before the first backward.
static int mostUseful(const Plan& plan, std::size_t s) {
  if (plan.schedule != "1f1b-flush") return std::numeric_limits<int>::max();
  std::int64_t perBatch = (plan.microbatches + plan.stages[s].replicas - 1) / plan.stages[s].replicas;
  return static_cast<int>(perBatch - 1);
}

/// ceil that forgives what floating-point division adds to an integer.
static int ceilTolerant(double value) {
  return static_cast<int>(std::ceil(value - 1e-9));
}

namespace {

/// Transfer times between stages, there and back.
struct RoundTrip {
  int from, to;
  double ms;
};

} // namespace

static std::vector<RoundTrip> roundTripsOf(const Plan& plan) {
  pdcrt::Times times = timesOf(plan);
  std::vector<RoundTrip> result;
  for (const EdgeTraffic& traffic : trafficOf(plan)) {
    double ms = 0;
    if (traffic.edge.forward) ms += times.transfer(traffic.edge, true);
    if (traffic.edge.backward) ms += times.transfer(traffic.edge, false);
    result.push_back({traffic.edge.from, traffic.edge.to, ms});
  }
  return result;
}

/// The upper bound for stages s, s-1, … 0, given those after s, with `extra` minibatches more between neighbours.
static void fillUpperBound(const Plan& plan, const std::vector<RoundTrip>& trips, double timeMs, int extra, int s,
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
    for (const RoundTrip& trip : trips)
      if (trip.from == s) require(trip.to, trip.ms);
    warmup[s] = std::min(ceilTolerant(most), mostUseful(plan, s));
  }
}

std::vector<int> pdc::hideUpperBound(const Plan& plan, double timeMs) {
  std::vector<int> warmup(plan.stages.size(), 0);
  if (timeMs > 0) fillUpperBound(plan, roundTripsOf(plan), timeMs, 0, static_cast<int>(plan.stages.size()) - 2, warmup);
  adjustWarmup(plan, warmup);
  return warmup;
}

/// The lower bound for stage s, given those after s.
static int lowerBoundOf(const Plan& plan, const std::vector<RoundTrip>& trips, double timeMs, int s,
                        const std::vector<int>& warmup) {
  int most = 0;
  double loopMs = plan.stages[s].computeMs();
  for (int u = s + 1; u < static_cast<int>(plan.stages.size()); ++u) {
    for (const RoundTrip& trip : trips)
      if (trip.from == u - 1 && trip.to == u) loopMs += trip.ms;
    loopMs += plan.stages[u].computeMs();
    double ahead = warmup[u] * plan.stages[u].replicas + loopMs / timeMs;
    most = std::max(most, ceilTolerant(ahead / plan.stages[s].replicas) - 1);
  }
  return most;
}

std::vector<int> pdc::hideLowerBound(const Plan& plan, double timeMs) {
  std::vector<RoundTrip> trips = roundTripsOf(plan);
  std::vector<int> warmup(plan.stages.size(), 0);
  if (timeMs > 0)
    for (int s = static_cast<int>(plan.stages.size()) - 2; s >= 0; --s)
      warmup[s] = lowerBoundOf(plan, trips, timeMs, s, warmup);
  adjustWarmup(plan, warmup);
  return warmup;
}

/// Steady-state time per minibatch with this warm-up; infinite if it is not legal.
static double periodWith(Plan plan, std::vector<int> warmup) {
  adjustWarmup(plan, warmup);
  for (std::size_t s = 0; s < warmup.size(); ++s) plan.stages[s].warmup = warmup[s];
  Simulation simulation = simulate(plan, buildSchedule(shapeOf(plan)));
  return simulation.run.passed ? simulation.timePerMinibatchMs : INFINITY;
}

std::vector<int> pdc::hideWarmup(const Plan& plan) {
  constexpr double tolerance = 1.001;
  std::vector<int> warmup = hideUpperBound(plan, plan.timeMs);
  if (plan.timeMs <= 0) return warmup;
  std::vector<int> lower = hideLowerBound(plan, plan.timeMs);
  if (periodWith(plan, lower) <= tolerance * plan.timeMs) return lower;

  // Links that are shared between directions delay single transfers, which a little more room makes up for.
  std::vector<RoundTrip> trips = roundTripsOf(plan);
  int last = static_cast<int>(plan.stages.size()) - 1, extra = 0;
  double best = periodWith(plan, warmup);
  for (int more = 1; more <= 2 && best > tolerance * plan.timeMs; ++more) {
    std::vector<int> attempt(plan.stages.size(), 0);
    fillUpperBound(plan, trips, plan.timeMs, more, last - 1, attempt);
    double period = periodWith(plan, attempt);
    if (period * tolerance > best) continue;
    best = period;
    extra = more;
    warmup = attempt;
  }

  double target = tolerance * std::max(plan.timeMs, best);
  if (periodWith(plan, lower) <= target) return lower;
  for (int s = last - 1; s >= 0; --s) {
    int enough = warmup[s];
    for (int w = lowerBoundOf(plan, trips, plan.timeMs, s, warmup); w < enough; ++w) {
      std::vector<int> attempt = warmup;
      attempt[s] = w;
      fillUpperBound(plan, trips, plan.timeMs, extra, s - 1, attempt);
      if (periodWith(plan, attempt) <= target) {
        warmup = attempt;
        break;
      }
    }
  }
  adjustWarmup(plan, warmup);
  return warmup;
}

void pdc::adjustWarmup(const Plan& plan, std::vector<int>& warmup) {
  if (plan.schedule == "1f1b-flush") {
    for (std::size_t s = 0; s < warmup.size(); ++s) warmup[s] = std::min(warmup[s], mostUseful(plan, s));
  } else if (plan.weights == "vertical-sync") {
    const PlanStage& input = plan.stages[0];
    for (std::size_t s = 1; s < warmup.size(); ++s) {
      int needed = plan.stages[s].replicas * (warmup[s] + plan.stages[s].syncDelay);
      warmup[0] = std::max(warmup[0], (needed + input.replicas - 1) / input.replicas - input.syncDelay);
    }
  }
}
