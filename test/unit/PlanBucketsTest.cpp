// LINK: pdcPlan
// Which gradients are reduced together, and what of their all-reduce a backward hides.
#include "pdc/Plan/GradientBuckets.h"
#include "pdc/Plan/Plan.h"

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

TEST(ExposedSync, IsAllOfItWithoutBuckets) {
  EXPECT_EQ(exposedSyncMs({}, 10, 3), 3);
  EXPECT_EQ(exposedSyncMs({{.bytes = 8, .final = 1}}, 10, 3), 3);
}

TEST(ExposedSync, BeginsWhenTheFirstBucketIsFinal) {
  // On a slow link one all-reduce follows the other: 2 + 40 - 10.
  EXPECT_DOUBLE_EQ(exposedSyncMs({{.bytes = 30, .final = 0.2}, {.bytes = 10, .final = 1}}, 10, 40), 32);
  // On a fast one the last bucket is left.
  EXPECT_DOUBLE_EQ(exposedSyncMs({{.bytes = 30, .final = 0.2}, {.bytes = 10, .final = 1}}, 10, 4), 1);
  // All that is final by 0.5 takes 5 + 6 in the middle: the second of three decides.
  EXPECT_DOUBLE_EQ(
      exposedSyncMs({{.bytes = 10, .final = 0.2}, {.bytes = 50, .final = 0.5}, {.bytes = 10, .final = 0.5}}, 10, 7), 1);
  EXPECT_EQ(exposedSyncMs({{.bytes = 10, .final = 0.2}}, 10, 4), 0);
}

TEST(ExposedSync, DoesNotCountTheTimeOfTheCore) {
  // Of 40, 16 are the core's: 2 + 24 - 10.
  const std::vector<GradientBucket> buckets = {{.bytes = 30, .final = 0.2}, {.bytes = 10, .final = 1}};
  EXPECT_DOUBLE_EQ(exposedSyncMs(buckets, 10, 40, 16), 16);
  EXPECT_DOUBLE_EQ(exposedSyncMs(buckets, 10, 4, 3), 0.25);
  EXPECT_EQ(exposedSyncMs(buckets, 10, 4, 5), 0) << "the core takes longer than the link";
  EXPECT_EQ(exposedSyncMs({}, 10, 4, 3), 1);
  EXPECT_EQ(exposedSyncMs({}, 10, 4, 5), 0);
  // With shards, half of the 24 is a sum, 2 + 12 - 10, and half comes after the update.
  EXPECT_DOUBLE_EQ(exposedSyncMs(buckets, 10, 40, 16, /*sharded=*/true), 4 + 12);
  EXPECT_EQ(exposedSyncMs(buckets, 10, 4, 5, /*sharded=*/true), 0);
  PlanStage stage;
  stage.allReduceMs = 8;
  stage.allReduceCoreMs = 3;
  EXPECT_EQ(stage.unhiddenSyncMs(), 5) << "nothing is said";
  stage.inputGradientMs = 4;
  stage.buckets = {{.bytes = 10, .final = 0.5}};
  stage.hideSync(/*splitBackward=*/false);
  EXPECT_EQ(stage.unhiddenSyncMs(), 3);
}

TEST(ExposedSync, FollowsTheTimesOfAStage) {
  PlanStage stage;
  stage.inputGradientMs = 4;
  stage.weightGradientMs = 6;
  stage.allReduceMs = 8;
  stage.exposedSyncMs = 7;
  EXPECT_EQ(stage.unhiddenSyncMs(), 7);
  stage.hideSync(/*splitBackward=*/false);
  EXPECT_EQ(stage.exposedSyncMs, 7) << "nothing is known of buckets";
  stage.buckets = {{.bytes = 10, .final = 0.5}};
  stage.hideSync(/*splitBackward=*/false);
  EXPECT_DOUBLE_EQ(stage.unhiddenSyncMs(), 3);
  stage.hideSync(/*splitBackward=*/true);
  EXPECT_DOUBLE_EQ(stage.unhiddenSyncMs(), 5);
  stage.allReduceMs = 2;
  stage.hideSync(/*splitBackward=*/false);
  EXPECT_EQ(stage.unhiddenSyncMs(), 0) << "all of it is hidden";
  stage.buckets.clear();
  EXPECT_EQ(stage.unhiddenSyncMs(), 2) << "nothing is said";
}
