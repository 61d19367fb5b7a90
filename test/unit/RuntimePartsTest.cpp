// LINK: pdcrt pdcSchedule
// The parts of a hosted stage, each alone: edges, gradients, data, losses.
#include "LinearStages.h"

#include "exec/Edges.h"
#include "exec/GradientFlow.h"
#include "exec/LossRing.h"
#include "pdc/Schedule/PipelineShape.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

using namespace pdcrt;

namespace {

/// Stages 0 and 1 of the linear model, a flushing schedule of `m` microbatches.
Schedule twoStages(int replicas, std::int64_t m, Route route = {}) {
  pdc::PipelineShape shape = pdc::straightShape({{.replicas = replicas, .warmup = 1, .route = std::move(route)}, {}});
  shape.microbatches = m;
  return pdc::buildSchedule(shape);
}

Arena arenaOf(const Schedule& schedule, const Stage& stage, std::size_t trainedBytes = 1 << 10) {
  const ArenaStage size = {
      .stage = stage.index, .bytes = stage.bytes, .edges = stage.edges, .shared = {}, .trainedBytes = trainedBytes};
  return layoutArena(schedule, std::span(&size, 1));
}

struct Told : RunObserver {
  void loss(int stage, std::int64_t minibatch, double value) override { losses.push_back({stage, minibatch, value}); }
  struct Loss {
    int stage;
    std::int64_t minibatch;
    double value;
    friend bool operator==(const Loss&, const Loss&) = default;
  };
  std::vector<Loss> losses;
};

// ---- Losses ----

const OutputRow lossRow = {OutputKind::loss, "loss", Element::f32, {}, 4};

TEST(LossRing, TellsLossesInOrderAndAllBeforeItIsOverfull) {
  LossRing ring;
  ring.resize(2);
  Stream q;
  Told told;
  float slot[2] = {0, 0};
  for (int b = 0; b < 3; ++b) {
    slot[1] = static_cast<float>(b) + 0.5F;
    ASSERT_TRUE(ring.begin(q, 7, lossRow, 100 + b, reinterpret_cast<const std::byte*>(slot), &told));
  }
  EXPECT_EQ(told.losses, (std::vector<Told::Loss>{{7, 100, 0.5}, {7, 101, 1.5}})) << "the third had no room before";
  ASSERT_TRUE(ring.tell(/*all=*/true, &told));
  EXPECT_EQ(told.losses.size(), 3u);
  ASSERT_TRUE(ring.tell(/*all=*/true, &told));
  EXPECT_EQ(told.losses.size(), 3u) << "none is told twice";
}

TEST(LossRing, ALossThatIsNotFiniteEndsTheRun) {
  LossRing ring;
  ring.resize(1);
  Stream q;
  const float slot[2] = {0, std::numeric_limits<float>::quiet_NaN()};
  ASSERT_TRUE(ring.begin(q, 0, lossRow, 5, reinterpret_cast<const std::byte*>(slot), nullptr));
  const Status status = ring.tell(/*all=*/true, nullptr);
  EXPECT_EQ(status.code(), Exit::lossNotFinite);
  EXPECT_EQ(status.message(), "the loss of minibatch 5 is nan");
}

// ---- Data ----

struct Counting : BatchSource {
  Status read(const DataRow&, std::int64_t minibatch, std::byte* destination) override {
    asked.push_back(minibatch);
    std::memcpy(destination, &minibatch, sizeof minibatch);
    return {};
  }
  std::vector<std::int64_t> asked;
};

TEST(DataIn, WritesTheMinibatchOfTheTrainingAndTheLossScale) {
  const Stage& last = *linear::linearStages(2)[1];
  const Schedule schedule = twoStages(1, 2);
  DataIn data;
  DataPlace place;
  Stream q;
  Counting source;
  std::vector<std::byte> slot(last.bytes.slot);
  ASSERT_TRUE(data.read(q, schedule, {.first = 40, .minibatches = 9},
                        {.stage = last,
                         .place = place,
                         .slot = slot.data(),
                         .minibatch = 3,
                         .lossScale = 512,
                         .source = &source,
                         .trains = true}));
  EXPECT_EQ(source.asked, (std::vector<std::int64_t>{43})) << "the last stage reads its target only";
  float scale = 0;
  std::memcpy(&scale, slot.data() + linear::scaleAt, sizeof scale);
  EXPECT_EQ(scale, 512);
}

TEST(DataIn, WithoutASourceOnlyTheLossScaleIsWritten) {
  const Stage& last = *linear::linearStages(2)[1];
  DataIn data;
  DataPlace place;
  Stream q;
  std::vector<std::byte> slot(last.bytes.slot, std::byte{9});
  ASSERT_TRUE(data.read(q, twoStages(1, 2), {},
                        {.stage = last,
                         .place = place,
                         .slot = slot.data(),
                         .minibatch = 0,
                         .lossScale = 2,
                         .source = nullptr,
                         .trains = false}));
  EXPECT_EQ(slot[linear::targetAt], std::byte{9});
  EXPECT_NE(slot[linear::scaleAt + 3], std::byte{9});
}

// ---- Edges ----

TEST(Edges, SendToTheReplicaOfTheMinibatchFromItsBuffer) {
  // Stage 1 sends gradients of minibatches 0, 1 to replica 0 of stage 0, and of 2 to replica 1.
  const Schedule schedule = twoStages(2, 3, Route({0, 0, 1}));
  const Stage& last = *linear::linearStages(2)[1];
  const Places places(schedule);
  const Arena arena = arenaOf(schedule, last);
  std::vector<std::byte> memory(arena.bytes);
  std::vector<std::byte*> slots(static_cast<std::size_t>(schedule.stages[1].slots), memory.data());
  Edges edges;
  edges.prepare(schedule, places, {1, 0}, /*member=*/0, last, arena.hosts[0], memory.data(), slots);
  ASSERT_EQ(edges.count(), 2u);

  std::vector<int> peers;
  std::vector<const std::byte*> from;
  for (std::int64_t b = 0; b < 4; ++b) {
    const Action action{ActionKind::sendBackward, false, 1, 0, b};
    TransferGroup& transfers = edges.transfersOf(action);
    edges.fill(action, nullptr, transfers);
    ASSERT_EQ(transfers.used, 1u);
    EXPECT_TRUE(transfers.parts[0].outgoing);
    EXPECT_EQ(transfers.parts[0].bytes, linear::valueBytes);
    EXPECT_EQ(transfers.parts[0].traffic, Traffic::backward);
    EXPECT_EQ(transfers.parts[0].data, edges.buffersOf(b)[1]) << "what the phase of the minibatch wrote";
    peers.push_back(transfers.parts[0].peer);
    from.push_back(transfers.parts[0].data);
  }
  EXPECT_EQ(peers, (std::vector<int>{places.process(Host{0, 0}), places.process(Host{0, 0}), places.process(Host{0, 1}),
                                     places.process(Host{0, 0})}));
  EXPECT_EQ(from[0], from[2]) << "a ring of two buffers";
  EXPECT_NE(from[0], from[1]);
}

TEST(Edges, ValuesThatLeaveLieInTheSlot) {
  const Schedule schedule = twoStages(1, 3);
  const Stage& first = *linear::linearStages(2)[0];
  const Arena arena = arenaOf(schedule, first);
  std::vector<std::byte> memory(arena.bytes), one(1024), two(1024);
  Edges edges;
  edges.prepare(schedule, Places(schedule), {0, 0}, /*member=*/0, first, arena.hosts[0], memory.data(),
                {one.data(), two.data()});
  for (std::int64_t b : {0, 1, 2}) {
    const Action action{ActionKind::sendForward, false, 0, 1, b};
    TransferGroup& transfers = edges.transfersOf(action);
    edges.fill(action, nullptr, transfers);
    EXPECT_EQ(transfers.parts[0].data, (b % 2 == 0 ? one : two).data() + linear::outAt);
    EXPECT_EQ(edges.buffersOf(b)[0], nullptr);
  }
}

// ---- Gradients ----

/// Stage 0 of the linear model at each of its replicas, with gradients that the test writes.
struct Flows {
  Flows(int replicas, std::int64_t m, Route route = {}) : schedule(twoStages(replicas, m, std::move(route))) {
    training.optimizer = OptimizerKind::sgd;
    run.minibatches = 100;
    transports = makeThreadTransports(places.processes());
    one.resize(static_cast<std::size_t>(replicas));
    for (int r = 0; r < replicas; ++r) {
      One& o = at(r);
      o.communicator = std::make_unique<Communicator>(*transports[static_cast<std::size_t>(r)]);
      o.posting = std::make_unique<Posting>(*o.communicator, nullptr);
      o.posting->use(o.q);
      o.optimizer = std::make_unique<Optimizer>(training, stage);
      const Arena arena = arenaOf(schedule, stage, o.optimizer->trainedBytes());
      o.memory.resize(arena.bytes);
      o.tied.prepare(schedule, places, {0, r}, /*member=*/0, stage, arena.hosts[0], o.memory.data());
      o.flow.prepare({.schedule = &schedule,
                      .places = &places,
                      .training = &training,
                      .host = {0, r},
                      .stage = &stage,
                      .optimizer = o.optimizer.get(),
                      .tied = &o.tied,
                      .posting = o.posting.get(),
                      .run = &run},
                     arena.hosts[0], o.memory.data());
    }
  }
  struct One {
    std::unique_ptr<Communicator> communicator;
    std::unique_ptr<Posting> posting;
    Stream q;
    std::unique_ptr<Optimizer> optimizer;
    std::vector<std::byte> memory;
    TiedParameters tied;
    GradientFlow flow;
  };
  One& at(int r) { return one[static_cast<std::size_t>(r)]; }

