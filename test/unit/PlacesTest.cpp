// LINK: pdcSchedule pdcrt_base
// Processes, ranks and stage replicas.
#include "pdcrt/Places.h"
#include "pdc/Schedule/PipelineShape.h"

#include <gtest/gtest.h>

#include <set>

using namespace pdcrt;

namespace {

Schedule schedule() {
  return pdc::buildSchedule(pdc::straightShape({{.replicas = 2, .warmup = 1}, {.replicas = 3}}));
}

} // namespace

TEST(Places, AProcessIsARankWhereRanksHaveOneMember) {
  const Schedule s = schedule();
  const Places places(s);
  ASSERT_EQ(places.ranks(), 5);
  ASSERT_EQ(places.processes(), 5);
  for (int rank = 0; rank < 5; ++rank) {
    EXPECT_EQ(places.at(rank), (Place{rank, 0}));
    EXPECT_EQ(places.process(rank), rank);
    EXPECT_EQ(places.hosts(rank), s.ranks[static_cast<std::size_t>(rank)].hosts);
  }
  for (int stage = 0; stage < 2; ++stage)
    for (int replica = 0; replica < s.stages[static_cast<std::size_t>(stage)].replicas; ++replica)
      EXPECT_EQ(places.process(Host{stage, replica}), s.rankOf(stage, replica));
}

TEST(Places, MembersOfARankAreNeighbours) {
  const Schedule s = schedule();
  const Places places(s, std::vector<int>{1, 2, 1, 3, 1});
  EXPECT_EQ(places.processes(), 8);
  std::set<int> seen;
  for (int rank = 0; rank < places.ranks(); ++rank)
    for (int member = 0; member < places.members(rank); ++member) {
      const int process = places.process(rank, member);
      EXPECT_TRUE(seen.insert(process).second);
      EXPECT_EQ(places.at(process), (Place{rank, member}));
      const Host& host = s.ranks[static_cast<std::size_t>(rank)].hosts[0];
      EXPECT_EQ(places.process(host, member), process);
      EXPECT_EQ(places.hosts(process), std::vector<Host>{host});
    }
  EXPECT_EQ(places.hostCount(), 8u);
  EXPECT_EQ(seen.size(), 8u);
  EXPECT_EQ(places.process(Host{1, 1}, 2), 6);
}

TEST(Places, WhatNoRankHostsHasNoProcess) {
  Schedule s = schedule();
  s.ranks.pop_back();
  EXPECT_EQ(Places(s).process(Host{1, 2}), -1);
}
