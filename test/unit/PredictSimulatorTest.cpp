// LINK: pdcPredict
// The simulator against what can be computed by hand, and its period against the largest load of random plans.
#include "Rounds.h"
#include "pdc/Predict/Simulate.h"
#include "pdc/Predict/Warmup.h"
#include "pdc/Support/Diagnostics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <numeric>
#include <random>

using namespace pdc;

namespace {

struct TestStage {
  int replicas = 1;
  double forwardMs = 1, backwardMs = 2;
  double bytes = 0;      ///< to the next stage, and as many back
  double parameters = 0; ///< bytes
  double updateMs = 0;
};

Plan planOf(const std::vector<TestStage>& stages, std::vector<ClusterLevel> levels, const char* device = "gpu") {
  Plan plan;
  plan.cluster.levels = std::move(levels);
  plan.cluster.device.name = device;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    PlanStage stage;
    stage.nodes = {static_cast<std::int64_t>(s)};
    stage.replicas = stages[s].replicas;
    stage.forwardMs = stages[s].forwardMs;
    stage.inputGradientMs = stage.weightGradientMs = stages[s].backwardMs / 2;
    stage.updateMs = stages[s].updateMs;
    stage.parameterBytes = static_cast<std::int64_t>(stages[s].parameters);
    plan.stages.push_back(stage);
    int index = static_cast<int>(s);
    if (s + 1 < stages.size())
      plan.tensors.push_back({"t", index, index + 1, static_cast<std::int64_t>(stages[s].bytes), true});
    for (int q = 0; q < stage.replicas; ++q) {
      int rank = static_cast<int>(plan.ranks.size());
      plan.ranks.push_back({.rank = rank, .devices = {rank}, .hosts = {{index, q}}});
    }
  }
  for (PlanStage& stage : plan.stages) stage.syncDelay = syncDelayFor(plan, stage.replicas);
  return plan;
}

/// The largest load per minibatch of a device, all-reduce, link or lane, by following the minibatches of one period.
class Loads {
public:
  explicit Loads(const Plan& plan) : plan_(plan) {
    std::int64_t period = 1;
    for (const PlanStage& stage : plan.stages) period = std::lcm(period, stage.replicas);
    for (std::size_t s = 0; s < plan.stages.size(); ++s) {
      const PlanStage& stage = plan.stages[s];
      double r = stage.replicas, alone = allReduce(static_cast<int>(s), period / stage.replicas);
      add("device", s, 0, (stage.computeMs() + stage.updateMs + (stage.syncDelay == 0 ? alone : 0)) / r);
      add("all-reduce", s, 0, alone / r);
    }
    for (std::int64_t b = 0; b < period; ++b)
      for (const PlanTensor& tensor : plan.tensors)
        for (bool forward : {true, false}) {
          int from = forward ? tensor.from : tensor.to, to = forward ? tensor.to : tensor.from;
          std::int64_t a = leaf(from, b), z = leaf(to, b);
          double ms = cross(a, z, static_cast<double>(tensor.bytes), 1.0 / static_cast<double>(period));
          add(forward ? "lane out" : "lane back", a, from, ms / static_cast<double>(period));
          add(forward ? "lane in" : "lane back in", z, from, ms / static_cast<double>(period));
        }
  }

  /// Of the resources whose names begin so.
  double largest(const std::string& prefix = "") const {
    double most = 0;
    for (const auto& [name, ms] : loads_)
      if (name.starts_with(prefix)) most = std::max(most, ms);
    return most;
  }

private:
  void add(const std::string& what, std::int64_t which, std::int64_t more, double ms) {
    loads_[what + " " + std::to_string(which) + " " + std::to_string(more)] += ms;
  }

  std::int64_t leaf(int stage, std::int64_t b) const {
    std::int64_t first = 0;
    for (int s = 0; s < stage; ++s) first += plan_.stages[s].replicas;
    return first + b % plan_.stages[stage].replicas;
  }

