// LINK: pdcrt_base
// What --debug-nan's calls remember.
#include "pdcrt/NotFinite.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <thread>

using namespace pdcrt;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();

TEST(NotFinite, IsTheFirstTensorOfAll) {
  const float good[] = {1, -3e38f, 3e38f, 0}, bad[] = {1, nan, infinity, 2}, worse[] = {nan, nan, nan, nan};
  lookAt(View<const float>(good), 4, "good");
  lookAt(View<const float>(bad), 4, "bad");
  lookAt(View<const float>(worse), 4, "worse");
  const std::optional<NotFinite> found = takeNotFinite();
  ASSERT_TRUE(found);
  EXPECT_STREQ(found->what, "bad");
  EXPECT_EQ(found->element, 1);
  EXPECT_EQ(found->count, 2);
  EXPECT_TRUE(std::isnan(found->value));
  EXPECT_FALSE(takeNotFinite()) << "it is told once";
}

TEST(NotFinite, IsNotTheInfinityOfMasks) {
  const float mask[] = {0, -infinity, 0};
  lookAt(View<const float>(mask), 3, "mask");
  lookAt(View<const float>(), 3, "absent");
  EXPECT_FALSE(takeNotFinite());
}

TEST(NotFinite, IsOfEachThread) {
  std::thread([] { lookAt(View<const float>(&nan), 1, "other"); }).join();
  EXPECT_FALSE(takeNotFinite());
}

} // namespace
