// The executor on the stand-in: a minibatch's data comes from the host in a stream of its own, while the stages compute
// the minibatch before, and whatever the order of streams, the bits are those of data that is copied in their stream.
#include "ChainStages.h"
#include "StandIn.h"
#include "Streams.h"
#include "ThreadRun.h"
#include "pdc/Schedule/PipelineShape.h"
#include "pdcrt/Device.h"

#include <gtest/gtest.h>

#include <cstring>
#include <ostream>
#include <string>
#include <vector>

using namespace pdcrt;
using chain::at;
using chain::dataAt;
using chain::readInitial;

namespace {

constexpr std::int64_t floats = 64, fewer = 60;
constexpr std::size_t block = floats * sizeof(float);
constexpr std::size_t xAt = 0, uAt = block, outAt = 2 * block, targetAt = 3 * block, lossAt = 4 * block,
                      scaleAt = 4 * block + 64, slotBytes = 4 * block + 128;

chain::Data data;

/// What a forward waits for in its stream, where a test says so: the data of a minibatch beside the slot.
struct Awaited {
  const std::byte* memory = nullptr; ///< null: nothing is awaited
  std::int64_t minibatches = 0;
} awaited;

class DataArrives : public stand_in::Kernel {
public:
  explicit DataArrives(std::int64_t minibatch) : minibatch_(minibatch) {}
  bool ready() const override {
    float value = 0;
    std::memcpy(&value, awaited.memory, sizeof value);
    return value == dataAt("x", minibatch_, 0);
  }
  bool advance() override { return true; }

private:
  std::int64_t minibatch_;
};

/// Stage s adds a parameter to what it is given: y = x + w, the first one y = x + u + w, where u has fewer elements.
/// The gradients, too, are sums of what is in the slot.
template <int Index, int Count, bool Staged>
struct SumStage {
  static constexpr bool first = Index == 0, last = Index == Count - 1;
  static inline const std::vector<EdgeRow> edges = chain::edgesOf(Index, Count, block);
  static constexpr std::size_t gradientFromRight = chain::gradientFromRight(Index),
                               gradientToLeft = chain::gradientToLeft(Index, Count);
  static inline const std::vector<PortRow> ports = [] {
    std::vector<PortRow> rows;
    for (std::size_t i = 0; i < edges.size(); ++i)
      rows.push_back({static_cast<int>(i), "y", Element::f32, {floats}, block, edges[i].bytes == 0 ? outAt : 0});
    return rows;
  }();
  static inline const std::string weightName = "w" + std::to_string(Index);
  static inline const std::vector<ParameterRow> parameters = {
      {weightName.c_str(), Element::f32, {floats}, 0, 0, true, 1, 1}};
  static inline const std::vector<GradientRow> gradients = {{0, 0, true}};
  static inline const std::vector<DataRow> rows = [] {
    std::vector<DataRow> result;
    if (first) result.push_back({"x", Element::f32, {floats}, xAt, false, 0});
    if (last) result.push_back({"loss_scale", Element::f32, {}, scaleAt, false, 0, true});
    if (first) result.push_back({"u", Element::f32, {fewer}, uAt, false, 0});
    if (last) result.push_back({"target", Element::f32, {floats}, targetAt, true, 0});
    return result;
  }();
  static inline const std::vector<OutputRow> outputs = [] {
    std::vector<OutputRow> result;
    if (last) result.push_back({OutputKind::loss, "loss", Element::f32, {}, lossAt});
    if (last) result.push_back({OutputKind::prediction, "y", Element::f32, {floats}, outAt});
    return result;
  }();

  static const float* input(const Call& c) { return first ? at(c.frame.slot, xAt) : at(c.frame.edges[0], 0); }

