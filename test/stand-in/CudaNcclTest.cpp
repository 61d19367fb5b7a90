// Transport `nccl` on the stand-in, which waits wherever NCCL is allowed to wait, and runs as many kernels of NCCL on a
// device at once as the seed says: one at least.
#include "DeviceBlock.h"
#include "NcclRanks.h"
#include "StandIn.h"
#include "collectives/AllReduce.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cmath>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

namespace pdcrt {
namespace {

void add(Stream& q, const Block& sum, const Block& a, const Block& b) {
  const float* const terms[] = {a.values(), b.values()};
  device::addUp(q, sum.values(), terms, floats);
}

constexpr int forth = 7, back = 8; // channels

std::vector<NcclLane> twoLanes() {
  return {{"values of edge 0 > 1", {0, 1}, {{0, 1, forth}}, 100},
          {"gradients of edge 0 > 1", {0, 1}, {{1, 0, back}}, 101}};
}

/// What a runtime with a bug would do.
enum class Bug { none, missingEvent, reusedSlot };

/// Rank 0 computes k + 2 into a ring of two slots and sends it, rank 1 receives into a ring of two buffers and adds up.
class Pipeline {
public:
  Pipeline() : ranks_(2, twoLanes()) {
    for (std::size_t k = 1; k <= minibatches; ++k)
      sources_.push_back(std::make_unique<Block>(0, static_cast<float>(k)));
    for (std::size_t i = 0; i < 2; ++i) {
      set(sends_[i], true, 1, forth, slots_[i]);
      set(receives_[i], false, 0, forth, buffers_[i]);
    }
  }

  /// The sum that rank 1 gets.
  float run(std::uint64_t seed, Bug bug) {
    stand_in::interleave(seed);
    Block sum(1);
    device::use(0);
    Stream first = device::openStream();
    device::use(1);
    Stream second = device::openStream();
    for (std::size_t k = 0; k < minibatches; ++k) {
      TransferGroup &send = sends_[k % 2], &receive = receives_[k % 2];
      device::use(0);
      if (k >= 2) {
        EXPECT_TRUE(ranks_.communicators[0]->wait(send));
        if (bug != Bug::reusedSlot) send.precede(first);
      }
      add(first, slots_[k % 2], *sources_[k], one_);
      send.after = bug == Bug::missingEvent ? nullptr : &send.ready;
      send.ready.record(first);
      ranks_.communicators[0]->post(send);
      device::use(1);
      receive.ready.record(second);
      ranks_.communicators[1]->post(receive);
      EXPECT_TRUE(ranks_.communicators[1]->wait(receive));
      receive.precede(second);
      add(second, sum, sum, buffers_[k % 2]);
    }
    for (TransferGroup& send : sends_) EXPECT_TRUE(ranks_.communicators[0]->wait(send));
    for (Stream* q : {&first, &second}) {
      EXPECT_TRUE(device::wait(*q));
      device::close(*q);
    }
    return sum.value();
  }

