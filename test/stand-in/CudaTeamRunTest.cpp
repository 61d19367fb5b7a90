// Stages that teams compute, over NCCL on the stand-in, each process with a device of its own: whatever the schedule
// and the order of streams, the weights are those of threads on one device, bit for bit, because the stand-in adds in
// member order; and a member that stops ends the run.
#include "ChainStages.h"
#include "StandIn.h"
#include "ThreadRun.h"
#include "pdc/Schedule/PipelineShape.h"
#include "pdcrt/Device.h"
#include "pdcrt/kernels/TeamGather.h"
#include "pdcrt/kernels/TeamReduce.h"

// Its constants would hide parameters of the headers above.
#include "NcclRanks.h"

#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

using namespace pdcrt;
using chain::at;
using chain::readInitial;

namespace {

constexpr std::int64_t count = 60; // parts of 2, 3 and 4 members are equal
constexpr std::size_t block = 64 * sizeof(float);
constexpr std::size_t outAt = 0, targetAt = block, xAt = 2 * block, lossAt = 3 * block, slotBytes = 3 * block + 64;
constexpr std::size_t termsAt = 0, partAt = block, besideAt = 2 * block, arrivedAt = 3 * block,
                      scratchBytes = 8 * block;

chain::Data data;

/// Stage s adds a parameter to what it is given: member m makes m + 1 times the sum, the sum over the team is divided
/// by what all made, and each part of it is gathered from the member whose it is. Gradients take the same way back.
template <int Index, int Count>
struct MeetingStage {
  static constexpr bool first = Index == 0, last = Index == Count - 1;

  struct Kernels {
    Kernels(Setup& setup, int members)
        : forward(setup, {.operand = {count}, .members = members}),
          backward(setup, {.operand = {count}, .members = members}),
          gather(setup, {.operand = {count / members}, .members = members}) {}
    TeamReduce forward, backward;
    TeamGather gather;
  };

  static inline const std::vector<EdgeRow> edges = chain::edgesOf(Index, Count, block);
  static constexpr std::size_t gradientFromRight = chain::gradientFromRight(Index),
                               gradientToLeft = chain::gradientToLeft(Index, Count);
  static inline const std::vector<PortRow> ports = [] {
    std::vector<PortRow> rows;
    for (std::size_t i = 0; i < edges.size(); ++i)
      rows.push_back({static_cast<int>(i), "y", Element::f32, {count}, block, outAt});
    return rows;
  }();
  static inline const std::string weightName = "w" + std::to_string(Index);
  static inline const std::vector<ParameterRow> parameters = {
      {weightName.c_str(), Element::f32, {count}, 0, 0, true, 1, 1}};
  static inline const std::vector<GradientRow> gradients = {{0, 0, true}};
  static inline const std::vector<DataRow> rows = [] {
    std::vector<DataRow> result;
    if (first) result.push_back({"x", Element::f32, {count}, xAt, false, 0});
    if (last) result.push_back({"target", Element::f32, {count}, targetAt, true, 0});
    return result;
  }();
  static inline const std::vector<OutputRow> outputs = [] {
    std::vector<OutputRow> result;
    if (last) result.push_back({OutputKind::loss, "loss", Element::f32, {}, lossAt});
    return result;
  }();

  /// y = what the members make of a + b.
  static void meet(const Call& c, const TeamReduce Kernels::*reduce, const float* a, const float* b, float* y) {
    Stream& q = *c.stream;
    float *terms = at(c.scratch, termsAt), *part = at(c.scratch, partAt), *arrived = at(c.scratch, arrivedAt);
    if (!q.team()) {
      const float* const both[] = {a, b};
      return device::addUp(q, y, both, count);
    }
    const auto& kernels = *static_cast<const Kernels*>(c.kernels);
    const int members = q.team()->members(), member = q.member();
    std::vector<const float*> own;
    for (int i = 0; i <= member; ++i) own.insert(own.end(), {a, b});
    device::addUp(q, terms, own, count);
    (kernels.*reduce).start(q, View<const float>(terms), View<float>(arrived));
    const float* const beside[] = {a, terms}; // what goes on meanwhile
    device::addUp(q, at(c.scratch, besideAt), beside, count);
    (kernels.*reduce).finish(q, View<const float>(terms), View<float>(arrived), View<float>(terms));
    device::divide(q, terms, static_cast<float>(members * (members + 1) / 2), count);
    const std::int64_t each = count / members;
    device::copy(q, part, terms + member * each, static_cast<std::size_t>(each) * sizeof(float));
    kernels.gather.start(q, View<const float>(part), View<float>(arrived));
    kernels.gather.finish(q, View<const float>(part), View<float>(arrived), View<float>(y));
  }

