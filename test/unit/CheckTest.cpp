// LINK: pdcSchedule
// The check of schedules: what it accepts, what it finds, and that it finds each thing that it claims to find.
#include "Rounds.h"
#include "pdcrt/Simulate.h"
#include "pdcrt/Verify.h"

#include "PipeDreamOrder.h"
#include "RandomShape.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <sstream>

using namespace pdc;
using pdcrt::Action;
using pdcrt::ActionKind;
using testing::AssertionResult;

namespace {

PipelineShape paperShape(const std::vector<int>& replicas, int delay) {
  std::vector<StageShape> stages;
  int left = std::accumulate(replicas.begin(), replicas.end(), 0);
  for (int r : replicas) {
    stages.push_back({r, (left - 1) / r, r > 1 ? delay : 0});
    left -= r;
  }
  return straightShape(stages);
}

/// The check's verdict after `text` was replaced in the lists of a good schedule.
std::string problemAfter(const pdcrt::Schedule& schedule, const std::string& text, const std::string& replacement,
                         std::int64_t minibatches) {
  std::string all = toString(schedule), error;
  std::size_t at = all.find(text);
  EXPECT_NE(at, std::string::npos) << "no '" << text << "' in\n" << all;
  all.replace(at, text.size(), replacement);
  pdcrt::Schedule changed;
  EXPECT_TRUE(pdcrt::parseSchedule(all, changed, error)) << error << "\n" << all;
  return pdcrt::check(changed, minibatches).problem;
}

/// Actions from their texts, separated by spaces.
std::vector<Action> actionsOf(const std::string& text) {
  std::vector<Action> actions;
  std::istringstream words(text);
  for (std::string word, error; words >> word;) {
    actions.emplace_back();
    EXPECT_TRUE(pdcrt::parseAction(word, actions.back(), error)) << error;
  }
  return actions;
}

} // namespace

// Sound warm-ups (w·R does not grow) of straight and branching pipelines, replicated or not, with and without flush.
TEST(Check, LegalPipelinesNeverDeadlock) {
  std::mt19937 random(7);
  for (int round = 0; round < rounds(300); ++round) {
    pdcrt::Schedule schedule = buildSchedule(randomShape(random));
    pdcrt::CheckResult result = pdcrt::checkEveryDrain(schedule);
    ASSERT_TRUE(result.passed) << result.problem << "\n" << toString(schedule);
    for (const pdcrt::HostUse& use : result.hosts) {
      const pdcrt::ScheduleStage& stage = schedule.stages[use.host.stage];
      EXPECT_LE(use.inFlight, stage.warmup + 1);
      if (schedule.minibatchesPerUpdate > 0) {
        EXPECT_EQ(use.versions, 1);
      } else {
        EXPECT_EQ(use.inFlight, stage.warmup + 1);
        EXPECT_EQ(use.versions, stage.warmup + 1);
      }
    }
  }
}

TEST(Check, VerticalSyncKeepsAsManyVersionsAsTheFormulaSays) {
  std::mt19937 random(8);
  int checked = 0;
  for (int round = 0; round < rounds(600); ++round) {
    PipelineShape shape = randomShape(random);
    shape.weights = pdcrt::WeightPolicy::verticalSync;
    const StageShape& input = shape.stages[0];
    bool possible =
        shape.microbatches == 0 && std::all_of(shape.stages.begin(), shape.stages.end(), [&](const auto& s) {
          return input.replicas * (input.warmup + input.syncDelay) >= s.replicas * (s.warmup + s.syncDelay);
        });
    if (!possible) continue;
    ++checked;
    pdcrt::Schedule schedule = buildSchedule(shape);
    pdcrt::CheckResult result = pdcrt::checkEveryDrain(schedule);
    ASSERT_TRUE(result.passed) << result.problem << "\n" << toString(schedule);
    std::vector<std::int64_t> most(schedule.stages.size(), 0);
    for (const pdcrt::HostUse& use : result.hosts) most[use.host.stage] = std::max(most[use.host.stage], use.versions);
    for (std::size_t s = 0; s < most.size(); ++s) EXPECT_EQ(most[s], schedule.stages[s].versions) << toString(schedule);
  }
  EXPECT_GT(checked, 50);
}

