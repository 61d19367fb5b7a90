// LINK: pdcSchedule
// What a stage's program exchanges against what a schedule says, which the compiler asks before it writes and the
// runtime before it runs.
#include "pdc/Schedule/PipelineShape.h"
#include "pdcrt/ExchangeProblem.h"

#include <gtest/gtest.h>

using namespace pdc;
using pdcrt::Direction;
using pdcrt::EdgeRow;

namespace {

constexpr EdgeRow values(int from, int to) {
  return {Direction::forward, from, to, 64};
}
constexpr EdgeRow gradients(int from, int to) {
  return {Direction::backward, from, to, 64};
}

/// Three stages; stage 0 sends values to both others, and gets gradients from stage 1 alone.
pdcrt::Schedule skipping() {
  PipelineShape shape = straightShape({{.warmup = 2}, {.warmup = 1}, {.warmup = 0}});
  shape.edges = {{.from = 0, .to = 1, .backward = true, .forward = true},
                 {.from = 0, .to = 2, .backward = false, .forward = true},
                 {.from = 1, .to = 2, .backward = true, .forward = false}};
  return buildSchedule(shape);
}

std::string problemOf(int stage, const std::vector<EdgeRow>& edges, const std::vector<pdcrt::SharedRow>& shared = {}) {
  return pdcrt::exchangeProblem(skipping(), stage, edges, shared);
}

} // namespace

TEST(Exchange, FitsWhereEveryEdgeHasBothSides) {
  EXPECT_EQ(problemOf(0, {values(0, 1), values(0, 2), gradients(1, 0)}), "");
  EXPECT_EQ(problemOf(1, {values(0, 1), gradients(1, 0), gradients(2, 1)}), "");
  EXPECT_EQ(problemOf(2, {values(0, 2), gradients(2, 1)}), "");
}

TEST(Exchange, MissesWhatTheScheduleDoesNotSay) {
  EXPECT_EQ(problemOf(0, {values(0, 1), values(0, 2), gradients(1, 0), gradients(2, 0)}),
            "stage 0 receives gradients from stage 2, schedule.txt has no such edge");
  EXPECT_EQ(problemOf(2, {values(0, 2), gradients(2, 1), gradients(2, 0)}),
            "stage 2 sends gradients to stage 0, schedule.txt has no such edge");
  EXPECT_EQ(problemOf(1, {values(0, 1), values(1, 2), gradients(1, 0), gradients(2, 1)}),
            "stage 1 sends values to stage 2, schedule.txt has no such edge");
  EXPECT_EQ(problemOf(2, {values(0, 2), gradients(2, 1)}, {{.owner = 0, .user = 2, .valueBytes = 4, .partBytes = 4}}),
            "stage 2 shares parameters with stage 0, schedule.txt does not");
}

TEST(Exchange, MissesWhatTheProgramDoesNotDo) {
  EXPECT_EQ(problemOf(0, {values(0, 1), values(0, 2)}),
            "stage 0 receives gradients from stage 1 in schedule.txt, its program does not");
  EXPECT_EQ(problemOf(2, {gradients(2, 1)}),
            "stage 2 receives values from stage 0 in schedule.txt, its program does not");
}