  /// Adds bytes to the links between two leaves, `times` per minibatch. Returns the time alone.
  double cross(std::int64_t a, std::int64_t z, double bytes, double times, const std::string& prefix = "link") {
    double latency = 0, slowest = 0;
    std::int64_t inside = 1;
    for (std::size_t j = 0; j < plan_.cluster.levels.size() && a / inside != z / inside; ++j) {
      const ClusterLevel& level = plan_.cluster.levels[j];
      double ms = 1e3 * bytes / level.bandwidthBytesPerS;
      add(prefix + " up " + std::to_string(j), a / inside, 0, ms * times);
      add(prefix + " down " + std::to_string(j), z / inside, 0, ms * times);
      latency = std::max(latency, 1e3 * level.latencyS);
      slowest = std::max(slowest, ms);
      inside *= level.count;
    }
    return latency + slowest;
  }

  /// A ring: every hop carries 2(r-1)/r·|w| per update.
  double allReduce(int stage, std::int64_t) {
    double r = plan_.stages[stage].replicas, latency = 0;
    if (r < 2) return 0;
    std::map<std::string, double> before = loads_;
    double bytes = 2 * (r - 1) / r * static_cast<double>(plan_.stages[stage].parameterBytes);
    for (int q = 0; q < r; ++q) {
      std::int64_t a = leaf(stage, q), z = leaf(stage, (q + 1) % static_cast<int>(r));
      cross(a, z, bytes, 1 / r);
      latency = std::max(latency, cross(a, z, 0, 0));
    }
    double busiest = 0;
    for (const auto& [name, ms] : loads_)
      if (name.starts_with("link")) busiest = std::max(busiest, (ms - before[name]) * r);
    return 2 * (r - 1) * latency + busiest;
  }

  const Plan& plan_;
  std::map<std::string, double> loads_;
};

double simulated(Plan plan, const std::vector<int>& warmup) {
  for (std::size_t s = 0; s < warmup.size(); ++s) plan.stages[s].warmup = warmup[s];
  Simulation simulation = simulate(plan, buildSchedule(shapeOf(plan)));
  EXPECT_TRUE(simulation.run.passed) << simulation.run.problem;
  return simulation.timePerMinibatchMs;
}

std::string textOf(const Plan& plan, const std::vector<int>& warmup) {
  std::string text;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const PlanStage& stage = plan.stages[s];
    text += std::to_string(stage.replicas) + " replicas, F " + std::to_string(stage.forwardMs) + " B " +
            std::to_string(stage.computeMs() - stage.forwardMs) + " |w| " + std::to_string(stage.parameterBytes) +
            " w " + std::to_string(warmup[s]) +
            (s < plan.tensors.size() ? " sends " + std::to_string(plan.tensors[s].bytes) : "") + "\n";
  }
  return text;
}

} // namespace

// Times per megabyte: 1 ms inside a server, 4 ms between servers; latencies 0.1 and 0.5 ms.
static std::vector<ClusterLevel> twoLevels(std::int64_t inner, std::int64_t outer) {
  return {{"server", inner, 1e9, 1e-4}, {"rack", outer, 0.25e9, 5e-4}};
}

TEST(Network, TransfersCrossEveryLinkUpToTheLevelWhereTheyMeet) {
  Plan plan = planOf({{.bytes = 1e6}, {.bytes = 1e6}, {}}, twoLevels(2, 2));
  pdcrt::Times times = timesOf(plan);
  EXPECT_NEAR(times.transfer({0, 1}, true), 0.1 + 1, 1e-9);
  EXPECT_NEAR(times.transfer({1, 2}, true), 0.5 + 4, 1e-9);
  pdcrt::Load load;
  times.transferLoad({1, 2}, true, 1, 2, load);
  EXPECT_EQ(load.links.size(), 4u);
}

// Two stages in different servers, one replica of each on the same link: the second halves the rate of the first.
TEST(Network, UplinksAreShared) {
  // Replicas 0, 1 of stage 0 in server 0, those of stage 1 in server 1; computation is short.
  Plan plan = planOf({{.replicas = 2, .forwardMs = 0.01, .backwardMs = 0.01, .bytes = 1e6},
                      {.replicas = 2, .forwardMs = 0.01, .backwardMs = 0.01}},
                     {{"server", 2, 1e9, 1e-6}, {"rack", 2, 0.25e9, 1e-6}});
  // Each minibatch takes 4 ms of the uplink.
  EXPECT_NEAR(simulated(plan, {30, 0}), 4, 0.05);
  // With a link each they would need 2: lanes of their own per replica.
  plan.cluster.levels = {{"all", 4, 0.25e9, 5e-4}};
  EXPECT_NEAR(simulated(plan, {30, 0}), (4 + 0.5) / 2, 0.05); // latency keeps a lane busy, not a link
}

