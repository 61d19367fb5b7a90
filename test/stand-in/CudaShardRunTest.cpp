// Replicas that divide their optimizer's state, or their weights, over NCCL on the stand-in, each process with a device
// of its own: whatever the schedule and the order of streams, the weights are those of whole replicas as threads on one
// device, bit for bit, and the bytes sent those of the formulas.
#include "ChainStages.h"
#include "StandIn.h"
#include "ThreadRun.h"
#include "pdc/Schedule/PipelineShape.h"
#include "pdcrt/Device.h"
#include "pdcrt/Shards.h"

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

// A parameter that the replicas divide unevenly, and one that follows it in memory.
constexpr std::int64_t large = 3 * squaresBlock + 100, small = 2 * squaresBlock;
constexpr std::size_t block = (static_cast<std::size_t>(large) * sizeof(float) + 63) / 64 * 64,
                      smallBlock = small * sizeof(float), weightBytes = block + smallBlock;
constexpr std::size_t outAt = 0, targetAt = block, xAt = 2 * block, lossAt = 3 * block, slotBytes = 3 * block + 64;

chain::Data data;

/// Stage s adds two parameters to what it is given: y = x + w + u, where u has fewer elements. The gradients, too, are
/// sums of what is in the slot and of the weights. A state adds up the inputs.
template <int Index, int Count>
struct SumStage {
  static constexpr bool first = Index == 0, last = Index == Count - 1;
  static inline const std::vector<EdgeRow> edges = chain::edgesOf(Index, Count, block);
  static constexpr std::size_t gradientFromRight = chain::gradientFromRight(Index),
                               gradientToLeft = chain::gradientToLeft(Index, Count);
  static inline const std::vector<PortRow> ports = [] {
    std::vector<PortRow> rows;
    for (std::size_t i = 0; i < edges.size(); ++i)
      rows.push_back({static_cast<int>(i), "y", Element::f32, {large}, block, outAt});
    return rows;
  }();
  static inline const std::string largeName = "w" + std::to_string(Index), smallName = "u" + std::to_string(Index);
  static inline const std::vector<ParameterRow> parameters = {
      {largeName.c_str(), Element::f32, {large}, 0, 0, true, 1, 1},
      {smallName.c_str(), Element::f32, {small}, block, 0, true, 1, 1}};
  static inline const std::vector<StateRow> states = {{"inputs", Element::f32, {large}, 0}};
  static inline const std::vector<GradientRow> gradients = {{0, 0, true}, {1, block, true}};
  static inline const std::vector<DataRow> rows = [] {
    std::vector<DataRow> result;
    if (first) result.push_back({"x", Element::f32, {large}, xAt, false, 0});
    if (last) result.push_back({"target", Element::f32, {large}, targetAt, true, 0});
    return result;
  }();
  static inline const std::vector<OutputRow> outputs = [] {
    std::vector<OutputRow> result;
    if (last) result.push_back({OutputKind::loss, "loss", Element::f32, {}, lossAt});
    return result;
  }();

  static const float* input(const Call& c) { return first ? at(c.frame.slot, xAt) : at(c.frame.edges[0], 0); }
  static void evaluate(const Call& c) {
    float* y = at(c.frame.slot, outAt);
    const float* const terms[] = {input(c), at(c.weights, 0)};
    device::addUp(*c.stream, y, terms, large);
    const float* const others[] = {y, at(c.weights, block)};
    device::addUp(*c.stream, y, others, small);
  }
  static void forward(const Call& c) {
    evaluate(c);
    const float* const sum[] = {at(c.state, 0), input(c)};
    device::addUp(*c.stream, at(c.state, 0), sum, large);
    if (last) device::copy(*c.stream, c.frame.slot + lossAt, c.frame.slot + outAt, sizeof(float));
  }
  static void backwardInput(const Call& c) {
    const float* const out = last ? at(c.frame.slot, targetAt) : at(c.frame.edges[gradientFromRight], 0);
    const float* const terms[] = {at(c.frame.slot, outAt), out, at(c.weights, 0)};
    device::addUp(*c.stream, at(c.gradients, 0), terms, large);
    const float* const others[] = {at(c.frame.slot, outAt), at(c.weights, block)};
    device::addUp(*c.stream, at(c.gradients, block), others, small);
    if (!first) device::copy(*c.stream, c.frame.edges[gradientToLeft], out, block);
  }
  static void backwardWeight(const Call& c) { c.stream->bucket(0); }

