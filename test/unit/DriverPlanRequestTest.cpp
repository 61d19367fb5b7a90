// LINK: pdcDriver
// Costs count on early updates before there is a plan; programs update early under the schedule that a plan has. Both
// must be of one mind, for every schedule that pdc names.
#include "Driver/PlanRequest.h"
#include "pdc/Schedule/PipelineShape.h"
#include "pdc/Stage/StagePolicy.h"

#include <gtest/gtest.h>

using namespace pdc;

namespace {

PipelineShape shapeOf(const ScheduleKind& kind, std::int64_t microbatches, int ranks, int replicasOfFirst) {
  std::vector<StageShape> stages;
  const int count = ranks * kind->stagesPerRank;
  for (int s = 0; s < count; ++s) {
    const int replicas = s == 0 || kind->stagesPerRank > 1 ? replicasOfFirst : 1;
    stages.push_back({.replicas = replicas, .warmup = kind == "2bw" ? 0 : count - 1 - s});
  }
  PipelineShape shape = straightShape(stages);
  shape.kind = kind;
  shape.microbatches = kind->hasBatches ? microbatches : 0;
  return shape;
}

} // namespace

TEST(EarlyUpdates, CostsAndProgramsAgreeUnderEveryNamedSchedule) {
  int early = 0, late = 0;
  for (const std::string kind : {"1f1b", "1f1b-flush", "gpipe", "2bw", "zb-h1", "zb-v", "interleaved:2", "bfs:3"})
    for (std::int64_t microbatches : {1, 2, 4})
      for (int ranks : {1, 2, 3})
        for (int replicas : {1, 2}) {
          if (kind == "2bw" && replicas > microbatches) continue; // refused: a stage has as many in flight
          PlanRequest request;
          request.planner.schedule = kind;
          request.planner.microbatches = microbatches;
          const bool counted = updatesEarly(request.stages, request.expectedSchedule());
          const pdcrt::Schedule schedule = buildSchedule(shapeOf(kind, microbatches, ranks, replicas));
          for (std::size_t s = 0; s < schedule.stages.size(); ++s) {
            const bool updates = whyLateUpdates(request.stages, schedule, static_cast<int>(s)).empty();
            const bool agree = schedule.stages[s].replicas > 1 ? !updates : updates == counted;
            EXPECT_TRUE(agree) << kind << ", " << microbatches << " microbatches, " << ranks << " ranks, stage " << s
                               << " of " << schedule.stages[s].replicas << " replicas: costs say " << counted;
            ++(updates ? early : late);
          }
        }
  EXPECT_GT(early, 20);
  EXPECT_GT(late, 100);
}

TEST(EarlyUpdates, AFileIsAskedForItsOwnLists) {
  PlanRequest request;
  request.planner.schedule = "1f1b"; // what the file calls itself
  request.scheduleFile.emplace();
  request.scheduleFile->schedule = buildSchedule(shapeOf("gpipe", 2, 2, 1));
  EXPECT_FALSE(updatesEarly(request.stages, request.expectedSchedule()));
  request.scheduleFile->schedule = buildSchedule(shapeOf("1f1b", 0, 2, 1));
  EXPECT_TRUE(updatesEarly(request.stages, request.expectedSchedule()));
}

TEST(EarlyUpdates, TheReasonAgainstThemIsTold) {
  const pdcrt::Schedule schedule = buildSchedule(shapeOf("1f1b", 0, 2, 1));
  EXPECT_EQ(whyLateUpdates({}, schedule, 0), "");
  EXPECT_EQ(whyLateUpdates({.lateUpdates = true}, schedule, 0), "--updates=late");
  EXPECT_EQ(whyLateUpdates({.target = Target::cuda}, schedule, 0), "the target is no CPU");
  EXPECT_EQ(whyLateUpdates({.checksGradients = true}, schedule, 0), "an update looks at all gradients first");
  EXPECT_EQ(whyLateUpdates({.splitBackward = true}, schedule, 0), "the halves of its backward are apart");
  EXPECT_EQ(whyLateUpdates({}, buildSchedule(shapeOf("gpipe", 2, 2, 1)), 0), "no update follows each backward at once");
}
