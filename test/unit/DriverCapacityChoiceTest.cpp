// LINK: pdcDriver
// --capacity=auto: the least capacity with which no more than a share of the choices is dropped.
#include "Driver/CapacityChoice.h"

#include <gtest/gtest.h>

#include <random>

using namespace pdc;

TEST(CapacityChoice, IsTheLeastOneThatDropsSoFew) {
  // So many choices have the places 0, 1, 2 …
  EXPECT_EQ(leastCapacity({10, 6, 3, 1}, 0), 4);
  EXPECT_EQ(leastCapacity({10, 6, 3, 1}, 0.05), 3); // 1 of 20
  EXPECT_EQ(leastCapacity({10, 6, 3, 1}, 0.0499), 4);
  EXPECT_EQ(leastCapacity({10, 6, 3, 1}, 0.2), 2);
  EXPECT_EQ(leastCapacity({10, 6, 3, 1}, 1), 1);
  EXPECT_EQ(leastCapacity({10, 6, 3, 0, 0}, 0), 3); // nobody is there
  EXPECT_EQ(leastCapacity({0, 0, 0}, 0), 1);
}

TEST(CapacityChoice, IsWhatTryingAllOfThemFinds) {
  std::mt19937 random(5);
  for (int round = 0; round < 1000; ++round) {
    std::vector<std::int64_t> counts(1 + random() % 12);
    std::int64_t all = 0;
    for (std::int64_t& count : counts) all += count = random() % 9;
    const double drop = static_cast<double>(random() % 11) / 10;
    std::int64_t least = 1;
    for (;; ++least) {
      std::int64_t dropped = 0;
      for (std::size_t place = static_cast<std::size_t>(least); place < counts.size(); ++place)
        dropped += counts[place];
      if (static_cast<double>(dropped) <= drop * static_cast<double>(all)) break;
    }
    EXPECT_EQ(leastCapacity(counts, drop), least);
  }
}