TEST(Check, LatestKeepsOneVersion) {
  PipelineShape shape = paperShape({2, 1}, 1);
  shape.weights = pdcrt::WeightPolicy::latest;
  pdcrt::CheckResult result = pdcrt::checkEveryDrain(buildSchedule(shape));
  EXPECT_TRUE(result.passed) << result.problem;
  for (const pdcrt::HostUse& use : result.hosts) EXPECT_EQ(use.versions, 1);
}

// With a single version of the weights, what a forward or a backward uses depends on its place among the updates.
TEST(Check, LatestFixesThePlaceOfUpdates) {
  PipelineShape shape = straightShape({{1, 1, 0}, {1, 0, 0}});
  shape.weights = pdcrt::WeightPolicy::latest;
  pdcrt::Schedule schedule = buildSchedule(shape);
  EXPECT_EQ(pdcrt::check(schedule, 6).problem, "");
  EXPECT_EQ(
      problemAfter(schedule, "0F1 0SF1>1\n  ?0RB0<1 0B0 0RB2<1\n  0U1", "?0RB0<1 0B0 0RB2<1\n  0U1\n  0F1 0SF1>1", 6)
          .substr(0, 50),
      "rank 0: '0F1' needs version 0, the newest is 1 (in");
}

// Plans that deadlock in PipeDream's released code, and what cures them.
TEST(Check, GradientSentAfterABlockingAllReduceDeadlocks) {
  for (const std::vector<int>& replicas : {std::vector{8, 5, 3}, std::vector{7, 1, 7, 1}}) {
    pdcrt::Schedule schedule = buildSchedule(paperShape(replicas, 0));
    EXPECT_TRUE(pdcrt::checkEveryDrain(schedule).passed);
    EXPECT_TRUE(pdcrt::checkEveryDrain(buildSchedule(paperShape(replicas, 1))).passed);
    sendGradientAfterUpdate(schedule);
    pdcrt::CheckResult result = pdcrt::checkEveryDrain(schedule);
    EXPECT_TRUE(result.deadlock) << result.problem;
  }
  // Not every plan does: this one survives the mistake.
  pdcrt::Schedule survivor = buildSchedule(paperShape({1, 1, 1}, 0));
  sendGradientAfterUpdate(survivor);
  EXPECT_TRUE(pdcrt::checkEveryDrain(survivor).passed);
}

// A wait for something of a later minibatch closes a circle through the neighbour.
TEST(Check, DrawsWhoWaitsForWhom) {
  pdcrt::CheckResult result = pdcrt::check(buildSchedule(straightShape({{1, 0, 0}, {1, 1, 0}})), 4);
  EXPECT_TRUE(result.deadlock);
  EXPECT_EQ(result.problem, "deadlock in a run of 4 minibatches:\n"
                            "  rank  hosts  last actions        waits in  for\n"
                            "  0     0.0    0RB1<1 0F0 0SF0>1   ?0RB0<1   rank 1 to start 1SB0>0\n"
                            "  1     1.0    1RF2<0 ?1RF0<0 1F0  ?1RF1<0   rank 0 to start 0SF1>1\n"
                            "  cycle: 0 -> 1 -> 0\n"
                            "  step         0         1         2\n"
                            "  rank 0 (0.0) 0F0       [?0RB0<1]\n"
                            "  rank 1 (1.0)           1F0       [?1RF1<0]\n"
                            "  rank 0's list: 0RB0<1 0RB1<1 0F0 0SF0>1 [?0RB0<1] 0B0 0RB2<1 0U1 ?0SF0>1 …");
}

