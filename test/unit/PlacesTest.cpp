// LINK: pdcSchedule pdcrt_base
// Processes, ranks and stage replicas.
#include "pdcrt/Places.h"
#include "pdc/Schedule/PipelineShape.h"

#include <gtest/gtest.h>

#include <algorithm>
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
  EXPECT_EQ(places.count(), "5 ranks");
  for (int stage = 0; stage < 2; ++stage)
    for (int replica = 0; replica < s.stages[static_cast<std::size_t>(stage)].replicas; ++replica)
      EXPECT_EQ(places.process(Host{stage, replica}), s.rankOf(stage, replica));
}

TEST(Places, MembersOfARankAreNeighbours) {
  Schedule s = schedule();
  s.stages[0].team = 2;
  s.stages[1].team = 3;
  const Places places(s);
  EXPECT_EQ(places.processes(), 2 * 2 + 3 * 3);
  EXPECT_EQ(places.count(), "5 ranks of 13 processes");
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
  EXPECT_EQ(places.hostCount(), 13u);
  EXPECT_EQ(seen.size(), 13u);
  EXPECT_EQ(places.process(Host{1, 1}, 2), 9);
}

/// Every receiver has one sender, which has it among its receivers.
TEST(Places, MembersOfUnequalTeamsTakeFromEachOther) {
  for (int senders = 1; senders <= 5; ++senders)
    for (int receivers = 1; receivers <= 5; ++receivers) {
      Schedule s = schedule();
      s.stages[0].team = senders;
      s.stages[1].team = receivers;
      const Places places(s);
      const Host from{0, 1}, to{1, 2};
      std::vector<int> all;
      for (int member = 0; member < senders; ++member)
        for (const int process : places.partners(from, member, to, /*sends=*/true)) {
          all.push_back(process);
          EXPECT_EQ(places.partners(to, places.at(process).member, from, /*sends=*/false),
                    std::vector<int>{places.process(from, member)});
        }
      std::sort(all.begin(), all.end());
      std::vector<int> expected;
      for (int member = 0; member < receivers; ++member) expected.push_back(places.process(to, member));
      EXPECT_EQ(all, expected) << senders << " to " << receivers;
    }
}

TEST(Places, MembersOfEqualTeamsAreEachOthers) {
  Schedule s = schedule();
  s.stages[0].team = s.stages[1].team = 4;
  const Places places(s);
  for (int member = 0; member < 4; ++member)
    EXPECT_EQ(places.partners({0, 0}, member, {1, 1}, true), std::vector<int>{places.process(Host{1, 1}, member)});
}

TEST(Places, WhatNoRankHostsHasNoProcess) {
  Schedule s = schedule();
  s.ranks.pop_back();
  EXPECT_EQ(Places(s).process(Host{1, 2}), -1);
}
