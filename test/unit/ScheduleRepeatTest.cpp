// LINK: pdcSchedule
// Long runs: periods that are reckoned, because they repeat the one before them, against the run that executes them.
#include "RandomPipeline.h"
#include "Rounds.h"
#include "pdc/Schedule/PipelineShape.h"
#include "pdcrt/Simulate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

using namespace pdc;

namespace {

/// Times of quarters and of any real numbers, links with queues, and cores that ranks share.
pdcrt::Times randomTimes(std::mt19937& random, const pdcrt::Schedule& schedule) {
  bool quarters = random() % 2 == 0;
  auto draw = [&](double most) {
    return quarters ? static_cast<double>(random() % 8 + 1) / 8 * most
                    : std::uniform_real_distribution<>(0.01, most)(random);
  };
  std::vector<double> computation, transfer, allReduce;
  for (std::size_t s = 0; s < schedule.stages.size(); ++s) {
    computation.push_back(draw(2));
    transfer.push_back(draw(1));
    allReduce.push_back(draw(2));
  }
  pdcrt::Times times;
  times.computation = [computation](const pdcrt::Action& action) {
    return computation[action.stage] * (action.kind == pdcrt::ActionKind::backward ? 2 : 1);
  };
  times.transfer = [transfer](const pdcrt::ScheduleEdge& edge, bool forward) {
    return transfer[edge.from] * (forward ? 1 : 0.5);
  };
  times.allReduce = [allReduce](pdcrt::ActionKind, int stage) { return allReduce[stage]; };
  times.sharedLinks = random() % 3 == 0;
  times.cores = random() % 3 == 0 ? 1 + static_cast<int>(random() % schedule.ranks.size()) : 0;
  return times;
}

/// What happened, by rank and action: when it began and ended.
using Told = std::map<std::tuple<int, int, std::string>, std::pair<double, double>>;

pdcrt::CheckResult run(const pdcrt::Schedule& schedule, const pdcrt::Times& times, std::int64_t minibatches,
                       bool everyPeriod, Told& told) {
  auto tell = [&](const pdcrt::TracedAction& traced) {
    auto [place, isNew] = told.try_emplace({traced.rank, traced.peerRank, toString(traced.action)},
                                           std::pair(traced.startMs, traced.endMs));
    EXPECT_TRUE(isNew) << toString(traced.action) << " is told twice";
  };
  return pdcrt::check(schedule, minibatches,
                      {.times = &times,
                       .order = false,
                       .rules = false,
                       .everyPeriod = everyPeriod,
                       .observe = tell,
                       .retell = tell,
                       .retoldRanks = static_cast<int>(schedule.ranks.size())});
}

} // namespace

TEST(Repeat, ReckonedPeriodsAreThoseOfTheWholeRun) {
  std::mt19937 random(21);
  int most = rounds(300), repeated = 0;
  for (int round = 0; round < most; ++round) {
    pdcrt::Schedule schedule = buildSchedule(RandomPipeline(random).shape());
    pdcrt::Times times = randomTimes(random, schedule);
    std::int64_t period = pdcrt::periodMinibatches(schedule);
    std::int64_t minibatches = 20 * pdcrt::minibatchesInFlight(schedule) + 20 * period + static_cast<int>(random() % 7);
    SCOPED_TRACE("round " + std::to_string(round) + ", " + std::to_string(minibatches) + " minibatches\n" +
                 toString(schedule));
    Told all, reckoned;
    pdcrt::CheckResult whole = run(schedule, times, minibatches, true, all);
    pdcrt::CheckResult fast = run(schedule, times, minibatches, false, reckoned);
    ASSERT_TRUE(whole.passed && fast.passed);
    repeated += fast.repeated.cycles > 0;
    EXPECT_EQ(whole.repeated.cycles, 0);
    const double close = 1e-8 * whole.finishMs;
    EXPECT_NEAR(fast.finishMs, whole.finishMs, close);
    EXPECT_NEAR(fast.periodMs, whole.periodMs, close);
    for (std::size_t r = 0; r < whole.ranks.size(); ++r)
      for (double pdcrt::RankUse::*part :
           {&pdcrt::RankUse::computeMs, &pdcrt::RankUse::sharedMs, &pdcrt::RankUse::transferMs,
            &pdcrt::RankUse::allReduceMs, &pdcrt::RankUse::fillMs, &pdcrt::RankUse::waitingMs, &pdcrt::RankUse::endedMs,
            &pdcrt::RankUse::firstMs, &pdcrt::RankUse::lastMs})
        EXPECT_NEAR(fast.ranks[r].*part, whole.ranks[r].*part, close) << "rank " << r;
    ASSERT_EQ(reckoned.size(), all.size());
    for (auto a = all.begin(), b = reckoned.begin(); a != all.end(); ++a, ++b) {
      ASSERT_EQ(a->first, b->first);
      ASSERT_NEAR(a->second.first, b->second.first, close) << std::get<2>(a->first);
      ASSERT_NEAR(a->second.second, b->second.second, close) << std::get<2>(a->first);
    }
  }
  EXPECT_GT(repeated, most / 2) << "too few runs repeat themselves for this test";
  RecordProperty("repeated", repeated);
}