  static void evaluate(const Call& c) {
    float* y = at(c.frame.slot, outAt);
    const float* const terms[] = {input(c), reinterpret_cast<const float*>(c.weights)};
    device::addUp(*c.stream, y, terms, floats);
    const float* const others[] = {y, at(c.frame.slot, uAt)};
    if (first) device::addUp(*c.stream, y, others, fewer);
  }
  static void forward(const Call& c) {
    const auto next = static_cast<std::int64_t>(c.draw.minibatch) + 1;
    if (awaited.memory && next < awaited.minibatches)
      stand_in::enqueue(static_cast<cudaStream_t>(c.stream->native()), std::make_shared<DataArrives>(next));
    evaluate(c);
    if (last) device::copy(*c.stream, c.frame.slot + lossAt, c.frame.slot + outAt, sizeof(float));
  }
  static void backwardInput(const Call& c) {
    const float* const out =
        last ? at(c.frame.slot, targetAt) : reinterpret_cast<const float*>(c.frame.edges[gradientFromRight]);
    const float* const terms[] = {at(c.frame.slot, outAt), out, input(c)};
    device::addUp(*c.stream, at(c.gradients, 0), terms, floats);
    const float* const small[] = {at(c.gradients, 0), at(c.frame.slot, first ? uAt : outAt)};
    device::addUp(*c.stream, at(c.gradients, 0), small, fewer);
    const float* const scaled[] = {at(c.gradients, 0), at(c.frame.slot, scaleAt)};
    if (last) device::addUp(*c.stream, at(c.gradients, 0), scaled, 1);
    if (!first) device::copy(*c.stream, c.frame.edges[gradientToLeft], out, block);
  }
  static void backwardWeight(const Call& c) { c.stream->bucket(0); }