TEST(Network, AllReduceIsARingOrADirectExchange) {
  // Four replicas in two servers. Ring: each server's uplink carries one hop, 2·3/4·|w|; every device's link as well.
  std::vector<TestStage> stages = {{.replicas = 4, .parameters = 1e6}};
  pdcrt::Load ring, direct;
  timesOf(planOf(stages, twoLevels(2, 2))).allReduceLoad(pdcrt::ActionKind::allReduce, 0, 0, ring);
  EXPECT_NEAR(ring.latencyMs, 6 * 0.5, 1e-9);
  double slowest = 0;
  for (const pdcrt::LinkUse& use : ring.links) slowest = std::max(slowest, use.ms);
  EXPECT_NEAR(slowest, 1.5 * 4, 1e-9);
  // Direct exchange: the uplink carries 2·2·2/4·|w|.
  timesOf(planOf(stages, twoLevels(2, 2), "cpu")).allReduceLoad(pdcrt::ActionKind::allReduce, 0, 0, direct);
  slowest = 0;
  for (const pdcrt::LinkUse& use : direct.links) slowest = std::max(slowest, use.ms);
  EXPECT_NEAR(slowest, 2 * 4, 1e-9);
}

TEST(Network, AReduceScatterAndAnAllGatherAreHalfOfIt) {
  Plan plan = planOf({{.replicas = 4, .parameters = 1e6}}, twoLevels(2, 2));
  pdcrt::Load whole;
  timesOf(plan).allReduceLoad(pdcrt::ActionKind::allReduce, 0, 0, whole);
  plan.stages[0].sharding = pdcrt::Sharding::optimizer;
  for (const pdcrt::ActionKind kind : {pdcrt::ActionKind::reduceScatter, pdcrt::ActionKind::allGather}) {
    pdcrt::Load half;
    timesOf(plan).allReduceLoad(kind, 0, 0, half);
    EXPECT_NEAR(half.latencyMs, whole.latencyMs / 2, 1e-9);
    EXPECT_NEAR(half.aloneMs, whole.aloneMs / 2, 1e-9);
    ASSERT_EQ(half.links.size(), whole.links.size());
    for (std::size_t i = 0; i < half.links.size(); ++i) EXPECT_NEAR(half.links[i].ms, whole.links[i].ms / 2, 1e-9);
  }
}

// One stage, two replicas: F + B = 3, then an all-reduce of 2·(0.1 + 0.5·1) = 1.2 ms, then the update.
TEST(Simulator, WaitsForTheAllReduce) {
  Plan plan = planOf({{.replicas = 2, .parameters = 1e6, .updateMs = 0.5}}, {{"server", 2, 1e9, 1e-4}});
  EXPECT_EQ(plan.stages[0].syncDelay, 0);
  EXPECT_NEAR(2 * simulated(plan, {0}), 3 + 1.2 + 0.5, 1e-9);
  plan.stages[0].allReduceMs = 1.2;
  plan.stages[0].exposedSyncMs = 0.3; // buckets hide the rest
  EXPECT_NEAR(2 * simulated(plan, {0}), 3 + 0.3 + 0.5, 1e-9);
  plan.stages[0].buckets = {{.bytes = 1000000, .final = 0.1}}; // all of it
  plan.stages[0].exposedSyncMs = 0;
  EXPECT_NEAR(2 * simulated(plan, {0}), 3 + 0.5, 1e-9);
}

TEST(Simulator, RanksOfAServerShareItsCores) {
  Plan plan = planOf({{}, {}, {}, {}}, twoLevels(2, 2));
  plan.cluster.device.cores = 1;
  EXPECT_NEAR(simulated(plan, {3, 2, 1, 0}), 6, 1e-6); // two stages of 3 ms on each core
}

TEST(Simulator, ATeamTakesACoreForEachMember) {
  Plan plan = planOf({{}, {}}, {{"server", 2, 1e12, 0}});
  for (PlanStage& stage : plan.stages) stage.split.members = 2;
  for (const auto& [cores, ms] : {std::pair(0, 3.0), {4, 3.0}, {3, 6.0}, {2, 6.0}, {1, 12.0}}) {
    plan.cluster.device.cores = cores;
    EXPECT_NEAR(simulated(plan, {1, 0}), ms, 1e-6) << cores;
  }
}

