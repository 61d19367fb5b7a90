// LINK: pdcPredict
// Where time and memory of the ranks go: the parts add up, and agree with what is counted elsewhere.
#include "RandomShape.h"
#include "Rounds.h"
#include "pdc/Predict/Simulate.h"
#include "pdc/Predict/TimeParts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

using namespace pdc;

namespace {

/// A plan with the stages and edges of a random pipeline, and random costs.
Plan randomPlan(std::mt19937& random, const PipelineShape& shape) {
  auto uniform = [&](double least, double most) { return std::uniform_real_distribution(least, most)(random); };
  auto bytes = [&] { return std::uniform_int_distribution<std::int64_t>(1, 1'000'000)(random); };
  Plan plan;
  plan.schedule = shape.microbatches > 0 ? "1f1b-flush" : "1f1b";
  plan.microbatches = std::max<std::int64_t>(1, shape.microbatches);
  plan.cluster.levels = {{"server", 16, 1e9, 1e-4}};
  plan.cluster.device.name = "gpu";
  for (std::size_t s = 0; s < shape.stages.size(); ++s) {
    PlanStage stage;
    stage.nodes = {static_cast<std::int64_t>(s)};
    stage.replicas = shape.stages[s].replicas;
    stage.warmup = shape.stages[s].warmup;
    stage.syncDelay = shape.stages[s].syncDelay;
    stage.forwardMs = uniform(0.1, 2);
    stage.inputGradientMs = uniform(0.1, 2);
    stage.weightGradientMs = uniform(0.1, 2);
    stage.updateMs = uniform(0, 0.5);
    stage.parameterBytes = bytes();
    stage.gradientBytes = bytes();
    stage.savedBytes = bytes();
    stage.scratchBytes = bytes();
    stage.optimizerBytes = bytes();
    plan.stages.push_back(stage);
    for (int q = 0; q < stage.replicas; ++q) {
      auto rank = static_cast<int>(plan.ranks.size());
      plan.ranks.push_back({.rank = rank, .devices = {rank}, .hosts = {{static_cast<int>(s), q}}});
    }
  }
  for (const pdcrt::ScheduleEdge& edge : shape.edges)
    if (edge.forward) plan.tensors.push_back({"t", edge.from, edge.to, bytes(), edge.backward});
  return plan;
}

struct Case {
  Plan plan;
  pdcrt::Schedule schedule;
};

Case randomCase(std::mt19937& random) {
  Case made;
  made.plan = randomPlan(random, randomShape(random));
  made.schedule = buildSchedule(shapeOf(made.plan));
  return made;
}

} // namespace

TEST(TimeParts, AddUpToTheRun) {
  std::mt19937 random(1);
  for (int round = 0; round < rounds(300); ++round) {
    Case made = randomCase(random);
    if (round % 3 == 0) made.plan.cluster.device.cores = 2;
    Prediction prediction = predict(made.plan, made.schedule, 1 + round % 40, true);
    ASSERT_EQ(prediction.problem, "") << round;
    std::vector<double> computing(prediction.ranks.size()), blocked(prediction.ranks.size());
    for (const pdcrt::TracedAction& traced : prediction.trace)
      if (traced.action.wait)
        blocked[traced.rank] += traced.endMs - traced.startMs;
      else if (pdcrt::isComputation(traced.action.kind))
        computing[traced.rank] += traced.endMs - traced.startMs;
    for (std::size_t r = 0; r < prediction.ranks.size(); ++r) {
      const pdcrt::RankUse& use = prediction.ranks[r].use;
      double near = 1e-9 * (1 + prediction.finishMs);
      EXPECT_NEAR(use.computeMs + use.sharedMs, computing[r], near);
      EXPECT_NEAR(use.transferMs + use.allReduceMs + use.fillMs + use.waitingMs, blocked[r], near);
      EXPECT_NEAR(computing[r] + blocked[r], use.lastMs, near) << "rank " << r << " of round " << round;
      double sum = 0;
      for (const TimePart& part : timeParts) {
        EXPECT_GE(use.*part.ms, 0);
        sum += use.*part.ms;
      }
      EXPECT_NEAR(sum, prediction.finishMs, near);
    }
  }
}