// Each rank waits for its send before it posts the receive that the other's send needs: with a buffer in between this
// would run, and nobody may count on one.
TEST(Check, ThereIsNoHiddenBuffer) {
  pdcrt::Schedule schedule = buildSchedule(straightShape({{1, 1, 0}, {1, 0, 0}}));
  for (pdcrt::RankList& rank : schedule.ranks) rank.repeat.clear();
  schedule.ranks[0].start = actionsOf("0F0 0SF0>1 0F1 0SF1>1 ?0SF0>1 ?0SF1>1 0RB0<1 ?0RB0<1 0B0 0U1 "
                                      "0RB1<1 ?0RB1<1 0B1 0U2");
  schedule.ranks[1].start = actionsOf("1RF0<0 ?1RF0<0 1F0 1B0 1SB0>0 ?1SB0>0 1U1 1RF1<0 ?1RF1<0 1F1 1B1 1SB1>0 "
                                      "?1SB1>0 1U2");
  EXPECT_TRUE(pdcrt::check(schedule, 2).deadlock);
  // Posted in time, the same transfers run.
  schedule.ranks[1].start = actionsOf("1RF0<0 1RF1<0 ?1RF0<0 1F0 1B0 1SB0>0 ?1SB0>0 1U1 ?1RF1<0 1F1 1B1 1SB1>0 "
                                      "?1SB1>0 1U2");
  EXPECT_EQ(pdcrt::check(schedule, 2).problem, "");
}

// What a backward_input leaves to its backward_weight is kept apart for as many minibatches as there are handovers.
TEST(Check, WeightGradientsMayWaitForAsLongAsThereAreHandovers) {
  pdcrt::Schedule schedule = buildSchedule({.microbatches = 2, .stages = {{1, 1, 0}}});
  schedule.ranks[0].start.clear();
  schedule.ranks[0].repeat = actionsOf("0F0 0F1 0I0 0I1 0W0 0W1 0U1");
  schedule.stages[0].handovers = 2;
  EXPECT_EQ(pdcrt::checkEveryDrain(schedule).problem, "");
  pdcrt::Schedule back;
  std::string error;
  ASSERT_TRUE(pdcrt::parseSchedule(toString(schedule), back, error)) << error;
  EXPECT_EQ(back, schedule);
  schedule.stages[0].handovers = 1;
  EXPECT_NE(pdcrt::check(schedule, 2)
                .problem.find("'0I1' would be minibatch 2 that waits for its weight gradients, "
                              "the stage has 1 handovers"),
            std::string::npos);
}

// Either half of a backward may write gradients, so neither may begin before the set is free.
TEST(Check, NeitherHalfOfABackwardOverwritesTheGradientsOfAnUpdate) {
  pdcrt::Schedule schedule = buildSchedule(straightShape({{1, 1, 0}}));
  schedule.stages[0].handovers = 2;
  schedule.ranks[0].repeat.clear();
  schedule.ranks[0].start = actionsOf("0F0 0F1 0I0 0W0 0U1 0I1 0W1 0U2");
  EXPECT_EQ(pdcrt::check(schedule, 2).problem, "");
  schedule.ranks[0].start = actionsOf("0F0 0F1 0I0 0I1 0W0 0U1 0W1 0U2");
  EXPECT_EQ(
      pdcrt::check(schedule, 2).problem.rfind("rank 0: '0I1' overwrites the gradients of update 1, which is not ", 0),
      0u);
}