// Whatever a rank does with its time is told, and the parts add up.
TEST(Simulator, TellsWhereTheTimeWent) {
  Plan plan =
      planOf({{.replicas = 2, .bytes = 3e5, .parameters = 1e6}, {.bytes = 2e6}, {.forwardMs = 0.5}}, twoLevels(2, 2));
  plan.stages[0].warmup = 1;
  plan.stages[1].warmup = 1;
  plan.cluster.device.cores = 1;
  Simulation simulation = simulate(plan, buildSchedule(shapeOf(plan)), 50);
  ASSERT_EQ(simulation.run.ranks.size(), 4u);
  double transfers = 0, waiting = 0;
  for (const pdcrt::RankUse& use : simulation.run.ranks) {
    EXPECT_NEAR(use.computeMs + use.sharedMs + use.transferMs + use.allReduceMs + use.fillMs + use.waitingMs +
                    use.endedMs,
                simulation.run.finishMs, 1e-6);
    transfers += use.transferMs;
    waiting += use.waitingMs;
  }
  EXPECT_NEAR(simulation.run.ranks[3].computeMs, 50 * 2.5, 1e-6);
  EXPECT_GT(transfers, 10);
  EXPECT_GT(waiting, 10);
}

// The period of `hide` is the largest load: unequal stages, replicas, transfers of up to 1.2 of the computation.
TEST(Simulator, PeriodIsTheLargestLoad) {
  std::mt19937 random(11);
  auto uniform = [&](double least, double most) { return std::uniform_real_distribution(least, most)(random); };
  int linkBoundCount = 0;
  double worst = 0, worstLinkBound = 0;
  for (int round = 0; round < rounds(100); ++round) {
    std::vector<TestStage> stages(std::uniform_int_distribution<std::size_t>(1, 6)(random));
    int kind = round % 5; // straight, replicated, two levels, a slow all-reduce, slow links
    for (TestStage& stage : stages) {
      int r = kind == 0 ? 1 : std::uniform_int_distribution(1, 4)(random);
      double most = kind == 0 ? 1.2 : kind == 4 ? 3 : 0.4;
      stage = {.replicas = r,
               .forwardMs = r * uniform(0.4, 1),
               .backwardMs = r * uniform(0.8, 2),
               .bytes = 1e6 * uniform(0, most),
               .parameters = kind == 3 ? 1e6 * uniform(0, 0.5 * r) : 0,
               .updateMs = kind == 3 ? uniform(0, 0.2) : 0};
    }
    Plan plan = planOf(stages, {{"machine", 32, 1e9, 1e-6}});
    if (kind == 2) plan.cluster.levels = {{"server", 4, 4e9, 1e-6}, {"rack", 8, 1e9, 1e-5}};
    Loads loads(plan);
    plan.timeMs = loads.largest();
    std::vector<int> warmup = hideWarmup(plan);
    double error = simulated(plan, warmup) / plan.timeMs - 1;
    EXPECT_GT(error, -2e-3) << "round " << round << "\n" << textOf(plan, warmup);
    // Where links are the bottleneck, or nearly, transfers that wait for another link leave some of their time unused.
    bool linkBound = loads.largest("link") > 0.75 * plan.timeMs;
    EXPECT_LT(error, linkBound ? 0.6 : 0.01) << "round " << round << "\n" << textOf(plan, warmup);
    linkBoundCount += linkBound;
    worst = std::max(worst, linkBound ? 0 : error);
    worstLinkBound = std::max(worstLinkBound, linkBound ? error : 0);
  }
  std::printf("worst of %d plans: %.4f %%; of %d more, with crowded links: %.2f %%\n", rounds(100) - linkBoundCount,
              100 * worst, linkBoundCount, 100 * worstLinkBound);
}
// A warm-up for pipelines so large that no simulation is tried.
TEST(Warmup, IsBoundedForLargePlans) {
  std::vector<TestStage> stages(3000, TestStage{.bytes = 1e5});
  Plan plan = planOf(stages, {{"machine", 3000, 1e9, 1e-6}});
  plan.timeMs = 3;
  std::vector<int> warmup = hideWarmup(plan);
  for (std::size_t s = 0; s + 1 < stages.size(); ++s) EXPECT_GT(warmup[s], warmup[s + 1]);
}
