// LINK: pdcSchedule
// Shards in schedules: actions as text, what the check demands of them, lists for stages whose optimizer is sharded,
// and PyTorch's cells. (That none of these lists deadlocks is in ScheduleRandomTest.)
#include "pdc/Schedule/PipelineShape.h"
#include "pdc/Schedule/TorchCsv.h"
#include "pdc/Support/Diagnostics.h"
#include "pdcrt/Simulate.h"
#include "pdcrt/Verify.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

using namespace pdc;
using pdcrt::Action;
using pdcrt::ActionKind;
using pdcrt::Schedule;

namespace {

Schedule sharded(const char* kind, std::int64_t microbatches = 4) {
  PipelineShape shape = straightShape({{.replicas = 2, .warmup = 1, .sharding = pdcrt::Sharding::optimizer}, {}});
  shape.kind = kind;
  shape.microbatches = microbatches;
  return buildSchedule(shape);
}

/// One stage of two replicas with sharded weights, one minibatch of each per update, as a list for one batch says.
Schedule weights(const std::string& batch) {
  std::string text = "schedule x\nweights stash\nminibatches-per-update 2\n"
                     "stage 0 replicas 2 shard weights sweeps 2 warmup 0 sync-delay 0 slots 1 versions 1\n";
  for (int replica : {0, 1}) {
    std::string own = batch;
    for (std::size_t at = 0; (at = own.find('b', at)) != std::string::npos;) own[at] = replica ? '1' : '0';
    text += "rank " + std::to_string(replica) + " hosts 0." + std::to_string(replica) + " step 2\nstart\nrepeat\n" +
            own + "\n";
  }
  Schedule schedule;
  std::string error;
  EXPECT_TRUE(pdcrt::parseSchedule(text, schedule, error)) << error;
  return schedule;
}

std::string problemOf(const Schedule& schedule) {
  const std::string problem = pdcrt::checkEveryDrain(schedule).problem;
  return problem.substr(0, problem.find(" (in a run"));
}

const std::string goodBatch = "0UN1 ?0UN1 0Fb 0RE1 0UN2 ?0UN2 0Bb 0RE2 0RS1 ?0RS1 0U1";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(ShardActions, PrintAndParse) {
  for (const char* text : {"1RS7", "?1RS7", "0AG3", "?0AG3", "2UN4", "?2UN4", "2RE4"}) {
    Action action;
    std::string error;
    ASSERT_TRUE(pdcrt::parseAction(text, action, error)) << error;
    EXPECT_EQ(toString(action), text);
  }
  Action action;
  std::string error;
  EXPECT_FALSE(pdcrt::parseAction("?2RE4", action, error)) << "nobody waits for what is over at once";
}

TEST(ShardActions, SweepsCountWithUpdates) {
  const Schedule schedule = weights(goodBatch);
  const Action unshard{ActionKind::unshard, false, 0, -1, 5};
  EXPECT_EQ(schedule.versionOf(unshard), 3);
  EXPECT_EQ(schedule.advanceOf(unshard, 4), 4) << "two updates of two sweeps each";
  EXPECT_EQ(schedule.endOf(unshard, 3), 5) << "two updates, of which the last averages one minibatch";
}

TEST(ShardedSchedules, SurviveTheirText) {
  for (const Schedule& schedule : {sharded("1f1b-flush"), sharded("1f1b", 0), weights(goodBatch)}) {
    Schedule read;
    std::string error;
    ASSERT_TRUE(pdcrt::parseSchedule(toString(schedule), read, error)) << error;
    EXPECT_EQ(read, schedule);
  }
}

TEST(ShardedSchedules, PartsMustFit) {
  const auto problem = [](auto change) {
    Schedule schedule = sharded("1f1b-flush");
    change(schedule);
    std::string error;
    EXPECT_FALSE(pdcrt::isWellFormed(schedule, error));
    return error;
  };
  EXPECT_EQ(problem([](Schedule& s) { s.stages[1].sharding = pdcrt::Sharding::optimizer; }),
            "stage 1: shards need more than one replica");
  EXPECT_EQ(problem([](Schedule& s) { s.stages[0].sweeps = 2; }), "stage 0: sweeps need 'shard weights'");
  EXPECT_EQ(problem([](Schedule& s) { s.stages[0].sharding = pdcrt::Sharding::none; }),
            "rank 0: '0RS1': needs a stage with 'shard'");
  EXPECT_EQ(problem([](Schedule& s) { s.stages[0].sharding = pdcrt::Sharding::weights; }),
            "rank 0: '0AG1': needs a stage with 'shard optimizer'");
  EXPECT_EQ(problem([](Schedule& s) {
              s.ranks[0].start[0] = {ActionKind::allReduce, false, 0, -1, 1};
            }),
            "rank 0: '0AR1': the gradients of a sharded stage are summed by RS");
  EXPECT_EQ(problem([](Schedule& s) { s.stages[0].shardDegree = 2; }),
            "stage 0: a degree of shards is from 2 to half of the replicas and divides their number, got 2 and 2");
  EXPECT_EQ(problem([](Schedule& s) { s.stages[1].shardDegree = 2; }), "stage 1: a degree needs 'shard'");
  Schedule alone = sharded("1f1b", 0);
  std::string error;
  alone.gradientNorm = true;
  EXPECT_TRUE(pdcrt::isWellFormed(alone, error)) << error;
  alone.stages[0].sharding = pdcrt::Sharding::weights;
  EXPECT_FALSE(pdcrt::isWellFormed(alone, error));
  EXPECT_EQ(error, "stage 0: 'shard weights' needs a schedule that flushes");
}

TEST(ShardedSchedules, AreRefusedWhenAVersionIsUsedBeforeItIsGathered) {
  const auto without = [](const char* kind, std::int64_t microbatches, bool wait) {
    Schedule schedule = sharded(kind, microbatches);
    for (pdcrt::RankList& rank : schedule.ranks)
      for (std::vector<Action>* list : {&rank.start, &rank.repeat})
        std::erase_if(*list, [&](const Action& a) { return a.kind == ActionKind::allGather && a.wait == wait; });
    const std::string problem = pdcrt::check(schedule, 24, {.picture = false}).problem;
    return problem.substr(0, problem.find(" (in a run"));
  };
  EXPECT_EQ(without("1f1b-flush", 4, true), "rank 0: '0F4' needs ?0AG1 before it");
  EXPECT_EQ(without("2bw", 4, true), "rank 0: '0F8' needs ?0AG1 before it");
  EXPECT_EQ(without("1f1b", 0, true), "rank 0: '0F4' needs ?0AG1 before it");
  EXPECT_EQ(without("1f1b-flush", 4, false), "rank 0: '?0AG1' waits for what is not started");
}

TEST(ShardedWeights, AreGatheredForEverySweep) {
  EXPECT_EQ(problemOf(weights(goodBatch)), "");
  const auto problem = [](const std::string& from, const std::string& to) {
    return problemOf(weights(replaced(goodBatch, from, to)));
  };
  EXPECT_EQ(problem("0UN1 ?0UN1", "0UN1"), "rank 0: '0F0' needs ?0UN1 before it");
  EXPECT_EQ(problem("0UN2 ?0UN2 0Bb 0RE2", "0UN2 0Bb ?0UN2 0RE2"), "rank 0: '0B0' needs ?0UN2 before it");
  EXPECT_EQ(problem("0Bb 0RE2", "0RE2 0Bb"), "rank 0: '0RE2' gives up weights that a backward of that update needs");
  EXPECT_EQ(problem("0RE2 0RS1 ?0RS1 0U1", "0RS1 ?0RS1 0U1 0RE2"), "rank 0: '0U1' needs 0RE2 before it");
  EXPECT_EQ(problem("0Fb 0RE1 0UN2", "0Fb 0UN2 0RE1"), "") << "gathered again ahead";
  EXPECT_EQ(problem("0UN1 ?0UN1 0Fb", "0UN2 ?0UN2 0Fb"), "rank 0: '0UN2' is out of order, sweep 1 is next");
  // The next update's weights are not there before this one is made.
  EXPECT_EQ(problem("0RS1 ?0RS1 0U1", "0RS1 0UN3 ?0RS1 0U1"), "rank 0: '0UN3' sends what is not computed yet");
}

TEST(ShardedWeights, NeedAPlaceInThePool) {
  Schedule schedule = weights(replaced(goodBatch, "0Fb 0RE1 0UN2", "0Fb 0UN2 0RE1"));
  for (pdcrt::RankList& rank : schedule.ranks) rank.pool = 1;
  EXPECT_EQ(problemOf(schedule),
            "rank 0: '0UN2' gathers the weights of a stage beside those of 1, the rank has room for 1");
}

TEST(ShardedWeights, OfRanksThatGatherInAnotherOrderAreSeenToStop) {
  // Rank 1 awaits its sum before it takes part in the gathering for which rank 0 waits.
  Schedule schedule = weights(goodBatch);
  std::vector<Action>& list = schedule.ranks[1].repeat;
  std::erase_if(list, [](const Action& a) { return a.kind == ActionKind::reduceScatter; });
  list.insert(list.begin() + 3,
              {{ActionKind::reduceScatter, false, 0, -1, 1}, {ActionKind::reduceScatter, true, 0, -1, 1}});
  EXPECT_NE(problemOf(schedule), "");
}

/// Three units on each of two ranks.
Schedule breadthFirst(pdcrt::Sharding sharding, std::int64_t microbatches = 4) {
  PipelineShape shape = straightShape({{.replicas = 2}, {.replicas = 2}, {.replicas = 2}});
  for (StageShape& stage : shape.stages) stage.sharding = sharding;
  shape.kind = "bfs:3";
  shape.microbatches = microbatches;
  return buildSchedule(shape);
}

/// The list of the first batch of rank 0, without transfers.
std::string firstBatch(const Schedule& schedule) {
  std::string text;
  for (const Action& action : pdcrt::expand(schedule, 0, schedule.minibatchesPerUpdate))
    if (!pdcrt::isTransfer(action.kind)) text += (text.empty() ? "" : " ") + toString(action);
  return text;
}

// While a unit computes, the weights of the next one are on their way, and the gradients of the one before are summed.
TEST(ShardedWeights, OfBreadthFirstListsAreGatheredAhead) {
  const Schedule schedule = breadthFirst(pdcrt::Sharding::weights);
  EXPECT_EQ(firstBatch(schedule),
            "0UN1 1UN1 ?0UN1 0F0 0F2 0RE1 2UN1 ?1UN1 1F0 1F2 1RE1 1UN2 ?2UN1 2F0 2F2 2B0 2B2 2RE1 2RS1 "
            "0UN2 ?1UN2 1B0 1B2 1RE2 1RS1 ?2RS1 ?0UN2 0B0 0B2 0RE2 0RS1 ?0RS1 0U1 ?1RS1 1U1 2U1");
  EXPECT_EQ(firstBatch(breadthFirst(pdcrt::Sharding::none)),
            "0F0 0F2 1F0 1F2 2F0 2F2 2B0 2B2 2AR1 1B0 1B2 1AR1 0B0 0B2 0AR1 ?0AR1 0U1 ?1AR1 1U1 ?2AR1 2U1");
  EXPECT_EQ(problemOf(schedule), "");
  Schedule read;
  std::string error;
  ASSERT_TRUE(pdcrt::parseSchedule(toString(schedule), read, error)) << error;
  EXPECT_EQ(read, schedule);
}

// The kind says how often a stage is gathered without making its lists.
TEST(ShardedWeights, AreGatheredAsOftenAsTheKindSays) {
  for (int ranks : {1, 2, 3})
    for (int each : {2, 3, 5}) {
      PipelineShape shape =
          straightShape(std::vector<StageShape>(static_cast<std::size_t>(ranks * each), {.replicas = 2}));
      for (StageShape& stage : shape.stages) stage.sharding = pdcrt::Sharding::weights;
      shape.kind = "bfs:" + std::to_string(each);
      shape.microbatches = 4;
      const Schedule schedule = frameOf(shape);
      for (int s = 0; s < ranks * each; ++s)
        EXPECT_EQ(schedule.stages[static_cast<std::size_t>(s)].sweeps, shape.kind->sweeps(s, ranks * each));
    }
  for (const char* kind : {"1f1b", "gpipe", "interleaved:2", "zb-v"}) EXPECT_EQ(ScheduleKind(kind)->sweeps(0, 4), 0);
}

TEST(ShardedWeights, HaveTheirGradientsWhereOthersWere) {
  Schedule schedule = breadthFirst(pdcrt::Sharding::weights);
  for (pdcrt::RankList& rank : schedule.ranks) rank.sums = 3;
  Schedule read;
  std::string error;
  ASSERT_TRUE(pdcrt::parseSchedule(toString(schedule), read, error)) << error;
  EXPECT_EQ(read, schedule);
  EXPECT_EQ(schedule.sumPlace(schedule.ranks[0], 2), 2);
  for (pdcrt::RankList& rank : schedule.ranks) rank.sums = 1;
  EXPECT_EQ(problemOf(schedule), "rank 0: '1B0' overwrites the gradients of stage 2; it needs ?2RS1 before it");
  for (pdcrt::RankList& rank : schedule.ranks) rank.sums = 0;
  EXPECT_FALSE(pdcrt::isWellFormed(schedule, error));
  EXPECT_EQ(error, "rank 0 has no room for gradients");
}

TEST(ShardedWeights, AreNotSentToOtherStages) {
  PipelineShape shape = straightShape({{.replicas = 2, .sharding = pdcrt::Sharding::weights}, {.replicas = 2}});
  shape.kind = "bfs:2";
  shape.microbatches = 4;
  shape.shared = {{0, 1}};
  std::string error;
  EXPECT_FALSE(pdcrt::isWellFormed(buildSchedule(shape), error));
  EXPECT_EQ(error, "shared 0>1: stage 0 has its weights in shards, and no replica has the parameters that it would "
                   "send");
}

// An evaluation gathers the weights of each unit once for a chunk of minibatches, on all replicas equally often.
TEST(ShardedWeights, AreGatheredInEvaluations) {
  const Schedule schedule = breadthFirst(pdcrt::Sharding::weights);
  const auto evaluation = [&](int rank, std::int64_t minibatches) {
    std::string text;
    for (const Action& action : pdcrt::expandEvaluation(schedule, rank, minibatches))
      if (!pdcrt::isTransfer(action.kind)) text += (text.empty() ? "" : " ") + toString(action);
    return text;
  };
  EXPECT_EQ(evaluation(0, 5), "0UN1 1UN1 ?0UN1 0E0 0E2 0RE1 2UN1 ?1UN1 1E0 1E2 1RE1 0UN2 ?2UN1 2E0 2E2 2RE1 "
                              "1UN2 ?0UN2 0E4 0RE2 2UN2 ?1UN2 1E4 1RE2 ?2UN2 2E4 2RE2");
  EXPECT_EQ(evaluation(1, 5), "0UN1 1UN1 ?0UN1 0E1 0E3 0RE1 2UN1 ?1UN1 1E1 1E3 1RE1 0UN2 ?2UN1 2E1 2E3 2RE1 "
                              "1UN2 ?0UN2 0RE2 2UN2 ?1UN2 1RE2 ?2UN2 2RE2");
  EXPECT_TRUE(pdcrt::check(schedule, 5, {.evaluation = true}).passed);
}

TEST(ShardedSchedules, ExchangesTakeTheirTimes) {
  const Schedule schedule = sharded("1f1b-flush");
  pdcrt::Times times;
  times.computation = [](const Action& action) { return action.kind == ActionKind::update ? 0.0 : 1.0; };
  times.allReduce = [](ActionKind kind, int) { return kind == ActionKind::allGather ? 8.0 : 4.0; };
  std::map<ActionKind, double> took;
  pdcrt::CheckOptions options{.times = &times, .order = false};
  options.observe = [&](const pdcrt::TracedAction& traced) {
    if (isReduction(traced.action.kind)) took[traced.action.kind] = traced.endMs - traced.startMs;
  };
  EXPECT_TRUE(pdcrt::check(schedule, 16, options).passed);
  EXPECT_EQ(took, (std::map<ActionKind, double>{{ActionKind::reduceScatter, 4}, {ActionKind::allGather, 8}}));
}

const char* torch = "0UNSHARD,0F0,0RESHARD,0UNSHARD,0B0,0RESHARD,0REDUCE_GRAD\n"
                    "0UNSHARD,0F1,0RESHARD,0UNSHARD,0B1,0RESHARD,0REDUCE_GRAD\n";

TEST(ShardedCsv, CellsBecomeActionsAndCellsAgain) {
  Diagnostics diags(nullptr);
  Expected<TorchBatch> batch = torchBatchFromCsv(torch, "x.csv", diags);
  ASSERT_TRUE(batch);
  EXPECT_EQ(batch->stages[0].sweeps, 2);
  const Schedule schedule = scheduleOfBatch(*batch, {});
  EXPECT_EQ(schedule.stages[0].sharding, pdcrt::Sharding::weights);
  EXPECT_EQ(problemOf(schedule), "");
  Expected<std::string> csv = torchCsv(schedule, diags);
  ASSERT_TRUE(csv);
  EXPECT_EQ(*csv, torch);
}

TEST(ShardedCsv, WhatIsNotGivenUpIsThereUntilTheEnd) {
  Diagnostics diags(nullptr);
  Expected<TorchBatch> batch = torchBatchFromCsv("0UNSHARD,0F0,0B0\n0UNSHARD,0F1,0B1\n", "x.csv", diags);
  ASSERT_TRUE(batch);
  const Schedule schedule = scheduleOfBatch(*batch, {});
  EXPECT_EQ(problemOf(schedule), "");
  EXPECT_EQ(*torchCsv(schedule, diags),
            "0UNSHARD,0F0,0B0,0RESHARD,0REDUCE_GRAD\n0UNSHARD,0F1,0B1,0RESHARD,0REDUCE_GRAD\n");
}

TEST(ShardedCsv, ReplicasMustAgree) {
  std::ostringstream out;
  Diagnostics diags(&out);
  EXPECT_FALSE(torchBatchFromCsv("0UNSHARD,0F0,0B0\n0F1,0B1\n", "x.csv", diags));
  EXPECT_NE(out.str().find("replica 1 of stage 0 gathers its weights 0 times, replicas before it 1 times"),
            std::string::npos)
      << out.str();
  EXPECT_FALSE(torchBatchFromCsv("0UNSHARD,0F0,0B0,0RESHARD,0RESHARD\n0UNSHARD,0F1,0B1\n", "x.csv", diags));
  EXPECT_NE(out.str().find("stage 0 has 2 RESHARD, and 1 UNSHARD"), std::string::npos) << out.str();
}

} // namespace
