// LINK: pdcPlan
// Which gradients are reduced together.
#include "pdc/Plan/GradientBuckets.h"

#include <gtest/gtest.h>

using namespace pdc;

TEST(GradientBuckets, FillFromTheLastGroupOn) {
  EXPECT_EQ(gradientBuckets({40, 30, 30, 50, 20}, 100), (std::vector<int>{1, 1, 0, 0, 0}));
  EXPECT_EQ(gradientBuckets({40, 31, 30, 50, 20}, 100), (std::vector<int>{1, 1, 0, 0, 0}));
  EXPECT_EQ(gradientBuckets({39, 30, 31, 50, 20}, 100), (std::vector<int>{1, 1, 1, 0, 0}));
}

TEST(GradientBuckets, LeaveALargeGroupAlone) {
  EXPECT_EQ(gradientBuckets({10, 500, 10}, 100), (std::vector<int>{2, 1, 0}));
  EXPECT_EQ(gradientBuckets({10, 500, 0}, 100), (std::vector<int>{1, 0, 0}));
  EXPECT_EQ(gradientBuckets({}, 100), std::vector<int>());
}
