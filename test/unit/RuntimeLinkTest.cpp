// LINK: pdcrt
// What measureLink says of an emulated link: never less than the link takes. How much more is up to the machine.
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

TEST(RuntimeLink, EndsWhenTheOtherRankIsGone) {
  std::vector<std::unique_ptr<Transport>> transports = makeThreadTransports(2);
  transports[1]->abort(0);
  LinkTimes times;
  EXPECT_FALSE(measureLink(*transports[0], times));
}
