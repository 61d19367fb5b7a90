// LINK: pdcrt_base
// Routing against brute force, and routes in the text of schedules.
#include "pdcrt/Schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

using namespace pdcrt;

namespace {

/// The word of a routing, written out.
std::vector<int> letters(const std::vector<int>& word, int replicas, std::int64_t minibatches) {
  std::vector<int> all;
  for (std::int64_t b = 0; b < minibatches; ++b)
    all.push_back(word.empty() ? static_cast<int>(b) % replicas : word[static_cast<std::size_t>(b) % word.size()]);
  return all;
}

/// Everything that Routing answers, by counting.
void expectCounted(const std::vector<int>& word, int replicas) {
  const Route route(word);
  const Routing routing(replicas, route);
  const std::int64_t minibatches = 60;
  const std::vector<int> all = letters(word, replicas, minibatches);
  const std::string text = testing::PrintToString(word) + " over " + std::to_string(replicas);
  std::vector<std::vector<std::int64_t>> own(static_cast<std::size_t>(replicas));
  for (std::int64_t b = 0; b < minibatches; ++b) {
    const int r = all[static_cast<std::size_t>(b)];
    for (int other = 0; other < replicas; ++other)
      EXPECT_EQ(routing.localCount(b, other), static_cast<std::int64_t>(own[static_cast<std::size_t>(other)].size()))
          << text;
    EXPECT_EQ(routing.replica(b), r) << text;
    EXPECT_EQ(routing.local(b), static_cast<std::int64_t>(own[static_cast<std::size_t>(r)].size())) << text;
    own[static_cast<std::size_t>(r)].push_back(b);
  }
  for (int r = 0; r < replicas; ++r)
    for (std::size_t k = 0; k < own[static_cast<std::size_t>(r)].size(); ++k) {
      const std::int64_t b = own[static_cast<std::size_t>(r)][k];
      EXPECT_EQ(routing.minibatch(static_cast<std::int64_t>(k), r), b) << text;
      if (k + 1 < own[static_cast<std::size_t>(r)].size()) {
        EXPECT_EQ(routing.next(b), own[static_cast<std::size_t>(r)][k + 1]) << text;
      }
    }
  for (std::int64_t first = 0; first < 20; ++first)
    for (std::int64_t last = first; last < 20; ++last)
      for (int r = 0; r < replicas; ++r) {
        bool any = false;
        for (std::int64_t b = first; b < last; ++b) any |= all[static_cast<std::size_t>(b)] == r;
        EXPECT_EQ(routing.hasOneOf(first, last, r), any) << text;
      }
}

Schedule twoReplicas(const std::vector<int>& word, std::int64_t microbatches) {
  Schedule schedule;
  schedule.kind = "gpipe";
  schedule.minibatchesPerUpdate = microbatches;
  schedule.stages = {{.replicas = 2, .route = Route(word)}};
  for (int r : {0, 1}) schedule.ranks.push_back({.hosts = {{0, r}}, .start = {}, .repeat = {}, .step = 12});
  return schedule;
}

std::string problemOf(const Schedule& schedule) {
  std::string problem;
  return isWellFormed(schedule, problem) ? "" : problem;
}

} // namespace

TEST(Routing, RoundRobinAgreesWithCounting) {
  for (int replicas : {1, 2, 3, 5}) expectCounted({}, replicas);
}

TEST(Routing, WordsAgreeWithCounting) {
  expectCounted({0}, 1);
  expectCounted({1, 0}, 2);
  expectCounted({0, 0, 1}, 2);
  expectCounted({0, 0, 1, 1}, 2); // runs
  std::mt19937 random(3);
  for (int i = 0; i < 40; ++i) {
    const int replicas = std::uniform_int_distribution(1, 4)(random);
    std::vector<int> word;
    for (int r = 0; r < replicas; ++r) word.push_back(r);
    for (int more = std::uniform_int_distribution(0, 6)(random); more > 0; --more)
      word.push_back(std::uniform_int_distribution(0, replicas - 1)(random));
    std::shuffle(word.begin(), word.end(), random);
    expectCounted(word, replicas);
  }
}

TEST(Routing, TheMostOfAnUpdateIsThatOfTheBusiestReplica) {
  EXPECT_EQ(twoReplicas({}, 4).mostOfUpdate(0), 2);
  EXPECT_EQ(twoReplicas({}, 3).mostOfUpdate(0), 2);
  EXPECT_EQ(twoReplicas({}, 2).mostOfUpdate(0), 1);
  EXPECT_EQ(twoReplicas({0, 0, 1}, 2).mostOfUpdate(0), 2);
  EXPECT_EQ(twoReplicas({0, 0, 1}, 6).mostOfUpdate(0), 4);
  EXPECT_EQ(twoReplicas({0, 1, 1, 0}, 2).mostOfUpdate(0), 1);
}

TEST(Routing, IsWrittenInTheTextOfASchedule) {
  const Schedule schedule = twoReplicas({0, 0, 1}, 6);
  const std::string text = toString(schedule);
  EXPECT_NE(text.find("stage 0 replicas 2 warmup 0 sync-delay 0 slots 1 versions 1 route 0 0 1\n"), std::string::npos)
      << text;
  Schedule read;
  std::string error;
  ASSERT_TRUE(parseSchedule(text, read, error)) << error;
  EXPECT_EQ(read, schedule);
  EXPECT_EQ(toString(twoReplicas({}, 6)).find("route"), std::string::npos);
}

TEST(Routing, TextMustNameReplicas) {
  auto errorOf = [](const std::string& end) {
    Schedule read;
    std::string error;
    EXPECT_FALSE(
        parseSchedule("schedule x\nstage 0 replicas 2 warmup 0 sync-delay 0 slots 1 versions 1 " + end, read, error));
    return error;
  };
  EXPECT_EQ(errorOf("route"), "line 2: expected a replica from 0 to 1048576, got ''");
  EXPECT_EQ(errorOf("route 0 x"), "line 2: expected a replica from 0 to 1048576, got 'x'");
  EXPECT_EQ(errorOf("rout 0"), "line 2: expected 'handovers', 'route' or the end of the line, got 'rout'");
}

TEST(Routing, MustHaveEveryReplicaAndCommonUpdates) {
  EXPECT_EQ(problemOf(twoReplicas({0, 0, 1}, 6)), "");
  EXPECT_EQ(problemOf(twoReplicas({0, 0}, 6)), "stage 0: its route leaves out replica 1");
  EXPECT_EQ(problemOf(twoReplicas({0, 2, 1}, 6)), "stage 0: its route names replica 2, which does not exist");
  EXPECT_EQ(problemOf(twoReplicas({0, 0, 1}, 0)), "stage 0: a route needs minibatches-per-update");
  Schedule schedule = twoReplicas({0, 0, 1, 1, 1}, 6);
  EXPECT_EQ(problemOf(schedule), "the step 12 of rank 0 is not a multiple of the 6 minibatches of an update and the 5 "
                                 "minibatches of the route");
  schedule = twoReplicas({0, 0, 1}, 6);
  schedule.ranks[1].repeat = {{ActionKind::forward, false, 0, -1, 1}};
  EXPECT_EQ(problemOf(schedule), "rank 1: '0F1': minibatch 1 belongs to replica 0, this is replica 1");
}