  static constexpr std::size_t minibatches = 6;
  static constexpr float expected = 6 * 7 / 2 + 6;

private:
  std::array<TransferGroup, 2> sends_, receives_;
  NcclRanks ranks_; // ends before the transfers
  Block slots_[2] = {Block(0), Block(0)}, buffers_[2] = {Block(1), Block(1)};
  const Block one_{0, 1};
  std::vector<std::unique_ptr<Block>> sources_;
};

TEST(CudaNccl, EveryOrderOfStreamsGivesTheSum) {
  Pipeline pipeline;
  for (std::uint64_t seed = 0; seed < seeds; ++seed)
    ASSERT_EQ(pipeline.run(seed, Bug::none), Pipeline::expected) << "seed " << seed;
}

bool isFound(Bug bug) {
  Pipeline pipeline;
  for (std::uint64_t seed = 0; seed < seeds; ++seed)
    if (!(pipeline.run(seed, bug) == Pipeline::expected)) return true;
  return false;
}

TEST(CudaNccl, AMissingEventIsFound) {
  EXPECT_TRUE(isFound(Bug::missingEvent));
}
TEST(CudaNccl, ASlotThatIsReusedTooEarlyIsFound) {
  EXPECT_TRUE(isFound(Bug::reusedSlot));
}

/// Rank 0 sends, then receives; rank 1 receives, then sends, or the other way round. What the ranks say then.
std::vector<Status> exchange(std::uint64_t seed, bool swapped) {
  stand_in::interleave(seed);
  TransferGroup groups[2][2];
  NcclRanks ranks(2, twoLanes());
  const Block values[2] = {Block(0, 1), Block(1, 2)}, received[2] = {Block(0), Block(1)};
  for (int rank : {0, 1}) {
    const auto r = static_cast<std::size_t>(rank);
    set(groups[rank][0], true, 1 - rank, rank == 0 ? forth : back, values[rank]);
    set(groups[rank][1], false, 1 - rank, rank == 0 ? back : forth, received[rank]);
    const bool sendFirst = rank == 0 || swapped;
    for (bool send : {sendFirst, !sendFirst}) {
      groups[rank][send ? 0 : 1].after = nullptr;
      ranks.communicators[r]->post(groups[rank][send ? 0 : 1]);
    }
  }
  std::vector<Status> statuses;
  for (int rank : {0, 1}) {
    device::use(rank);
    Stream q = device::openStream();
    for (TransferGroup& group : groups[rank])
      if (ranks.communicators[static_cast<std::size_t>(rank)]->wait(group)) group.precede(q);
    EXPECT_TRUE(device::wait(q));
    device::close(q);
  }
  for (int rank : {0, 1}) {
    const Transport& transport = *ranks.transports[static_cast<std::size_t>(rank)];
    statuses.push_back(transport.aborted() ? transport.failure() : Status());
    if (statuses.back() && !transport.aborted()) {
      EXPECT_EQ(received[rank].value(), rank == 0 ? 2 : 1);
    }
  }
  return statuses;
}

TEST(CudaNccl, OneOrderOnBothRanksEnds) {
  for (std::uint64_t seed = 0; seed < 100; ++seed)
    for (const Status& status : exchange(seed, false)) ASSERT_TRUE(status) << seed << ": " << status.message();
}

// A device that runs one kernel of NCCL at a time: the seed's remainder by 3 is 0.
TEST(CudaNccl, AnOrderThatIsSwappedOnOneRankIsFound) {
  stand_in::setPatience(500);
  const std::vector<Status> statuses = exchange(3, true);
  stand_in::setPatience(30'000);
  // Who looks first sees the circle and gives up; the other one may see that its peer has gone before it looks.
  bool told = false;
  for (const Status& status : statuses) {
    if (status) continue;
    const std::string& message = status.message();
    EXPECT_NE(message.find("NCCL has failed on rank "), std::string::npos) << message;
    EXPECT_NE(message.find(" of edge 0 > 1, with rank "), std::string::npos) << message;
    told = told || message.find("a circle of waits, nothing moves any more") != std::string::npos;
  }
  EXPECT_TRUE(told) << statuses[0].message() << "; " << statuses[1].message();
}

TEST(CudaNccl, WithAnOlderNcclAllLanesHaveOneStream) {
  setenv("PDC_STAND_IN_NCCL", "22000", 1);
  for (std::uint64_t seed = 0; seed < 20; ++seed)
    for (const Status& status : exchange(seed, false)) ASSERT_TRUE(status) << seed << ": " << status.message();
  unsetenv("PDC_STAND_IN_NCCL");
}

TEST(CudaNccl, APeerThatIsGoneEndsTheWait) {
  TransferGroup send;
  NcclRanks ranks(2, twoLanes());
  const Block value(0, 1);
  stand_in::killDevice(1);
  set(send, true, 1, forth, value);
  send.after = nullptr;
  ranks.communicators[0]->post(send);
  device::use(0);
  Stream q = device::openStream();
  if (ranks.communicators[0]->wait(send)) send.precede(q);
  EXPECT_TRUE(device::wait(q)); // nothing is left to wait for
  device::close(q);
  while (!ranks.transports[0]->aborted()) std::this_thread::yield();
  EXPECT_EQ(ranks.transports[0]->failure().code(), Exit::again);
  // Both lanes fail; which is looked at first when they do is a matter of chance.
  const std::string said = ranks.transports[0]->failure().message(),
                    ofEdge = " of edge 0 > 1, with rank 1: remote process exited";
  EXPECT_TRUE(said.find("NCCL has failed on rank 0, values" + ofEdge) == 0 ||
              said.find("NCCL has failed on rank 0, gradients" + ofEdge) == 0)
      << said;
}

TEST(CudaNccl, ARankThatHasEndedWaitsForTheReceivers) {
  TransferGroup send, receive;
  NcclRanks ranks(2, twoLanes());
  const Block value(0, 1), buffer(1);
  set(send, true, 1, forth, value);
  set(receive, false, 0, forth, buffer);
  send.after = receive.after = nullptr;
  ranks.communicators[0]->post(send);
  EXPECT_TRUE(ranks.communicators[0]->wait(send));
  std::thread end([&] { ranks.communicators[0].reset(); });
  std::this_thread::sleep_for(std::chrono::seconds(4)); // what rank 1 computes
  ranks.communicators[1]->post(receive);
  EXPECT_TRUE(ranks.communicators[1]->wait(receive));
  device::use(1);
  Stream q = device::openStream();
  receive.precede(q);
  EXPECT_TRUE(device::wait(q));
  device::close(q);
  end.join();
  EXPECT_EQ(buffer.value(), 1);
  EXPECT_FALSE(ranks.transports[1]->aborted());
}

TEST(CudaNccl, ARankThatStopsEarlyLeavesNothingOnItsDevice) {
  TransferGroup receive;
  const Block buffer(1);
  {
    NcclRanks ranks(2, twoLanes());
    set(receive, false, 0, forth, buffer);
    ranks.communicators[1]->post(receive);
    EXPECT_TRUE(ranks.communicators[1]->wait(receive)); // it is in the stream, and rank 0 sends nothing
    EXPECT_GT(stand_in::pending(), 0u);
    ranks.transports[1]->abort(75);
  }
  EXPECT_EQ(stand_in::pending(), 0u);
}

/// Fails as a sum on the device would.
struct FailingWork : Work {
  bool advance(Transport&) override { throw std::runtime_error("the launch of a sum has failed"); }
};

TEST(CudaNccl, WhatFailsInTheCommunicationThreadIsToldToWhoeverWaits) {
  FailingWork work;
  const auto transports = makeThreadTransports(1);
  Communicator communicator(*transports[0]);
  communicator.post(work);
  EXPECT_THROW(communicator.wait(work), std::runtime_error);
}

TEST(CudaNccl, ARankSendsToItself) {
  NcclRanks ranks(1, {{"values of edge 0 > 1", {0}, {{0, 0, forth}}, 100}});
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    stand_in::interleave(seed);
    Block from(0, 5), to(0);
    TransferGroup send, receive;
    set(send, true, 0, forth, from);
    set(receive, false, 0, forth, to);
    send.after = receive.after = nullptr;
    ranks.communicators[0]->post(seed % 2 ? send : receive);
    ranks.communicators[0]->post(seed % 2 ? receive : send);
    Stream q = device::openStream();
    for (TransferGroup* group : {&send, &receive}) {
      ASSERT_TRUE(ranks.communicators[0]->wait(*group));
      group->precede(q);
    }
    ASSERT_TRUE(device::wait(q));
    device::close(q);
    ASSERT_EQ(to.value(), 5) << "seed " << seed;
  }
}

/// Three replicas reduce the same staging place round after round.
TEST(CudaNccl, AllReducesGiveTheSumInEveryOrderOfStreams) {
  constexpr int replicas = 3, rounds = 3;
  NcclLane lane{"replicas of stage 0", {0, 1, 2}, {}, 100};
  for (int a = 0; a < replicas; ++a)
    for (int b = 0; b < replicas; ++b)
      for (int channel = 1; channel <= 2 && a != b; ++channel) lane.links.push_back({a, b, channel});
  std::vector<std::unique_ptr<AllReduce>> works;
  std::vector<std::unique_ptr<Block>> gradients, staging, sources;
  NcclRanks ranks(replicas, {lane});
  for (int r = 0; r < replicas; ++r) {
    gradients.push_back(std::make_unique<Block>(r));
    staging.push_back(std::make_unique<Block>(r));
    sources.push_back(std::make_unique<Block>(r));
    auto group = std::make_shared<ReduceGroup>();
    group->ranks = {0, 1, 2};
    group->self = r;
    group->channel = 1;
    group->segments = {{0, floats}};
    group->staging = staging.back()->memory();
    works.push_back(std::make_unique<AllReduce>(group, std::make_shared<ReduceLane>()));
  }
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    stand_in::interleave(seed);
    std::vector<Stream> streams;
    for (int r = 0; r < replicas; ++r) {
      gradients[static_cast<std::size_t>(r)]->fill(static_cast<float>(1 << 4 * r));
      device::use(r);
      streams.push_back(device::openStream());
    }
    for (int round = 0; round < rounds; ++round) {
      for (std::size_t r = 0; r < replicas; ++r) {
        device::use(static_cast<int>(r));
        works[r]->prepare(gradients[r]->memory());
        works[r]->ready.record(streams[r]);
        ranks.communicators[r]->post(*works[r]);
      }
      for (std::size_t r = 0; r < replicas; ++r) {
        ASSERT_TRUE(ranks.communicators[r]->wait(*works[r]));
        works[r]->precede(streams[r]);
        device::use(static_cast<int>(r));
        add(streams[r], *gradients[r], *gradients[r], *sources[r]);
      }
    }
    for (Stream& q : streams) {
      ASSERT_TRUE(device::wait(q));
      device::close(q);
    }
    for (const auto& gradient : gradients) ASSERT_EQ(gradient->value(), 9 * 0x111) << "seed " << seed;
  }
}

/// What the ranks of a pipeline of two stages agree on, on so many devices.
std::vector<std::pair<Status, BlockWay>> choose(int devices, BlockWay wish, BlockWay other) {
  stand_in::setDevices(devices);
  Schedule schedule;
  schedule.stages.resize(2);
  const auto transports = makeThreadTransports(2);
  std::vector<std::pair<Status, BlockWay>> result(2);
  std::thread second([&] { result[1].first = chooseBlockWay(*transports[1], schedule, other, result[1].second); });
  result[0].first = chooseBlockWay(*transports[0], schedule, wish, result[0].second);
  if (!result[0].first) transports[0]->abort(1);
  second.join();
  return result;
}

TEST(CudaNccl, IsChosenWhereEachRankHasADevice) {
  for (const auto& [status, way] : choose(2, BlockWay::unset, BlockWay::unset))
    EXPECT_TRUE(status && way == BlockWay::nccl);
  for (const auto& [status, way] : choose(1, BlockWay::unset, BlockWay::unset))
    EXPECT_TRUE(status && way == BlockWay::host);
  for (const auto& [status, way] : choose(2, BlockWay::host, BlockWay::host))
    EXPECT_TRUE(status && way == BlockWay::host);
}

TEST(CudaNccl, IsRefusedWhereRanksShareADeviceOrWantOtherThings) {
  std::vector<std::pair<Status, BlockWay>> refused = choose(1, BlockWay::nccl, BlockWay::nccl);
  EXPECT_NE(refused[0].first.message().find("ranks 0 and 1 have the same GPU ("), std::string::npos);
  EXPECT_EQ(refused[0].first.code(), Exit::usage);
  EXPECT_EQ(refused[1].first.code(), Exit::again);
  refused = choose(2, BlockWay::nccl, BlockWay::host);
  EXPECT_EQ(refused[0].first.message(), "rank 1 was started with another --transport than rank 0");
  EXPECT_EQ(refused[1].first.code(), Exit::again);
}

TEST(CudaNccl, LanesAreForEdgesReplicasAndShares) {
  Schedule schedule;
  schedule.stages = {{.replicas = 2}, {.replicas = 1}};
  schedule.edges = {{.from = 0, .to = 1}};
  schedule.shared = {{.owner = 0, .user = 1}};
  schedule.ranks.resize(3);
  for (int r = 0; r < 3; ++r) schedule.ranks[static_cast<std::size_t>(r)].hosts = {{r / 2, r % 2}};
  std::vector<std::string> names;
  for (const NcclLane& lane : ncclLanes(schedule)) names.push_back(lane.name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"values of edge 0 > 1", "gradients of edge 0 > 1", "replicas of stage 0",
                                      "versions that stages 0 and 1 share", "gradients that stages 0 and 1 share"}));
  EXPECT_EQ(ncclLanes(schedule)[2].ranks, (std::vector<int>{0, 1}));
  EXPECT_EQ(ncclLanes(schedule)[0].links.size(), 2u);
}

