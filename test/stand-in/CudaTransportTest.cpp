// Transfers and all-reduces between streams of the stand-in, which go on in an order that a seed draws: what is not
// ordered by an event happens in any order, and is seen.
#include "DeviceBlock.h"
#include "StandIn.h"
#include "collectives/AllReduce.h"
#include "pdcrt/Device.h"
#include "transport/HostTransport.h"
#include "transport/Transport.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <memory>
#include <vector>

namespace pdcrt {
namespace {

void add(Stream& q, const Block& sum, const Block& a, const Block& b) {
  const float* const terms[] = {a.values(), b.values()};
  device::addUp(q, sum.values(), terms, floats);
}

/// How blocks get from rank to rank: copied on the device, or through memory of the host, as over MPI.
enum class Way { device, host };

std::vector<std::unique_ptr<Transport>> makeTransports(int ranks, Way way) {
  auto transports = makeThreadTransports(ranks);
  if (way == Way::host)
    for (auto& transport : transports) transport = makeHostTransport(std::move(transport));
  return transports;
}

class CudaTransport : public testing::TestWithParam<Way> {};
class CudaAllReduce : public testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Device, CudaTransport, testing::Values(Way::device));
INSTANTIATE_TEST_SUITE_P(Host, CudaTransport, testing::Values(Way::host));
INSTANTIATE_TEST_SUITE_P(Device, CudaAllReduce, testing::Values(Way::device));
INSTANTIATE_TEST_SUITE_P(Host, CudaAllReduce, testing::Values(Way::host));

/// What a runtime with a bug would leave out.
enum class Bug { none, missingEvent, wrongStream, reusedSlot };

/// Two ranks with a compute stream each: rank 0 computes k + 2 into a ring of two slots and sends it, rank 1 receives
/// into a ring of two buffers and adds up.
class Pipeline {
public:
  explicit Pipeline(Way way) : transports_(makeTransports(2, way)) {
    device::use(0);
    for (const auto& transport : transports_) communicators_.push_back(std::make_unique<Communicator>(*transport));
    for (int k = 0; k < minibatches; ++k) sources_.push_back(std::make_unique<Block>(0, static_cast<float>(k + 1)));
    for (bool outgoing : {true, false})
      for (int i = 0; i < 2; ++i) {
        TransferGroup& group = outgoing ? sends_[i] : receives_[i];
        group.resize(1);
        group.used = 1;
        group.parts[0].outgoing = outgoing;
        group.parts[0].peer = outgoing ? 1 : 0;
        group.parts[0].data = (outgoing ? slots_ : buffers_)[i].memory();
        group.parts[0].bytes = bytes;
        group.parts[0].inBlocks = true;
      }
  }

  /// The sum that rank 1 gets.
  float run(std::uint64_t seed, Bug bug) {
    stand_in::interleave(seed);
    const Block sum(0);
    Stream first = device::openStream(), second = device::openStream(), other = device::openStream();
    for (int k = 0; k < minibatches; ++k) {
      TransferGroup &send = sends_[k % 2], &receive = receives_[k % 2];
      if (k >= 2) {
        EXPECT_TRUE(communicators_[0]->wait(send));
        if (bug != Bug::reusedSlot) send.precede(first);
      }
      add(first, slots_[k % 2], *sources_[k], one_);
      send.after = bug == Bug::missingEvent ? nullptr : &send.ready;
      send.ready.record(first);
      communicators_[0]->post(send);
      receive.ready.record(second);
      communicators_[1]->post(receive);
      EXPECT_TRUE(communicators_[1]->wait(receive));
      receive.precede(bug == Bug::wrongStream ? other : second);
      add(second, sum, sum, buffers_[k % 2]);
    }
    for (TransferGroup& send : sends_) EXPECT_TRUE(communicators_[0]->wait(send));
    for (Stream* q : {&first, &second, &other}) {
      EXPECT_TRUE(device::wait(*q));
      device::close(*q);
    }
    return sum.value();
  }

