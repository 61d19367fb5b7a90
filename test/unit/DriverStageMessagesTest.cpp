// LINK: pdcDriver
// The last look at the programs' tables before anything is written: two stages, values forward and gradients back.
#include "Driver/StageMessages.h"
#include "pdc/Schedule/PipelineShape.h"

#include <gtest/gtest.h>

using namespace pdc;
using pdcrt::Direction;

namespace {

/// Tables of a pipeline of two stages in which stage 0 sends x and y, and gets the gradient of x back.
class StageMessagesTest : public testing::Test {
protected:
  StageMessagesTest() {
    const Value* x = graph_.addInput({ElementType::f32, {2, 3}}, "x");
    const Value* y = graph_.addInput({ElementType::f32, {2, 3}}, "y");
    const Value* gradient = graph_.addInput({ElementType::f32, {2, 3}}, "x.gradient");
    for (MemoryPlan& stage : stages_) {
      stage.stage = static_cast<int>(&stage - stages_.data());
      stage.edges = {{Direction::forward, 0, 1, 48}, {Direction::backward, 1, 0, 24}};
      stage.ports = {{.edge = 0, .value = x}, {.edge = 0, .value = y}, {.edge = 1, .value = gradient}};
    }
    PipelineShape shape = straightShape({{.warmup = 1}, {.warmup = 0}});
    shape.edges = {{.from = 0, .to = 1, .backward = true, .forward = true}};
    schedule_ = buildSchedule(shape);
  }

  /// What is wrong; "" where nothing is.
  std::string problem() {
    Diagnostics diags(nullptr);
    if (verifyMessages(stages_, schedule_, diags)) return "";
    EXPECT_EQ(diags.exitCode(), ExitCode::internal);
    return diags.all().front().message;
  }

  Graph graph_{"main"};
  std::vector<MemoryPlan> stages_{2};
  pdcrt::Schedule schedule_;
};

} // namespace

TEST_F(StageMessagesTest, FitWhereBothEndsAndTheScheduleAgree) {
  EXPECT_EQ(problem(), "");
}

TEST_F(StageMessagesTest, NameAnEdgeThatTheScheduleLacks) {
  PipelineShape shape = straightShape({{.warmup = 1}, {.warmup = 0}});
  shape.edges = {{.from = 0, .to = 1, .backward = false, .forward = true}};
  schedule_ = buildSchedule(shape);
  EXPECT_EQ(problem(),
            "the programs do not fit their schedule: stage 0 receives gradients from stage 1, schedule.txt has "
            "no such edge");
}

TEST_F(StageMessagesTest, NameTheFirstTensorThatDiffers) {
  std::swap(stages_[1].ports[0].value, stages_[1].ports[1].value);
  EXPECT_EQ(problem(), "values 0>1: stage 0 has 'x' f32[2, 3] where stage 1 has 'y' f32[2, 3]");
}

TEST_F(StageMessagesTest, NameATensorThatOnlyOneEndHas) {
  stages_[1].ports.erase(stages_[1].ports.begin() + 1);
  EXPECT_EQ(problem(), "values 0>1: stage 0 has 'y' f32[2, 3] where stage 1 has nothing");
}