std::vector<std::vector<int>> linksOf(const NcclLane& lane) {
  std::vector<std::vector<int>> links;
  for (const NcclLane::Link& link : lane.links) links.push_back({link.from, link.to});
  return links;
}

/// Two replicas of two members each, then three members: processes 0 to 6.
TEST(CudaNccl, LanesAreForTeams) {
  Schedule schedule;
  schedule.stages = {{.replicas = 2, .team = 2}, {.replicas = 1, .team = 3}};
  schedule.edges = {{.from = 0, .to = 1}};
  schedule.ranks.resize(3);
  for (int r = 0; r < 3; ++r) schedule.ranks[static_cast<std::size_t>(r)].hosts = {{r / 2, r % 2}};
  const std::vector<NcclLane> lanes = ncclLanes(schedule);
  ASSERT_EQ(lanes.size(), 6u);
  using Links = std::vector<std::vector<int>>;
  EXPECT_EQ(linksOf(lanes[0]), (Links{{0, 4}, {0, 6}, {1, 5}, {2, 4}, {2, 6}, {3, 5}}));
  EXPECT_EQ(linksOf(lanes[1]), (Links{{4, 0}, {5, 1}, {4, 2}, {5, 3}}));
  EXPECT_EQ(linksOf(lanes[2]), (Links{{0, 2}, {1, 3}, {0, 2}, {1, 3}, {2, 0}, {3, 1}, {2, 0}, {3, 1}}));
  const std::vector<std::vector<int>> members = {{0, 1}, {2, 3}, {4, 5, 6}};
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(lanes[3 + i].isTeam && lanes[3 + i].links.empty());
    EXPECT_EQ(lanes[3 + i].ranks, members[i]);
  }
  EXPECT_EQ(lanes[4].name, "team of replica 1 of stage 0");
}

} // namespace
} // namespace pdcrt
