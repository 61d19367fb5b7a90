// Phases that are recorded as graphs, on the stand-in: what they do is what plain calls do, also where arguments
// change.
#include "StandIn.h"
#include "pdcrt/Device.h"
#include "pdcrt/Replay.h"
#include "pdcrt/kernels/Dropout.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>
#include <vector>

namespace pdcrt {
namespace {

constexpr std::int64_t floats = 64;
constexpr std::size_t bytes = floats * sizeof(float);

/// Memory of the device, with its owner.
struct Block {
  std::byte* memory = device::allocate(bytes);
  Block() = default;
  Block(const Block&) = delete;
  ~Block() { device::release(memory, bytes); }
  float* values() const { return reinterpret_cast<float*>(memory); }
  std::vector<float> read(Stream& q) const {
    std::vector<float> values(floats);
    device::copy(q, values.data(), memory, bytes);
    EXPECT_TRUE(device::wait(q));
    return values;
  }
};

struct Kernels {
  Setup setup;
  Dropout dropout{setup, {.elements = floats, .op = 3, .ratio = 0.5}};
};

/// slot = slot + weights.
void add(const Call& c) {
  auto* slot = reinterpret_cast<float*>(c.frame.slot);
  const float* const terms[] = {slot, reinterpret_cast<const float*>(c.weights)};
  device::addUp(*c.stream, slot, terms, floats);
}
/// slot = dropout(weights), its mask in the scratch.
void drop(const Call& c) {
  static_cast<const Kernels*>(c.kernels)->dropout.forward(*c.stream, c.draw, View<const float>(c.weights, 0),
                                                          View<float>(c.frame.slot, 0),
                                                          View<std::uint8_t>(c.scratch, 0));
}
/// Takes the number of the minibatch from the host, as a kernel with a bug would.
void fillByValue(const Call& c) {
  device::store(*c.stream, reinterpret_cast<std::uint64_t*>(c.frame.slot), c.draw.minibatch);
}
/// As a kernel whose launch fails while it is recorded: the second time.
void failsWhenRecorded(const Call&) {
  static int calls = 0;
  if (++calls == 2) throw std::runtime_error("a launch has failed");
}
void waits(const Call& c) {
  static_cast<void>(device::wait(*c.stream));
}

class CudaReplay : public testing::Test {
protected:
  void SetUp() override { device::use(0); }
  void TearDown() override { device::close(q); }
  Call call(const Block& weights, const Block& slot, std::uint64_t minibatch = 0) {
    return {.kernels = &kernels,
            .weights = weights.memory,
            .state = nullptr,
            .gradients = nullptr,
            .handover = nullptr,
            .scratch = scratch.memory,
            .frame = {.slot = slot.memory, .edges = nullptr},
            .draw = {.seed = 5, .minibatch = minibatch},
            .stream = &q};
  }
  /// Whether four minibatches of `phase`, replayed, have the random numbers of plain calls.
  bool drawsAsPlain(void (*phase)(const Call&)) {
    const Block weights, slot, plain;
    const std::vector<float> ones(floats, 1);
    device::copy(q, weights.memory, ones.data(), bytes);
    Replays replays;
    for (std::uint64_t minibatch = 1; minibatch <= 4; ++minibatch) {
      replays.run(phase, call(weights, slot, minibatch), 0, 0);
      phase(call(weights, plain, minibatch));
      if (slot.read(q) != plain.read(q)) return false;
    }
    return true;
  }