TEST(Check, FindsEveryKindOfMistake) {
  pdcrt::Schedule two = buildSchedule(straightShape({{2, 2, 1}, {1, 0, 0}}));
  struct Case {
    const char *text, *replacement, *expected;
  };
  const Case cases[] = {
      // Missing or misplaced waits of transfers.
      {"?0SF0>1 0F6", "0F6", "'0F6' overwrites a buffer that is being sent; it needs ?0SF0>1 before it"},
      {"?0RB0<1 0B0", "0B0", "'0B0' needs ?0RB0<1 before it"},
      {"?1RF0<0 1F0", "1F0", "'1F0' needs ?1RF0<0 before it"},
      {"?1SB0>0 1B2", "1B2", "'1B2' overwrites a buffer that is being sent; it needs ?1SB0>0 before it"},
      {"0F0 0SF0>1", "0SF0>1 0F0", "'0SF0>1' sends what is not computed yet"},
      {"1B0 1SB0>0", "1SB0>0 1B0", "'1SB0>0' sends what is not computed yet"},
      {"0RB0<1 0RB2<1", "0RB0<1 ?0RB2<1 0RB2<1", "'?0RB2<1' is out of order, minibatch 0 is next"},
      {"0F0 0SF0>1", "0F0 ?0SF0>1 0SF0>1", "'?0SF0>1' waits for what is not started"},
      {"0RB0<1 0RB2<1", "0RB0<1 0RB2<1 0RB4<1", "'0RB4<1' overwrites the buffer of minibatch 0, which is in use"},
      {"1RF0<0 1RF1<0", "1RF0<0 1RF1<0 1RF2<0", "'1RF2<0' overwrites the buffer of minibatch 0, which is in use"},
      {"0RB0<1 0RB2<1", "0RB2<1", "'0RB2<1' is out of order, minibatch 0 is next"},
      // Order and data dependences.
      {"0F2 0SF2>1\n", "", "'0F4' is out of order, minibatch 2 is next"},
      {"?0RB0<1 0B0", "", "'0U1'"}, // placed below, where an update lacks its backward
      {"0F4 0SF4>1\n", "0F4 0SF4>1 0F6\n", "'0F6' would be minibatch 4 in flight, the stage has 3 slots"},
      {"?1RF0<0 1F0\n  1B0", "?1RF0<0 1B0 1F0", "'1B0' comes before its forward"},
      // Updates, all-reduces, versions.
      {"1U1", "", "'1F1' needs version 1, the newest is 0"},
      {"1U1", "1U1 1U2", "'1U2' comes before a backward of that update"},
      {"1U1", "1U2", "'1U2' is out of order, version 1 is next"},
      {"0AR1", "0AR1 0AR2", "'0AR2' comes before a backward of that update"},
      {"0AR1", "", "'0AR2' is out of order, version 1 is next"},
      {"?0AR1 0U1", "0U1", "'0U1' needs ?0AR1 before it"},
      {"1U1", "1AR1 1U1", "'1AR1' is for replicated stages, this one has a single replica"},
  };
  ASSERT_TRUE(pdcrt::checkEveryDrain(two).passed);
  for (const Case& c : cases) {
    std::string problem = problemAfter(two, c.text, c.replacement, 11);
    if (std::string(c.expected) == "'0U1'") {
      EXPECT_NE(problem, "");
      continue;
    }
    EXPECT_NE(problem.find(std::string(": ") + c.expected), std::string::npos) << c.text << ": " << problem;
  }
  // Sizes of rings that do not suffice.
  pdcrt::Schedule fewer = two;
  fewer.stages[0].slots = 2;
  EXPECT_NE(pdcrt::check(fewer, 11).problem.find("has 2 slots"), std::string::npos);
  std::string error;
  EXPECT_FALSE(pdcrt::isWellFormed(fewer, error));
  EXPECT_EQ(error, "edge 0>1 sends from 3 buffers, stage 0 has 2 slots");
  EXPECT_NE(problemAfter(two, "slots 3 versions 3", "slots 3 versions 2", 11).find("the stage has 2"),
            std::string::npos);
  pdcrt::Schedule one = buildSchedule(straightShape({{1, 1, 0}}));
  EXPECT_EQ(problemAfter(one, "0F1\n  0B0\n", "0F1\n  0B0 0B1\n", 4).substr(0, 68),
            "rank 0: '0B1' overwrites the gradients of update 1, which is not don");
  // A replica without a minibatch in an update takes part in its all-reduce, with a gradient set that must be free.
  pdcrt::Schedule few = buildSchedule({.microbatches = 1, .stages = {{2, 0, 0}}});
  EXPECT_EQ(problemAfter(few, "?0AR1 0U1 0AR2", "?0AR1 0AR2 0U1", 4).substr(0, 67),
            "rank 0: '0AR2' overwrites the gradients of update 1, which is not d");
}