TEST(TimeParts, AreRoundedToWholePercentages) {
  std::mt19937 random(2);
  for (int round = 0; round < rounds(10'000); ++round) {
    pdcrt::RankUse use;
    double sum = 0;
    for (const TimePart& part : timeParts)
      sum += use.*part.ms = random() % 3 == 0 ? 0 : std::exp(std::uniform_real_distribution(-20.0, 5.0)(random));
    std::int64_t all = 0;
    std::array<std::int64_t, timeParts.size()> shares = hundredthsOf(use);
    for (std::size_t i = 0; i < shares.size(); ++i) {
      EXPECT_LE(std::abs(static_cast<double>(shares[i]) - 1e4 * (use.*timeParts[i].ms) / std::max(sum, 1e-300)), 1.0);
      all += shares[i];
    }
    ASSERT_EQ(all, sum > 0 ? 10'000 : 0) << round;
  }
}

// The rules of the check count minibatches and versions in their own way.
TEST(Memory, InUseAgreesWithTheCheck) {
  std::mt19937 random(3);
  for (int round = 0; round < rounds(300); ++round) {
    Case made = randomCase(random);
    MemorySplit large; // hides nothing
    for (const MemoryPart& part : memoryParts) large.*part.bytes = std::int64_t{1} << 50;
    auto ranks = static_cast<int>(made.schedule.ranks.size());
    std::int64_t minibatches = 1 + round % 50;
    std::vector<MemorySplit> most(ranks), last(ranks);
    std::vector<double> time(ranks, 0);
    LiveMemory live(made.plan, made.schedule, std::vector(ranks, large), minibatches, ranks,
                    [&](int rank, double ms, const MemorySplit& inUse) {
                      for (const MemoryPart& part : memoryParts) {
                        ASSERT_GE(inUse.*part.bytes, 0) << part.name;
                        most[rank].*part.bytes = std::max(most[rank].*part.bytes, inUse.*part.bytes);
                      }
                      ASSERT_GE(ms, time[rank]);
                      time[rank] = ms;
                      last[rank] = inUse;
                    });
    pdcrt::Times times = timesOf(made.plan);
    pdcrt::CheckResult result =
        pdcrt::check(made.schedule, minibatches,
                     {.times = &times, .observe = [&](const pdcrt::TracedAction& traced) { live.see(traced); }});
    live.finish();
    ASSERT_TRUE(result.passed) << result.problem;
    std::vector<MemorySplit> arenas = arenasOf(made.plan, made.schedule);
    for (const pdcrt::HostUse& use : result.hosts) {
      int rank = made.schedule.rankOf(use.host.stage, use.host.replica);
      const PlanStage& stage = made.plan.stages[use.host.stage];
      EXPECT_EQ(most[rank].versions, (use.versions - 1) * stage.parameterBytes) << "round " << round;
      std::int64_t slots = made.schedule.stages[use.host.stage].slots;
      EXPECT_EQ(most[rank].stash * slots, use.inFlight * arenas[rank].stash) << "round " << round;
      for (std::int64_t MemorySplit::*part :
           {&MemorySplit::versions, &MemorySplit::stash, &MemorySplit::gradients, &MemorySplit::buffers}) {
        EXPECT_LE(most[rank].*part, arenas[rank].*part) << "round " << round;
        EXPECT_EQ(last[rank].*part, 0) << "after the end, round " << round;
      }
    }
  }
}

// Also where ranks host several stages, and where backwards are split.
TEST(Memory, InUseFitsIntoTheArenaUnderEverySchedule) {
  for (const char* kind : {"1f1b", "1f1b-flush", "gpipe", "2bw", "zb-h1", "interleaved:2", "zb-v", "bfs:2"}) {
    std::mt19937 random(6);
    PipelineShape shape = straightShape({{1, 3, 0}, {1, 2, 0}, {1, 1, 0}, {1, 0, 0}});
    Plan plan = randomPlan(random, shape);
    plan.schedule = kind;
    plan.microbatches = 8;
    pdcrt::Schedule schedule = buildSchedule(shapeOf(plan));
    plan.ranks.clear();
    for (const pdcrt::RankList& list : schedule.ranks) {
      auto number = static_cast<int>(plan.ranks.size());
      plan.ranks.push_back({.rank = number, .devices = {number}, .hosts = {}});
      for (const pdcrt::Host& host : list.hosts) plan.ranks.back().hosts.push_back({host.stage, host.replica});
    }
    Prediction prediction = predict(plan, schedule, 24, true);
    ASSERT_EQ(prediction.problem, "") << kind;
    for (std::size_t r = 0; r < prediction.ranks.size(); ++r) {
      MemorySplit arena = prediction.ranks[r].memory, most, last;
      for (const MemorySample& sample : prediction.memory)
        if (sample.rank == static_cast<int>(r)) {
          for (const MemoryPart& part : memoryParts)
            most.*part.bytes = std::max(most.*part.bytes, sample.inUse.*part.bytes);
          last = sample.inUse;
        }
      bool alone = plan.ranks[r].hosts.size() == 1; // the stages of a rank need not be full at the same time
      EXPECT_GE(most.stash, alone ? arena.stash : 1) << kind << ", rank " << r;
      EXPECT_LE(most.stash, arena.stash) << kind << ", rank " << r;
      EXPECT_EQ(most.versions, arena.versions) << kind << ", rank " << r;
      EXPECT_EQ(most.gradients, arena.gradients) << kind << ", rank " << r;
      EXPECT_LE(most.buffers, arena.buffers) << kind << ", rank " << r;
      EXPECT_EQ(last.stash + last.versions + last.gradients + last.buffers, 0) << kind << ", rank " << r;
    }
  }
}

TEST(Memory, PartsAddUpToWhatThePlanStates) {
  std::mt19937 random(4);
  for (int round = 0; round < rounds(300); ++round) {
    Case made = randomCase(random);
    for (PlanStage& stage : made.plan.stages)
      stage.memoryBytes = std::uniform_int_distribution<std::int64_t>(1, 20'000'000)(random);
    Prediction prediction = predict(made.plan, made.schedule, 10);
    for (std::size_t r = 0; r < prediction.ranks.size(); ++r) {
      const RankPrediction& rank = prediction.ranks[r];
      EXPECT_EQ(rank.memory.total(), made.plan.stages[made.plan.ranks[r].hosts[0].stage].memoryBytes);
      EXPECT_EQ(rank.peakMemoryBytes, rank.memory.total());
      for (const MemoryPart& part : memoryParts) {
        EXPECT_GE(rank.memory.*part.bytes, 0) << part.name;
        EXPECT_LE(prediction.courses[r].peak().*part.bytes, rank.memory.*part.bytes) << part.name;
      }
    }
  }
}

TEST(MemoryCourse, KeepsTheMostOfEveryInterval) {
  std::mt19937 random(5);
  for (int round = 0; round < rounds(300); ++round) {
    MemoryCourse course(0.5);
    std::vector<std::pair<double, std::int64_t>> changes;
    double ms = 0;
    for (int i = 0; i < 1 + round; ++i, ms += std::uniform_real_distribution(0.0, 2.0)(random)) {
      changes.push_back({ms, static_cast<std::int64_t>(random() % 1000)});
      course.change(ms, {.stash = changes.back().second});
    }
    course.finish(ms);
    ASSERT_LE(course.intervals().size(), MemoryCourse::mostIntervals);
    for (std::size_t i = 0; i < course.intervals().size(); ++i) {
      double from = static_cast<double>(i) * course.intervalMs(), to = from + course.intervalMs();
      std::int64_t most = 0;
      for (std::size_t c = 0; c < changes.size(); ++c) {
        double end = c + 1 < changes.size() ? changes[c + 1].first : INFINITY;
        if (changes[c].first < to && end > from) most = std::max(most, changes[c].second);
      }
      EXPECT_EQ(course.intervals()[i].stash, most) << "interval " << i << " of round " << round;
    }
  }
}