  static constexpr int minibatches = 6;
  static constexpr float expected = 6 * 7 / 2 + 6;

private:
  std::vector<std::unique_ptr<Transport>> transports_;
  Block slots_[2] = {Block(0), Block(0)}, buffers_[2] = {Block(0), Block(0)};
  const Block one_{0, 1};
  std::vector<std::unique_ptr<Block>> sources_;
  std::array<TransferGroup, 2> sends_, receives_;
  std::vector<std::unique_ptr<Communicator>> communicators_; // last: ends first
};

TEST_P(CudaTransport, EveryOrderOfStreamsGivesTheSum) {
  Pipeline pipeline(GetParam());
  for (std::uint64_t seed = 0; seed < seeds; ++seed)
    ASSERT_EQ(pipeline.run(seed, Bug::none), Pipeline::expected) << "seed " << seed;
}

/// Whether some seed shows the bug.
bool isFound(Way way, Bug bug) {
  Pipeline pipeline(way);
  for (std::uint64_t seed = 0; seed < seeds; ++seed)
    if (!(pipeline.run(seed, bug) == Pipeline::expected)) return true;
  return false;
}

TEST_P(CudaTransport, AMissingEventIsFound) {
  EXPECT_TRUE(isFound(GetParam(), Bug::missingEvent));
}
TEST_P(CudaTransport, AWaitInTheWrongStreamIsFound) {
  EXPECT_TRUE(isFound(GetParam(), Bug::wrongStream));
}
// Through the host no send is complete before its slot has been read.
TEST(CudaTransportOnDevice, ASlotThatIsReusedTooEarlyIsFound) {
  EXPECT_TRUE(isFound(Way::device, Bug::reusedSlot));
}

TEST_P(CudaTransport, TransfersOfAChannelKeepTheirOrder) {
  constexpr int count = 4;
  const auto transports = makeTransports(2, GetParam());
  device::use(0);
  std::vector<std::unique_ptr<Block>> from, to;
  TransferGroup groups[2];
  for (TransferGroup& group : groups) group.resize(count);
  for (int i = 0; i < count; ++i) {
    from.push_back(std::make_unique<Block>(0, static_cast<float>(i + 1)));
    to.push_back(std::make_unique<Block>(0));
  }
  for (const bool outgoing : {true, false}) {
    TransferGroup& group = groups[outgoing];
    group.used = count;
    for (int i = 0; i < count; ++i) {
      Transfer& part = group.parts[static_cast<std::size_t>(i)];
      part.outgoing = outgoing;
      part.peer = outgoing ? 1 : 0;
      part.data = (outgoing ? from : to)[static_cast<std::size_t>(i)]->memory();
      part.bytes = bytes;
      part.inBlocks = true;
    }
  }
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (const auto& transport : transports) communicators.push_back(std::make_unique<Communicator>(*transport));
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    stand_in::interleave(seed);
    Stream q = device::openStream();
    for (const bool outgoing : {false, true}) {
      groups[outgoing].ready.record(q);
      communicators[outgoing ? 0 : 1]->post(groups[outgoing]);
    }
    for (const bool outgoing : {false, true}) {
      ASSERT_TRUE(communicators[outgoing ? 0 : 1]->wait(groups[outgoing]));
      groups[outgoing].precede(q);
    }
    ASSERT_TRUE(device::wait(q));
    device::close(q);
    for (int i = 0; i < count; ++i) ASSERT_EQ(to[static_cast<std::size_t>(i)]->value(), i + 1) << "seed " << seed;
  }
}

/// Three replicas reduce the same staging place round after round.
TEST_P(CudaAllReduce, EveryOrderOfStreamsGivesTheSum) {
  constexpr int replicas = 3, rounds = 3;
  device::use(0);
  const auto transports = makeTransports(replicas, GetParam());
  std::vector<std::unique_ptr<Block>> gradients, staging, sources;
  std::vector<std::unique_ptr<AllReduce>> works;
  for (int r = 0; r < replicas; ++r) {
    gradients.push_back(std::make_unique<Block>(0));
    staging.push_back(std::make_unique<Block>(0));
    sources.push_back(std::make_unique<Block>(0, static_cast<float>(1 << r)));
    auto group = std::make_shared<ReduceGroup>();
    group->ranks = {0, 1, 2};
    group->self = r;
    group->channel = 1;
    group->segments = {{0, floats}};
    group->staging = staging.back()->memory();
    works.push_back(std::make_unique<AllReduce>(group, std::make_shared<ReduceLane>()));
  }
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (const auto& transport : transports) communicators.push_back(std::make_unique<Communicator>(*transport));
  const Block zero(0);
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    stand_in::interleave(seed);
    std::vector<Stream> streams;
    for (int r = 0; r < replicas; ++r) streams.push_back(device::openStream());
    for (int round = 0; round < rounds; ++round) {
      for (int r = 0; r < replicas; ++r) {
        add(streams[r], *gradients[r], *sources[r], round == 0 ? zero : *gradients[r]);
        works[r]->prepare(gradients[r]->memory());
        works[r]->ready.record(streams[r]);
        communicators[r]->post(*works[r]);
      }
      for (int r = 0; r < replicas; ++r) {
        ASSERT_TRUE(communicators[r]->wait(*works[r]));
        works[r]->precede(streams[r]);
      }
    }
    for (Stream& q : streams) {
      ASSERT_TRUE(device::wait(q));
      device::close(q);
    }
    // After each round all have three times what they had, and 7: 7, 28, 91.
    for (int r = 0; r < replicas; ++r) ASSERT_EQ(gradients[r]->value(), 91) << "seed " << seed;
  }
}

} // namespace
} // namespace pdcrt