TEST(Check, FindsWhatIsMissingAtTheEnd) {
  // A single forward and backward, without the endless part.
  pdcrt::Schedule two = buildSchedule(straightShape({{1, 0, 0}, {1, 0, 0}}));
  auto with = [&](std::size_t rank, const std::vector<Action>& start) {
    pdcrt::Schedule schedule = two;
    schedule.ranks[rank].start = start;
    schedule.ranks[rank].repeat.clear();
    return pdcrt::check(schedule, 1, {.picture = false}).problem;
  };
  EXPECT_EQ(with(0, actionsOf("0RB0<1 0F0 0SF0>1 ?0SF0>1 ?0RB0<1 0B0 0U1")), "");
  EXPECT_EQ(with(0, actionsOf("0RB0<1 0F0 0SF0>1 ?0SF0>1 ?0RB0<1 0B0")),
            "rank 0: stage 0 ends with 0 of 1 updates (in a run of 1 minibatches)");
  EXPECT_EQ(with(0, actionsOf("0RB0<1 0F0 0SF0>1 ?0SF0>1 ?0RB0<1")),
            "rank 0: stage 0 ends with 0 of 1 backwards (in a run of 1 minibatches)");
  EXPECT_EQ(with(0, actionsOf("0RB0<1")), "rank 0: stage 0 ends with 0 of 1 forwards (in a run of 1 minibatches)");
  EXPECT_EQ(with(0, actionsOf("0RB0<1 0F0 0SF0>1 ?0RB0<1 0B0 0U1")),
            "rank 0: stage 0 never waits for 0SF0>1 (in a run of 1 minibatches)");
  EXPECT_EQ(with(0, actionsOf("0RB0<1 0F0 ?0RB0<1 0B0 0U1")),
            "rank 0: stage 0 never starts 0SF0>1 (in a run of 1 minibatches)");
}

// Whatever pair of neighbours in a list is exchanged: the check finds it, or it changes nothing that matters.
TEST(Check, ASwapIsFoundOrHarmless) {
  pdcrt::Schedule schedule = buildSchedule(straightShape({{2, 2, 1}, {1, 1, 0}, {2, 0, 1}}));
  int found = 0, harmless = 0;
  for (std::size_t r = 0; r < schedule.ranks.size(); ++r)
    for (std::size_t i = 0; i + 1 < schedule.ranks[r].repeat.size(); ++i) {
      pdcrt::Schedule changed = schedule;
      std::swap(changed.ranks[r].repeat[i], changed.ranks[r].repeat[i + 1]);
      const Action &first = schedule.ranks[r].repeat[i], &second = schedule.ranks[r].repeat[i + 1];
      bool dependent = (first.wait && pdcrt::isComputation(second.kind)) || // a computation needs what it awaits
                       (pdcrt::isComputation(first.kind) && !second.wait) ||
                       (first.kind == ActionKind::allReduce && second.kind == ActionKind::update);
      bool passed = pdcrt::checkEveryDrain(changed).passed;
      EXPECT_FALSE(dependent && passed) << toString(first) << " " << toString(second);
      ++(passed ? harmless : found);
    }
  EXPECT_GT(found, 20);
  EXPECT_GT(harmless, 0);
}

/// The verdict of executing every run up to warm-up and three periods.
static bool passesEveryRun(const pdcrt::Schedule& schedule) {
  std::int64_t beginning = pdcrt::minibatchesInFlight(schedule);
  for (const pdcrt::RankList& rank : schedule.ranks)
    for (const Action& action : rank.start)
      beginning = std::max(beginning, pdcrt::isVersioned(action.kind) ? 0 : action.index + 1);
  for (std::int64_t minibatches = 1; minibatches <= beginning + 3 * pdcrt::periodMinibatches(schedule); ++minibatches)
    if (!pdcrt::check(schedule, minibatches).passed) return false;
  return true;
}