  static const float* input(const Call& c) { return first ? at(c.frame.slot, xAt) : at(c.frame.edges[0], 0); }
  static void evaluate(const Call& c) {
    meet(c, &Kernels::forward, input(c), at(c.weights, 0), at(c.frame.slot, outAt));
  }
  static void forward(const Call& c) {
    evaluate(c);
    if (last) device::copy(*c.stream, c.frame.slot + lossAt, c.frame.slot + outAt, sizeof(float));
  }
  static void backwardInput(const Call& c) {
    const float* const out = last ? at(c.frame.slot, targetAt) : at(c.frame.edges[gradientFromRight], 0);
    const float* const terms[] = {at(c.frame.slot, outAt), out, input(c)};
    device::addUp(*c.stream, at(c.gradients, 0), terms, count);
    if (!first) meet(c, &Kernels::backward, out, at(c.gradients, 0), at(c.frame.edges[gradientToLeft], 0));
  }
  static void backwardWeight(const Call& c) { c.stream->bucket(0); }

  template <int Members>
  static std::shared_ptr<const void> build(Setup& setup) {
    return std::make_shared<const Kernels>(setup, Members);
  }
  /// For a team of so many.
  static Stage of(int members) {
    return {
        .index = Index,
        .count = Count,
        .model = "sums.onnx",
        .modelHash = "0000",
        .members = members,
        .bytes = {.weights = block,
                  .state = 0,
                  .gradients = block,
                  .slot = slotBytes,
                  .handover = 0,
                  .scratch = scratchBytes,
                  .workspace = 0},
        .parameters = parameters,
        .gradients = gradients,
        .edges = edges,
        .ports = ports,
        .data = rows,
        .outputs = outputs,
        .buildKernels = members == 1 ? [](Setup&) -> std::shared_ptr<const void> { return std::make_shared<int>(); }
        : members == 2               ? &build<2>
      : members == 3                 ? &build<3>
                                     : &build<4>,
        .forward = forward,
        .backwardInput = backwardInput,
        .backwardWeight = backwardWeight,
        .evaluate = evaluate,
    };
  }
};

template <int... Index>
std::vector<Stage> stagesOf(const std::vector<int>& teams, std::integer_sequence<int, Index...>) {
  return {MeetingStage<Index, sizeof...(Index)>::of(teams[Index])...};
}
std::vector<Stage> stagesOf(const std::vector<int>& teams) {
  switch (teams.size()) {
  case 1: return stagesOf(teams, std::make_integer_sequence<int, 1>());
  case 2: return stagesOf(teams, std::make_integer_sequence<int, 2>());
  default: return stagesOf(teams, std::make_integer_sequence<int, 4>());
  }
}

struct TeamCase {
  const char* name;
  const char* kind;
  std::vector<int> replicas, warmup, teams;
  std::int64_t microbatches = 0;
};

void PrintTo(const TeamCase& c, std::ostream* to) {
  *to << c.name;
}

Schedule scheduleOf(const TeamCase& c) {
  std::vector<pdc::StageShape> stages;
  for (std::size_t s = 0; s < c.replicas.size(); ++s)
    stages.push_back({.replicas = c.replicas[s], .warmup = c.warmup[s]});
  pdc::PipelineShape shape = pdc::straightShape(stages);
  shape.kind = c.kind;
  shape.microbatches = c.microbatches;
  Schedule schedule = pdc::buildSchedule(shape);
  for (std::size_t s = 0; s < c.teams.size(); ++s) schedule.stages[s].team = c.teams[s];
  return schedule;
}

/// A run of this schedule, over NCCL or as threads on one device.
struct TeamsOnDevices : ThreadRun {
  TeamsOnDevices(const TeamCase& of, bool overNccl) : schedule_(scheduleOf(of)), stages_(stagesOf(of.teams)) {
    schedule = &schedule_;
    for (const Stage& stage : stages_) stages.push_back(&stage);
    training.optimizer = OptimizerKind::sgd;
    training.learningRate = 0.0625;
    data = &::data;
    readWeights = readInitial;
    stand_in::setDevices(1);
    if (!overNccl) return;
    makeTransports = [this](int processes) {
      std::vector<std::unique_ptr<Transport>> made;
      for (const Status& status : connectByNccl(ncclLanes(schedule_), processes, made))
        EXPECT_TRUE(status) << status.message();
      return made;
    };
  }

private:
  Schedule schedule_;
  std::vector<Stage> stages_;
};

/// Newest weights after 8 minibatches, an evaluation, and 8 more: process by process.
std::string trained(const TeamCase& c, bool overNccl, std::uint64_t seed) {
  stand_in::interleave(seed);
  TeamsOnDevices run(c, overNccl);
  std::vector<std::string> parts(static_cast<std::size_t>(Places(*run.schedule).processes()));
  const bool ended = run.run([&](Executor& executor, int process) -> Status {
    std::string& part = parts[static_cast<std::size_t>(process)];
    for (std::int64_t begin : {0, 8}) {
      if (Status status = executor.train(begin, 8); !status) return status;
      for (const HostedStage& hosted : executor.hosted()) part += bitsOf(hosted);
      if (begin > 0) break;
      Executor::Predicted predicted = [](const HostedStage&, std::int64_t, const std::byte*) -> Status { return {}; };
      if (Status status = executor.evaluate(3, data, predicted); !status) return status;
    }
    return {};
  });
  for (const Status& status : run.statuses) EXPECT_TRUE(status) << status.message();
  EXPECT_TRUE(ended);
  std::string all;
  for (const std::string& part : parts) all += part;
  return all;
}

class CudaTeamRun : public testing::TestWithParam<TeamCase> {};
INSTANTIATE_TEST_SUITE_P(
    Schedules, CudaTeamRun,
    testing::Values(TeamCase{"OneStage", "1f1b", {1}, {0}, {3}}, TeamCase{"TwoStages", "1f1b", {1, 1}, {1, 0}, {2, 2}},
                    TeamCase{"Replicas", "1f1b", {2, 1}, {1, 0}, {2, 2}},
                    TeamCase{"AllForwardsFirst", "gpipe", {1, 1}, {1, 0}, {3, 3}, 4},
                    TeamCase{"Flushing", "1f1b-flush", {1, 2}, {0, 0}, {2, 2}, 4},
                    TeamCase{"TwoVersions", "2bw", {1, 1}, {1, 0}, {2, 2}, 2},
                    TeamCase{"SmallThenLarge", "gpipe", {1, 1}, {1, 0}, {2, 4}, 4},
                    TeamCase{"LargeThenAlone", "1f1b", {1, 1}, {1, 0}, {3, 1}},
                    TeamCase{"SplitBackward", "zb-h1", {1, 1}, {0, 0}, {2, 2}, 4},
                    TeamCase{"StagesOfOneRank", "interleaved:2", {1, 1, 1, 1}, {0, 0, 0, 0}, {2, 2, 2, 2}, 2},
                    TeamCase{"SplitBackwardOfTwo", "zb-v", {1, 1, 1, 1}, {0, 0, 0, 0}, {2, 2, 2, 2}, 4}),
    [](const testing::TestParamInfo<TeamCase>& test) { return test.param.name; });

TEST_P(CudaTeamRun, EveryOrderOfStreamsTrainsTheBitsOfThreads) {
  const std::string expected = trained(GetParam(), /*overNccl=*/false, 0);
  for (std::uint64_t seed = 0; seed < 30; ++seed)
    ASSERT_EQ(trained(GetParam(), /*overNccl=*/true, seed), expected) << "seed " << seed;
}

TEST(CudaTeamRunAlone, AMemberThatStopsEndsTheRun) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    stand_in::interleave(seed);
    {
      TeamsOnDevices run({"TwoStages", "1f1b", {1, 1}, {1, 0}, {2, 2}}, /*overNccl=*/true);
      EXPECT_FALSE(run.run([](Executor& executor, int process) {
        return process == 1 ? Status(Exit::noDevice, "this member stops") : executor.train(0, 50);
      }));
      for (int process : {0, 2, 3})
        EXPECT_EQ(run.statuses[static_cast<std::size_t>(process)].code(), Exit::again) << process << ", seed " << seed;
    }
    EXPECT_EQ(stand_in::pending(), 0u) << seed;
  }
}

} // namespace