  Kernels kernels;
  Block scratch;
  Stream q = device::openStream();
};

/// Beside the recording, one kernel that stores the number.
TEST_F(CudaReplay, TheNumberOfTheMinibatchIsStoredForWhoDraws) {
  for (const auto& [phase, expected] : {std::pair(&add, 1u), {&drop, 2u}}) {
    const Block weights, slot;
    Replays replays;
    for (std::uint64_t minibatch = 1; minibatch <= 3; ++minibatch) {
      ASSERT_TRUE(device::wait(q));
      replays.run(phase, call(weights, slot, minibatch), 0, 0);
    }
    EXPECT_EQ(stand_in::pending(), expected);
    ASSERT_TRUE(device::wait(q));
  }
}

TEST_F(CudaReplay, EachCombinationOfMemoryHasARecordingOfItsOwn) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    stand_in::interleave(seed);
    const Block weights[2], slots[2];
    const std::vector<float> ones(floats, 1), tens(floats, 10);
    device::copy(q, weights[0].memory, ones.data(), bytes);
    device::copy(q, weights[1].memory, tens.data(), bytes);
    Replays replays;
    for (int round = 0; round < 4; ++round)
      for (const Block& w : weights)
        for (const Block& slot : slots) replays.run(add, call(w, slot), 0, 0);
    for (const Block& slot : slots) ASSERT_EQ(slot.read(q), std::vector<float>(floats, 44)) << "seed " << seed;
    ASSERT_EQ(replays.count(), 4u);
  }
}

TEST_F(CudaReplay, RandomNumbersAreThoseOfTheMinibatch) {
  EXPECT_TRUE(drawsAsPlain(drop));
  EXPECT_FALSE(drawsAsPlain(fillByValue));
}

TEST_F(CudaReplay, DisabledItCalls) {
  const Block weights, slot;
  Replays replays;
  replays.enable(false);
  for (int i = 0; i < 3; ++i) replays.run(add, call(weights, slot), 0, 0);
  EXPECT_EQ(replays.count(), 0u);
}

TEST_F(CudaReplay, APhaseThatWaitsForTheDeviceIsFound) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const Block weights, slot;
  Replays replays;
  replays.run(waits, call(weights, slot), 0, 0);
  EXPECT_DEATH(replays.run(waits, call(weights, slot), 0, 0), "cudaStreamSynchronize while a stream is captured");
}

TEST_F(CudaReplay, MemoryComesAndGoesInOtherThreadsMeanwhile) {
  const Block weights;
  const auto record = [&] {
    device::use(0);
    Stream stream = device::openStream();
    for (int round = 0; round < 200; ++round) {
      const Block slot;
      Replays replays; // the first call is plain, the second is recorded
      for (int minibatch = 0; minibatch < 2; ++minibatch) {
        Call one = call(weights, slot);
        one.stream = &stream;
        replays.run(add, one, 0, 0);
      }
    }
    device::close(stream);
  };
  std::thread first(record), second(record);
  first.join();
  second.join();
}

TEST_F(CudaReplay, AnErrorEndsTheRecording) {
  const Block weights, slot;
  Replays replays;
  replays.run(failsWhenRecorded, call(weights, slot), 0, 0);
  EXPECT_THROW(replays.run(failsWhenRecorded, call(weights, slot), 0, 0), std::runtime_error);
  EXPECT_TRUE(device::wait(q));
}

TEST_F(CudaReplay, WithoutMemoryForGraphsPhasesAreCalled) {
  const Block weights, slot;
  const std::vector<float> ones(floats, 1);
  device::copy(q, weights.memory, ones.data(), bytes);
  Replays replays;
  stand_in::failGraphs(true);
  for (int i = 0; i < 3; ++i) EXPECT_NO_THROW(replays.run(add, call(weights, slot), 0, 0));
  stand_in::failGraphs(false);
  EXPECT_EQ(slot.read(q), std::vector<float>(floats, 3));
}

TEST_F(CudaReplay, AnAllocationThatFailsDoesNotFailTheNextLaunch) {
  EXPECT_EQ(device::allocate(std::size_t{1} << 40), nullptr);
  const Block number;
  EXPECT_NO_THROW(device::store(q, reinterpret_cast<std::uint64_t*>(number.memory), 1));
  EXPECT_TRUE(device::wait(q));
}

} // namespace
} // namespace pdcrt