  static inline const Stage stage = {
      .index = Index,
      .count = Count,
      .model = "sums.onnx",
      .modelHash = "0000",
      .bytes = {.weights = weightBytes,
                .state = block,
                .gradients = weightBytes,
                .slot = slotBytes,
                .handover = 0,
                .scratch = 0,
                .workspace = 0},
      .parameters = parameters,
      .gradients = gradients,
      .states = states,
      .edges = edges,
      .ports = ports,
      .data = rows,
      .outputs = outputs,
      .buildKernels = [](Setup&) -> std::shared_ptr<const void> { return std::make_shared<const int>(Index); },
      .forward = forward,
      .backwardInput = backwardInput,
      .backwardWeight = backwardWeight,
      .evaluate = evaluate,
  };
};

template <int... Index>
std::vector<const Stage*> stagesOf(std::integer_sequence<int, Index...>) {
  return {&SumStage<Index, sizeof...(Index)>::stage...};
}
std::vector<const Stage*> stagesOf(std::size_t count) {
  switch (count) {
  case 1: return stagesOf(std::make_integer_sequence<int, 1>());
  case 2: return stagesOf(std::make_integer_sequence<int, 2>());
  default: return stagesOf(std::make_integer_sequence<int, 3>());
  }
}

struct ShardCase {
  const char* name;
  const char* kind;
  std::vector<int> replicas, warmup;
  std::int64_t microbatches = 0;
  int degree = 0;
  bool clips = false;
};

void PrintTo(const ShardCase& c, std::ostream* to) {
  *to << c.name;
}

Schedule scheduleOf(const ShardCase& c, Sharding sharding) {
  std::vector<pdc::StageShape> stages;
  for (std::size_t s = 0; s < c.replicas.size(); ++s) {
    const bool divides = sharding != Sharding::none && c.replicas[s] > 1;
    stages.push_back({.replicas = c.replicas[s],
                      .warmup = c.warmup[s],
                      .sharding = divides ? sharding : Sharding::none,
                      .shardDegree = divides ? c.degree : 0});
  }
  pdc::PipelineShape shape = pdc::straightShape(stages);
  shape.kind = c.kind;
  shape.microbatches = c.microbatches;
  shape.gradientNorm = c.clips;
  return pdc::buildSchedule(shape);
}

struct Trained {
  std::string bits; ///< of the weights, and of the mean states, of all stages and replicas
  std::uint64_t sent = 0;
};

/// After 12 minibatches, an evaluation, and 12 more.
Trained train(const ShardCase& c, Sharding sharding, bool overNccl, std::uint64_t seed) {
  stand_in::interleave(seed);
  const Schedule schedule = scheduleOf(c, sharding);
  ThreadRun run;
  run.schedule = &schedule;
  run.stages = stagesOf(c.replicas.size());
  run.training.optimizer = OptimizerKind::adam;
  run.training.learningRate = 0.0625;
  if (c.clips) run.training.clipNorm = 3;
  run.data = &data;
  run.readWeights = readInitial;
  run.floatsOfReduction = 2048;
  stand_in::setDevices(1);
  if (overNccl)
    run.makeTransports = [&](int processes) {
      std::vector<std::unique_ptr<Transport>> made;
      for (const Status& status : connectByNccl(ncclLanes(schedule), processes, made))
        EXPECT_TRUE(status) << status.message();
      return made;
    };
  EXPECT_TRUE(run.run([&](Executor& executor, int) -> Status {
    if (Status status = executor.train(0, 12); !status) return status;
    const Executor::Predicted predicted = [](const HostedStage&, std::int64_t, const std::byte*) -> Status {
      return {};
    };
    if (Status status = executor.evaluate(3, data, predicted); !status) return status;
    if (Status status = executor.train(12, 12); !status) return status;
    return executor.averageState();
  }));
  for (const Status& status : run.statuses) EXPECT_TRUE(status) << status.message();
  Trained trained{.sent = run.bytesSent(Traffic::allReduce)};
  for (std::size_t s = 0; s < c.replicas.size(); ++s)
    for (int replica = 0; replica < c.replicas[s]; ++replica)
      trained.bits.append(reinterpret_cast<const char*>(run.weights(static_cast<int>(s), replica)), weightBytes)
          .append(reinterpret_cast<const char*>(run.hosted(static_cast<int>(s), replica).state), large * sizeof(float));
  return trained;
}