/// Random pipelines with shared parameters.
static PipelineShape randomSharing(std::mt19937& random) {
  PipelineShape shape = randomShape(random);
  int stages = static_cast<int>(shape.stages.size());
  for (int owner = 0; owner < stages; ++owner)
    for (int user = owner + 1; user < stages; ++user)
      if (random() % 2) shape.shared.push_back({owner, user});
  return shape;
}

// One endless run instead of every finite one: the same verdict, on good schedules and on bad ones.
TEST(Check, EndlessRunDecidesEveryDrain) {
  std::mt19937 random(10);
  int bad = 0, good = 0;
  for (int round = 0; round < rounds(400); ++round) {
    PipelineShape shape = round % 2 ? randomSharing(random) : randomShape(random);
    pdcrt::Schedule schedule = buildSchedule(shape);
    if (pdcrt::periodMinibatches(schedule) > 24) continue;
    if (round % 8 != 0) {
      pdcrt::RankList& rank = schedule.ranks[random() % schedule.ranks.size()];
      std::vector<Action>& list = random() % 4 || rank.start.size() < 2 ? rank.repeat : rank.start;
      std::size_t at = random() % list.size(), other = random() % list.size();
      if (random() % 3 == 0)
        list.erase(list.begin() + static_cast<std::ptrdiff_t>(at));
      else
        std::swap(list[at], list[random() % 2 ? other : std::min(at + 1, list.size() - 1)]);
    }
    pdcrt::CheckResult result = pdcrt::checkEveryDrain(schedule);
    ASSERT_EQ(result.passed, passesEveryRun(schedule)) << result.problem << "\n" << toString(schedule);
    EXPECT_TRUE(!result.passed || result.proven);
    ++(result.passed ? good : bad);
    // The run that is shown is the shortest that fails.
    EXPECT_TRUE(result.passed || pdcrt::check(schedule, result.minibatches - 1).passed);
  }
  EXPECT_GT(good, rounds(400) / 8);
  EXPECT_GT(bad, rounds(400) / 4);
}

TEST(Check, SharedParametersNeverDeadlock) {
  std::mt19937 random(12);
  for (int round = 0; round < rounds(200); ++round) {
    pdcrt::Schedule schedule = buildSchedule(randomSharing(random));
    pdcrt::CheckResult result = pdcrt::checkEveryDrain(schedule);
    ASSERT_TRUE(result.passed) << result.problem << "\n" << toString(schedule);
    EXPECT_TRUE(result.proven);
  }
}

TEST(Check, FindsMistakesOfSharing) {
  PipelineShape shape = straightShape({{1, 1, 0}, {1, 0, 0}});
  shape.shared = {{0, 1}};
  pdcrt::Schedule two = buildSchedule(shape);
  struct Case {
    const char *text, *replacement, *expected;
  };
  const Case cases[] = {
      {"?1RV1<0 1F2", "1F2", "'1F2' needs ?1RV1<0 before it"},
      {"?0RG1<1 0U1", "0U1", "'0U1' needs ?0RG1<1 before it"},
      {"1B0 1SB0>0 1RF2<0 1SG1>0", "1SG1>0 1B0 1SB0>0 1RF2<0", "'1SG1>0' sends what is not computed yet"},
      {"0U1 0SV1>1", "0SV1>1 0U1", "'0SV1>1' sends what is not computed yet"},
      {"0RG1<1 0RG2<1", "0RG1<1 0RG2<1 0RG3<1", "'0RG3<1' overwrites the gradients of update 1, which is not done"},
      {"1RV1<0", "1RV1<0 1RV2<0", "'1RV2<0' overwrites version 0 of stage 0, which is in use"},
      {"1SG1>0", "", "'1SG2>0' is out of order, version 1 is next"},
      {"?1SG1>0", "", "'1B2' overwrites a buffer that is being sent; it needs ?1SG1>0 before it"},
      {"?0SV1>1", "", "'0U3' overwrites a version that is being sent; it needs ?0SV1>1 before it"},
  };
  for (const Case& c : cases) {
    std::string problem = problemAfter(two, c.text, c.replacement, 11);
    EXPECT_NE(problem.find(std::string(": ") + c.expected), std::string::npos) << c.text << ": " << problem;
  }
}

