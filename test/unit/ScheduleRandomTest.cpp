// LINK: pdcSchedule
// Random pipelines under every schedule: each is executed until it is clear that no run of it ends in a deadlock, keeps
// all rules of the machine, and reads back from its text as it was.
#include "RandomPipeline.h"
#include "Rounds.h"
#include "pdc/Schedule/PipelineShape.h"
#include "pdcrt/Verify.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

using namespace pdc;

TEST(RandomSchedule, NoneDeadlocks) {
  std::mt19937 random(11);
  std::map<std::string, int> kinds;
  int replicated = 0, most = rounds(10000);
  for (int round = 0; round < most; ++round) {
    PipelineShape shape = RandomPipeline(random).shape();
    pdcrt::Schedule schedule = buildSchedule(shape);
    std::string error;
    ASSERT_TRUE(pdcrt::isWellFormed(schedule, error)) << error << "\n" << toString(schedule);
    pdcrt::CheckResult result = pdcrt::checkEveryDrain(schedule);
    ASSERT_TRUE(result.passed) << "round " << round << ": " << result.problem << "\n" << toString(schedule);
    ASSERT_TRUE(result.proven) << "round " << round << "\n" << toString(schedule);
    ++kinds[shape.kind.name().substr(0, shape.kind.name().find(':'))];
    replicated += std::any_of(shape.stages.begin(), shape.stages.end(), [](const auto& s) { return s.replicas > 1; });
    if (round % 16 > 0) continue;
    pdcrt::Schedule back;
    ASSERT_TRUE(pdcrt::parseSchedule(toString(schedule), back, error)) << error << "\n" << toString(schedule);
    EXPECT_EQ(back, schedule);
  }
  EXPECT_EQ(kinds.size(), scheduleNames().size());
  for (const auto& [kind, count] : kinds) EXPECT_GT(count, most / 10) << kind;
  EXPECT_GT(replicated, most / 4);
  RecordProperty("plans", most);
}

// The frame of a schedule is what the generator gives without its lists.
TEST(RandomSchedule, FramesAreThoseOfTheSchedules) {
  std::mt19937 random(12);
  for (int round = 0; round < rounds(500); ++round) {
    PipelineShape shape = RandomPipeline(random).shape();
    pdcrt::Schedule schedule = buildSchedule(shape), frame = frameOf(shape);
    for (pdcrt::RankList& rank : schedule.ranks) {
      rank.start.clear();
      rank.repeat.clear();
      rank.step = 1;
    }
    EXPECT_EQ(frame, schedule) << toString(schedule);
  }
}