  /// A backward of minibatch b at replica r, whose gradients of W are all `value`.
  Status backward(int r, std::int64_t b, float value) {
    const std::int64_t update = b / schedule.minibatchesPerUpdate + 1;
    if (Status status = at(r).flow.claim({ActionKind::backward, false, 0, -1, b}, update); !status) return status;
    for (bool withInput : {true, false}) {
      GradientFlow::Half half(at(r).flow, update, withInput);
      if (!withInput)
        for (int i = 0; i < linear::width * linear::width; ++i)
          reinterpret_cast<float*>(half.memory() + linear::dWeightAt)[i] = value;
      half.finish();
    }
    return {};
  }
  float weightGradient(int r, std::int64_t update) {
    return *reinterpret_cast<const float*>(at(r).flow.memory(update) + linear::dWeightAt);
  }

  const Stage& stage = *linear::linearStages(2)[0];
  Schedule schedule;
  Places places{schedule};
  Training training;
  RunSpan run;
  std::vector<std::unique_ptr<Transport>> transports;
  std::vector<One> one;
};

TEST(GradientFlow, AddsTheMinibatchesOfAnUpdate) {
  Flows flows(1, 3);
  for (int b = 0; b < 3; ++b) ASSERT_TRUE(flows.backward(0, b, static_cast<float>(b + 1)));
  ASSERT_TRUE(flows.at(0).flow.finishFor({ActionKind::update, false, 0, -1, 1}));
  EXPECT_EQ(flows.weightGradient(0, 1), 6);
  flows.at(0).flow.updated(1);
  ASSERT_TRUE(flows.backward(0, 3, 10));
  EXPECT_EQ(flows.weightGradient(0, 2), 10) << "the first minibatch of an update writes its set";
}

TEST(GradientFlow, RefusesGradientsOfTheNextUpdateBeforeThisOneIsMade) {
  Flows flows(1, 2);
  ASSERT_TRUE(flows.backward(0, 0, 1));
  const Status status = flows.backward(0, 2, 1);
  EXPECT_EQ(status.message(), "action 0B2 overwrites the gradients of update 1, which is not made");
}

TEST(GradientFlow, AddsTheReplicasThatHaveAMinibatch) {
  // The last update of the run has minibatch 3 only, which is replica 1's.
  Flows flows(2, 2, Route({0, 0, 1, 1}));
  flows.run.minibatches = 3;
  ASSERT_TRUE(flows.backward(0, 0, 1));
  ASSERT_TRUE(flows.backward(0, 1, 2));
  for (std::int64_t update : {1, 2}) {
    if (update == 2) {
      ASSERT_TRUE(flows.backward(1, 2, 7));
    }
    const Action reduce{ActionKind::allReduce, false, 0, -1, update};
    Action await = reduce;
    await.wait = true;
    for (int r : {0, 1}) ASSERT_TRUE(flows.at(r).flow.allReduce(reduce, nullptr));
    for (int r : {0, 1}) ASSERT_TRUE(flows.at(r).flow.allReduce(await, nullptr));
    for (int r : {0, 1}) EXPECT_EQ(flows.weightGradient(r, update), update == 1 ? 3 : 7) << "replica " << r;
    for (int r : {0, 1}) flows.at(r).flow.updated(update);
  }
}

TEST(GradientFlow, AnUpdateNeedsTheSumOverTheReplicas) {
  Flows flows(2, 2);
  ASSERT_TRUE(flows.backward(0, 0, 1));
  const Status status = flows.at(0).flow.finishFor({ActionKind::update, false, 0, -1, 1});
  EXPECT_EQ(status.message(), "action 0U1 needs the sum over the replicas");
}

TEST(GradientFlow, ScalesByTheNormAndRefusesWhatIsNotFinite) {
  Flows flows(1, 1);
  flows.training.clipNorm = 1;
  flows.training.clipScope = ClipScope::stage;
  ASSERT_TRUE(flows.backward(0, 0, 3));
  ASSERT_TRUE(flows.at(0).flow.finishFor({ActionKind::update, false, 0, -1, 1}));
  std::optional<double> scale;
  ASSERT_TRUE(flows.at(0).flow.scale(1, 1, /*lossScale=*/2, scale));
  const double norm = 5 * 3 / 2.0; // of 25 values, without the loss scale
  ASSERT_TRUE(scale);
  EXPECT_NEAR(*scale, 1 / (norm + 1e-6) / 2, 1e-12);
  flows.at(0).flow.updated(1);
  ASSERT_TRUE(flows.backward(0, 1, std::numeric_limits<float>::infinity()));
  ASSERT_TRUE(flows.at(0).flow.scale(2, 1, 2, scale));
  EXPECT_FALSE(scale);
}

} // namespace