// A layer's backward_input may yield gradients of its parameters: the buffer in which those of shared ones are summed
// must be free for it, not only for the backward_weight.
TEST(Check, BothHalvesOfABackwardMayWriteGradientsOfSharedParameters) {
  PipelineShape shape = straightShape({{1, 1, 0}, {1, 0, 0}});
  shape.kind = "zb-h1";
  shape.microbatches = 1;
  shape.shared = {{0, 1}};
  pdcrt::Schedule schedule = buildSchedule(shape);
  const std::vector<Action> list = pdcrt::expand(schedule, 1, 3);
  auto at = [&](const char* text) { return std::find(list.begin(), list.end(), actionsOf(text)[0]) - list.begin(); };
  ASSERT_EQ(pdcrt::check(schedule, 3).problem, "");
  EXPECT_LT(at("?1SG1>0"), at("1I2"));

  schedule.ranks[1].repeat.clear();
  schedule.ranks[1].start = list;
  auto wait = schedule.ranks[1].start.begin() + at("?1SG1>0");
  std::rotate(wait, wait + 1, schedule.ranks[1].start.begin() + at("1W2"));
  EXPECT_NE(pdcrt::check(schedule, 3)
                .problem.find("'1I2' overwrites a buffer that is being sent; it needs ?1SG1>0 before it"),
            std::string::npos)
      << pdcrt::check(schedule, 3).problem;
}

// Replica counts whose common multiple is large are checked in time that is bounded.
TEST(Check, SaysWhereItCannotProve) {
  std::vector<StageShape> stages = {{1009, 1, 1}, {1013, 0, 1}, {997, 0, 1}};
  pdcrt::CheckResult result = pdcrt::checkEveryDrain(buildSchedule(straightShape(stages)), 1'000'000);
  EXPECT_TRUE(result.passed) << result.problem;
  EXPECT_FALSE(result.proven);
  EXPECT_GT(result.minibatches, 2000);
  EXPECT_TRUE(
      pdcrt::checkEveryDrain(buildSchedule(straightShape({{13, 3, 1}, {7, 2, 1}, {5, 1, 1}, {1, 0, 0}}))).proven);
}

TEST(Check, ExecutesEvaluation) {
  std::mt19937 random(9);
  for (int round = 0; round < 100; ++round) {
    pdcrt::Schedule schedule = buildSchedule(randomShape(random));
    for (std::int64_t minibatches : {0, 1, 2, 7, 20}) {
      pdcrt::CheckResult result = pdcrt::check(schedule, minibatches, {.evaluation = true});
      EXPECT_TRUE(result.passed) << result.problem << toString(schedule);
      std::int64_t forwardEdges = std::count_if(schedule.edges.begin(), schedule.edges.end(),
                                                [](const pdcrt::ScheduleEdge& e) { return e.forward; });
      EXPECT_EQ(static_cast<std::int64_t>(result.started.size()), forwardEdges * minibatches);
    }
  }
}

