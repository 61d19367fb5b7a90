// LINK: pdcrt
// What measureLink and measureTeam say of an emulated link: never less than the link takes. How much more is up to the
// machine.
#include "run/LinkProfile.h"

#include <gtest/gtest.h>

using namespace pdcrt;

TEST(RuntimeLink, TakesAtLeastTheTimeOfTheLink) {
  constexpr EmulatedLink link = {.bytesPerSecond = 1e9, .latency = 5e-3};
  std::vector<std::unique_ptr<Transport>> transports = makeThreadTransports(2, link);
  LinkTimes times, unused;
  bool otherMeasured = false;
  std::thread other([&] { otherMeasured = measureLink(*transports[1], unused); });
  EXPECT_TRUE(measureLink(*transports[0], times));
  other.join();
  EXPECT_TRUE(otherMeasured);
  EXPECT_GE(times.latency, link.latency);
  constexpr double bytes = 4 << 20;
  EXPECT_GE(times.latency + bytes / times.bytesPerSecond, 0.999 * (link.latency + bytes / link.bytesPerSecond));
}

/// What member 0 of a team of threads measures; false: another is gone.
static bool measureTeamOf(int members, EmulatedLink link, TeamTimes& times, int gone = -1) {
  std::vector<std::unique_ptr<Transport>> transports = makeThreadTransports(members, link);
  std::vector<std::thread> others;
  std::vector<TeamTimes> unused(static_cast<std::size_t>(members));
  for (int member = 1; member < members; ++member)
    others.emplace_back([&, member] {
      const auto m = static_cast<std::size_t>(member);
      if (member == gone)
        transports[m]->abort(0);
      else
        measureTeam(*transports[m], members, unused[m]);
    });
  const bool measured = measureTeam(*transports[0], members, times);
  for (std::thread& other : others) other.join();
  return measured;
}

TEST(RuntimeLink, CollectivesTakeAtLeastTheTimeOfTheLink) {
  constexpr EmulatedLink link = {.bytesPerSecond = 1e9, .latency = 2e-3};
  for (const int members : {2, 3}) {
    TeamTimes times;
    ASSERT_TRUE(measureTeamOf(members, link, times));
    const int steps = members > 2 ? 2 : 1; // of an all-reduce
    const double share = 1.0 / members;    // of the bytes, that each pair of members exchanges in a step
    constexpr double bytes = 4 << 20;
    const auto takes = [&](const CollectiveTimes& t, double sent) { return t.latency + sent / t.bytesPerSecond; };
    const double sent = 2 * (members - 1) * share * bytes;
    EXPECT_GE(takes(times.sum, sent), 0.999 * (steps * link.latency + bytes * share * 2 / link.bytesPerSecond));
    EXPECT_GE(takes(times.exchange, sent / 2), 0.999 * (link.latency + bytes * share / link.bytesPerSecond));
    EXPECT_GE(times.sum.latency, 0.9 * steps * link.latency);
    EXPECT_GE(times.exchange.latency, 0.9 * link.latency);
  }
}

TEST(RuntimeLink, OfATeamEndsWhenAnotherRankIsGone) {
  TeamTimes times;
  EXPECT_FALSE(measureTeamOf(3, {}, times, /*gone=*/2));
}

TEST(RuntimeLink, EndsWhenTheOtherRankIsGone) {
  std::vector<std::unique_ptr<Transport>> transports = makeThreadTransports(2);
  transports[1]->abort(0);
  LinkTimes times;
  EXPECT_FALSE(measureLink(*transports[0], times));
}