  static inline const Stage stage = {
      .index = Index,
      .count = Count,
      .model = "sums.onnx",
      .modelHash = "0000",
      .bytes = {.weights = block,
                .state = 0,
                .gradients = block,
                .slot = slotBytes,
                .handover = 0,
                .scratch = 0,
                .workspace = 0,
                .dataStaging = !Staged ? 0 : (first ? 2 * block : 0) + (last ? block : 0)},
      .parameters = parameters,
      .gradients = gradients,
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

template <bool Staged, int... Index>
std::vector<const Stage*> stagesOf(std::integer_sequence<int, Index...>) {
  return {&SumStage<Index, sizeof...(Index), Staged>::stage...};
}
template <bool Staged>
std::vector<const Stage*> stagesOf(std::size_t count) {
  switch (count) {
  case 1: return stagesOf<Staged>(std::make_integer_sequence<int, 1>());
  case 2: return stagesOf<Staged>(std::make_integer_sequence<int, 2>());
  case 3: return stagesOf<Staged>(std::make_integer_sequence<int, 3>());
  default: return stagesOf<Staged>(std::make_integer_sequence<int, 4>());
  }
}

Training training() {
  Training result;
  result.optimizer = OptimizerKind::sgd;
  result.learningRate = 0.0625;
  result.lossScale = 4;
  return result;
}

struct Case {
  const char* name;
  const char* kind;
  std::vector<int> replicas, warmup;
  std::int64_t microbatches = 0;
};

void PrintTo(const Case& c, std::ostream* to) {
  *to << c.name;
}

class CudaExecutor : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Schedules, CudaExecutor,
                         testing::Values(Case{"OneStage", "1f1b", {1}, {0}},
                                         Case{"SeveralSlots", "1f1b", {1, 1, 1}, {2, 1, 0}},
                                         Case{"Replicas", "1f1b", {2, 1}, {1, 0}},
                                         Case{"AllForwardsFirst", "gpipe", {1, 1}, {1, 0}, 4},
                                         Case{"StagesOfOneRank", "interleaved:4", {1, 1, 1, 1}, {0, 0, 0, 0}, 2},
                                         Case{"SplitBackward", "zb-v", {1, 1, 1, 1}, {0, 0, 0, 0}, 4}),
                         [](const testing::TestParamInfo<Case>& test) { return test.param.name; });

/// Newest weights after 8 minibatches, the predictions of 3, and the weights after 8 more.
std::vector<std::byte> bytesOf(const Case& c, bool staged, std::uint64_t seed) {
  stand_in::interleave(seed);
  std::vector<pdc::StageShape> stages;
  for (std::size_t s = 0; s < c.replicas.size(); ++s)
    stages.push_back({.replicas = c.replicas[s], .warmup = c.warmup[s]});
  pdc::PipelineShape shape = pdc::straightShape(stages);
  shape.kind = c.kind;
  shape.microbatches = c.microbatches;
  const Schedule schedule = pdc::buildSchedule(shape);
  ThreadRun run;
  run.schedule = &schedule;
  run.stages = staged ? stagesOf<true>(c.replicas.size()) : stagesOf<false>(c.replicas.size());
  run.training = training();
  run.data = &data;
  run.readWeights = readInitial;
  std::vector<std::vector<std::byte>> parts(schedule.ranks.size());
  const bool ended = run.run([&](Executor& executor, int rank) -> Status {
    std::vector<std::byte>& part = parts[static_cast<std::size_t>(rank)];
    auto addWeights = [&] {
      for (const HostedStage& hosted : executor.hosted()) {
        const std::byte* weights = hosted.versions.at(hosted.versions.newest());
        part.insert(part.end(), weights, weights + block);
      }
    };
    if (Status status = executor.train(0, 8); !status) return status;
    addWeights();
    Executor::Predicted predicted = [&](const HostedStage& hosted, std::int64_t, const std::byte* slot) -> Status {
      if (hosted.stage->outputs.empty()) return {};
      for (std::size_t offset : {outAt, targetAt}) part.insert(part.end(), slot + offset, slot + offset + block);
      return {};
    };
    if (Status status = executor.evaluate(3, data, predicted); !status) return status;
    if (Status status = executor.train(8, 8); !status) return status;
    addWeights();
    return {};
  });
  EXPECT_TRUE(ended);
  std::vector<std::byte> bytes;
  for (const std::vector<std::byte>& part : parts) bytes.insert(bytes.end(), part.begin(), part.end());
  return bytes;
}

TEST_P(CudaExecutor, EveryOrderOfStreamsTrainsTheBitsOfDataInTheirStream) {
  const std::vector<std::byte> expected = bytesOf(GetParam(), /*staged=*/false, 0);
  for (std::uint64_t seed = 0; seed < 100; ++seed)
    ASSERT_EQ(bytesOf(GetParam(), /*staged=*/true, seed), expected) << "seed " << seed;
}

/// Trains minibatches each of which ends when the data of the next has come to the device.
Status trainAwaiting(bool staged) {
  stand_in::setPatience(1000);
  const Schedule schedule = pdc::buildSchedule(pdc::straightShape({{}}));
  const std::vector<const Stage*> stages = staged ? stagesOf<true>(1) : stagesOf<false>(1);
  const Training sgd = training();
  const auto transports = makeThreadTransports(1);
  Communicator communicator(*transports[0]);
  Executor executor({.schedule = &schedule,
                     .stages = stages,
                     .training = &sgd,
                     .communicator = &communicator,
                     .data = &data,
                     .recordsPhases = false});
  if (Status status = executor.prepare(); !status) return status;
  if (Status status = executor.setWeights(readInitial); !status) return status;
  const HostedStage& hosted = executor.hosted()[0];
  awaited = {staged ? hosted.data.memory : hosted.slots[0].memory, 6};
  Status status = executor.train(0, awaited.minibatches);
  awaited = {};
  return status;
}

TEST(CudaExecutorAlone, DataComesWhileTheMinibatchBeforeIsComputed) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    stand_in::interleave(seed);
    ASSERT_TRUE(trainAwaiting(/*staged=*/true)) << "seed " << seed;
  }
}

TEST(CudaExecutorAlone, DataInTheStreamOfThePhasesComesLater) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(static_cast<void>(trainAwaiting(/*staged=*/false)), "nothing can end");
}

TEST(CudaExecutorAlone, RefusesAPlaceThatDataDoesNotFill) {
  const Schedule schedule = pdc::buildSchedule(pdc::straightShape({{}}));
  Stage stage = *stagesOf<true>(1)[0];
  stage.bytes.dataStaging -= 64;
  ThreadRun run;
  run.schedule = &schedule;
  run.stages = {&stage};
  run.training = training();
  run.data = &data;
  run.readWeights = readInitial;
  EXPECT_FALSE(run.run([](Executor&, int) { return Status(); }));
  EXPECT_EQ(run.statuses[0].message(), "stage 0 has 704 bytes beside its slots for data of 768 bytes");
}

} // namespace