// Every transfer and all-reduce is started once, each lane in order: the order "@n".
TEST(Check, OrdersAllCommunication) {
  pdcrt::Schedule schedule = buildSchedule(straightShape({{2, 2, 1}, {1, 1, 0}}));
  pdcrt::CheckResult result = pdcrt::check(schedule, 9);
  ASSERT_TRUE(result.passed);
  EXPECT_EQ(result.started.size(), 9u + 9u + 5u);
  for (std::size_t i = 0; i < result.started.size(); ++i)
    for (std::size_t j = i + 1; j < result.started.size(); ++j) {
      const Action &a = result.started[i], &b = result.started[j];
      bool sameLane = a.kind == b.kind && a.stage == b.stage && a.index % 2 == b.index % 2;
      EXPECT_FALSE(sameLane && a.index >= b.index) << toString(a) << " before " << toString(b);
    }
}

// Two equal stages, F + B = 3, transfers of 1: the paper's warm-up leaves two minibatches in the loop and hides
// nothing.
TEST(Check, TimesAreThoseOfTheLoop) {
  pdcrt::Times times;
  times.computation = [](const Action& a) {
    return a.kind == ActionKind::forward ? 1.0 : a.kind == ActionKind::backward ? 2.0 : 0;
  };
  times.transfer = [](const pdcrt::ScheduleEdge&, bool) { return 1.0; };
  auto period = [&](int warmup) {
    return pdcrt::check(buildSchedule(straightShape({{1, warmup, 0}, {1, 0, 0}})), 100, {.times = &times}).periodMs;
  };
  EXPECT_DOUBLE_EQ(period(0), 8); // nothing overlaps: 2·3 + 2·1
  EXPECT_DOUBLE_EQ(period(1), 4);
  EXPECT_DOUBLE_EQ(period(2), 3);
  EXPECT_DOUBLE_EQ(period(3), 3);
}

TEST(Check, RanksShareCoresAndLinks) {
  pdcrt::Times times;
  times.computation = [](const Action& a) {
    return a.kind == ActionKind::forward ? 1.0 : a.kind == ActionKind::backward ? 2.0 : 0;
  };
  pdcrt::Schedule schedule = buildSchedule(straightShape({{1, 3, 0}, {1, 2, 0}, {1, 1, 0}, {1, 0, 0}}));
  EXPECT_NEAR(pdcrt::check(schedule, 100, {.times = &times}).periodMs, 3, 1e-6);
  times.cores = 2;
  EXPECT_NEAR(pdcrt::check(schedule, 100, {.times = &times}).periodMs, 6, 1e-6);
  times.cores = 1;
  EXPECT_NEAR(pdcrt::check(schedule, 100, {.times = &times}).periodMs, 12, 1e-6);
  // A stage in the middle sends a value forward and a gradient back over the one link that it has.
  times = {};
  times.transfer = [](const pdcrt::ScheduleEdge&, bool) { return 1.0; };
  schedule = buildSchedule(straightShape({{1, 9, 0}, {1, 5, 0}, {1, 0, 0}}));
  EXPECT_NEAR(pdcrt::check(schedule, 200, {.times = &times}).periodMs, 1, 1e-6);
  times.sharedLinks = true;
  EXPECT_NEAR(pdcrt::check(schedule, 200, {.times = &times}).periodMs, 2, 1e-6);
}

TEST(Check, TracesWhatHappened) {
  pdcrt::Times times;
  times.computation = [](const Action&) { return 1.0; };
  times.allReduce = [](ActionKind, int) { return 4.0; };
  pdcrt::CheckResult result = pdcrt::check(buildSchedule({.stages = {{2, 0, 0}}}), 2, {.times = &times, .trace = true});
  std::string text;
  for (const pdcrt::TracedAction& t : result.trace)
    text += std::to_string(t.rank) + ":" + toString(t.action) + "@" + std::to_string(static_cast<int>(t.startMs)) +
            "-" + std::to_string(static_cast<int>(t.endMs)) + " ";
  EXPECT_EQ(text, "0:0F0@0-1 1:0F1@0-1 0:0B0@1-2 1:0B1@1-2 0:0AR1@2-6 0:0U1@6-7 1:0U1@6-7 ");
  EXPECT_DOUBLE_EQ(result.finishMs, 7);
}
