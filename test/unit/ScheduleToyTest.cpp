// LINK: pdcPlanner pdcrt
// A schedule of a new kind is one file, this one: it registers a toy and touches nothing else, and the toy is planned,
// checked, simulated and run.
#include "Kinds/Flush.h"
#include "ReplayComparison.h"
#include "pdc/Cost/PlanVerifier.h"
#include "pdc/Planner/Planner.h"
#include "pdc/Predict/Prediction.h"
#include "pdc/Predict/Simulate.h"
#include "pdc/Support/Diagnostics.h"

#include <algorithm>

namespace {

/// 1F1B with a flush that deals the microbatches to the replicas in reverse: the last replica takes the first.
class Reversed : public pdc::FlushKind {
public:
  Reversed() : FlushKind("reversed") { hasSafeOrder = false; }

  pdcrt::Schedule frame(const pdc::PipelineShape& shape) const override {
    pdc::PipelineShape reversed = shape;
    for (pdc::StageShape& stage : reversed.stages) {
      std::vector<int> word;
      for (int q = stage.replicas - 1; q >= 0; --q) word.push_back(q);
      if (stage.replicas > 1) stage.route = pdcrt::Route(word);
    }
    return pdc::emptySchedule(reversed, *this);
  }
};

const pdc::RegisterSchedule registered(std::make_shared<Reversed>());

pdc::CostGraph fourNodes() {
  pdc::CostGraph graph;
  for (int i = 0; i < 4; ++i) {
    graph.nodes.push_back({.name = "n" + std::to_string(i),
                           .forwardMs = i < 2 ? 2.0 : 1.0,
                           .inputGradientMs = i < 2 ? 2.0 : 1.0,
                           .weightGradientMs = i < 2 ? 2.0 : 1.0,
                           .parameterBytes = 100,
                           .gradientBytes = 100,
                           .savedBytes = 1000});
    if (i > 0) graph.tensors.push_back({"t" + std::to_string(i), i - 1, {i}, 8});
  }
  return graph;
}

} // namespace

TEST(Toy, IsKnownByItsName) {
  ASSERT_TRUE(pdc::ScheduleKind::named("reversed"));
  EXPECT_FALSE(pdc::ScheduleKind::named("reverse"));
  const std::vector<std::string> names = pdc::scheduleNames();
  EXPECT_EQ(std::count(names.begin(), names.end(), "reversed"), 1);
}

TEST(Toy, IsPlannedCheckedAndSimulated) {
  const pdc::CostGraph graph = fourNodes();
  pdc::Cluster cluster;
  cluster.levels = {{"machine", 3, 1e12, 0}};
  cluster.device.memoryBytes = 1 << 20;
  pdc::PlannerOptions options;
  options.schedule = "reversed";
  options.microbatches = 4;
  options.stageReplicas = {2, 1};
  pdc::Diagnostics diags(nullptr);
  const pdc::Expected<pdc::Plan> plan = planPipeline(graph, cluster, options, diags);
  ASSERT_TRUE(plan) << diags.all()[0].message;
  EXPECT_EQ(verifyPlan(graph, *plan, options), "");
  EXPECT_EQ(plan->schedule.name(), "reversed");

  const pdc::Expected<pdcrt::Schedule> schedule = scheduleFor(*plan, diags);
  ASSERT_TRUE(schedule) << diags.all()[0].message;
  EXPECT_EQ(schedule->kind, "reversed");
  EXPECT_TRUE(pdcrt::checkEveryDrain(*schedule).proven);
  std::vector<std::int64_t> firsts;
  for (int rank : {0, 1, 2})
    for (const pdcrt::Action& action : expand(*schedule, rank, 4))
      if (action.kind == pdcrt::ActionKind::forward) {
        firsts.push_back(action.index);
        break;
      }
  EXPECT_EQ(firsts, (std::vector<std::int64_t>{1, 0, 0})) << "the last replica of stage 0 takes the first microbatch";

  // Equal devices: it takes the time and the memory of the schedule that it reverses.
  options.schedule = "1f1b-flush";
  const pdc::Expected<pdc::Plan> straight = planPipeline(graph, cluster, options, diags);
  ASSERT_TRUE(straight);
  EXPECT_DOUBLE_EQ(simulate(*plan, *schedule).timePerMinibatchMs, plan->timeMs);
  EXPECT_NEAR(plan->timeMs, straight->timeMs, 1e-9);
  for (std::size_t s = 0; s < 2; ++s) EXPECT_EQ(plan->stages[s].memoryBytes, straight->stages[s].memoryBytes);
  EXPECT_EQ(pdc::predict(*plan, *schedule).ranks[0].peakMemoryBytes, plan->stages[0].memoryBytes);

  // A plan file says which schedule it is of.
  const pdc::Expected<pdc::Plan> back = pdc::planFromJson(toJson(*plan), "plan.json", diags);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->schedule.name(), "reversed");
}

TEST(Toy, TrainsTheBitsOfTheReplay) {
  for (std::int64_t minibatches : {10, 24}) {
    const std::vector<std::vector<int>> reversed = {{2, 1, 0}, {1, 0}, {}};
    Comparison comparison(
        {.kind = "reversed", .replicas = {3, 2, 1}, .warmup = {2, 1, 0}, .gradientNorm = false, .routes = reversed});
    comparison.train(minibatches);
    if (HasFatalFailure()) return;
    EXPECT_TRUE(comparison.agrees({}));
  }
}