class CudaShardRun : public testing::TestWithParam<ShardCase> {};
INSTANTIATE_TEST_SUITE_P(Schedules, CudaShardRun,
                         testing::Values(ShardCase{"OneStage", "1f1b", {3}, {0}},
                                         ShardCase{"TwoStages", "1f1b", {2, 1}, {1, 0}},
                                         ShardCase{"Flushing", "1f1b-flush", {1, 2}, {0, 0}, 4},
                                         ShardCase{"AllForwardsFirst", "gpipe", {2, 2}, {1, 0}, 4},
                                         ShardCase{"TwoVersions", "2bw", {2, 1}, {1, 0}, 2},
                                         ShardCase{"Clipped", "1f1b-flush", {2, 2}, {0, 0}, 4, 0, true}),
                         [](const testing::TestParamInfo<ShardCase>& test) { return test.param.name; });

TEST_P(CudaShardRun, OfTheOptimizerTrainsTheBitsOfWholeReplicas) {
  const Trained whole = train(GetParam(), Sharding::none, /*overNccl=*/false, 0);
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    const Trained divided = train(GetParam(), Sharding::optimizer, /*overNccl=*/true, seed);
    ASSERT_EQ(divided.bits == whole.bits, true) << "seed " << seed;
    EXPECT_GT(divided.sent, 0u);
  }
}

class CudaWeightShardRun : public testing::TestWithParam<ShardCase> {};
INSTANTIATE_TEST_SUITE_P(Schedules, CudaWeightShardRun,
                         testing::Values(ShardCase{"TwoReplicas", "bfs:3", {2, 2, 2}, {0, 0, 0}, 4},
                                         ShardCase{"ThreeReplicas", "bfs:2", {3, 3}, {0, 0}, 6},
                                         ShardCase{"Groups", "bfs:2", {4, 4}, {0, 0}, 4, 2},
                                         ShardCase{"Clipped", "bfs:3", {2, 2, 2}, {0, 0, 0}, 4, 0, true}),
                         [](const testing::TestParamInfo<ShardCase>& test) { return test.param.name; });

TEST_P(CudaWeightShardRun, TrainsTheBitsOfWholeReplicas) {
  const Trained whole = train(GetParam(), Sharding::none, /*overNccl=*/false, 0);
  for (std::uint64_t seed = 0; seed < 10; ++seed)
    ASSERT_EQ(train(GetParam(), Sharding::weights, /*overNccl=*/true, seed).bits == whole.bits, true)
        << "seed " << seed;
}

// The last stage is gathered once per update, the others twice, and once more for an evaluation; each gradient is
// summed once. The mean of the states is a sum and a gathering.
TEST(CudaWeightShardRunAlone, SendsWhatTheFormulaSays) {
  constexpr std::uint64_t stages = 3, updates = 6, evaluations = 1;
  constexpr auto all = static_cast<std::uint64_t>((large + small) * 4);
  const Trained trained = train({"", "bfs:3", {2, 2, 2}, {0, 0, 0}, 4}, Sharding::weights, /*overNccl=*/true, 1);
  EXPECT_EQ(trained.sent, (updates * (3 * stages - 1) + evaluations * stages) * all + 2 * stages * large * 4);
}

} // namespace
