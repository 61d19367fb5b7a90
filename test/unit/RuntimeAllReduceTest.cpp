// LINK: pdcrt
// All-reduces against sums in replica order, alone and several on a lane; who contributes; which steps go on at once.
#include "collectives/AllReduce.h"

#include <gtest/gtest.h>
#include <random>
#include <set>

using namespace pdcrt;

namespace {

/// Reduces one block per replica over threads. `count` replicas contribute, from `first` on in a circle.
std::vector<std::vector<float>> reduce(std::vector<std::vector<float>> blocks, const std::vector<Segment>& segments,
                                       int first, int count, std::uint64_t* bytes = nullptr) {
  const std::size_t replicas = blocks.size();
  std::vector<bool> contributes(replicas);
  for (int i = 0; i < count; ++i) contributes[static_cast<std::size_t>(first + i) % replicas] = true;
  auto transports = makeThreadTransports(static_cast<int>(replicas));
  std::vector<std::unique_ptr<Communicator>> communicators;
  std::vector<std::unique_ptr<AllReduce>> reductions;
  std::vector<std::vector<float>> staging(replicas, std::vector<float>(1000));
  for (std::size_t r = 0; r < replicas; ++r) {
    communicators.push_back(std::make_unique<Communicator>(*transports[r]));
    auto group = std::make_shared<ReduceGroup>();
    for (std::size_t i = 0; i < replicas; ++i) group->ranks.push_back(static_cast<int>(i));
    group->self = static_cast<int>(r);
    group->segments = segments;
    group->staging = reinterpret_cast<std::byte*>(staging[r].data());
    reductions.push_back(std::make_unique<AllReduce>(group, std::make_shared<ReduceLane>()));
    reductions[r]->prepare(reinterpret_cast<std::byte*>(blocks[r].data()), contributes);
  }
  for (std::size_t r = 0; r < replicas; ++r) communicators[r]->post(*reductions[r]);
  for (std::size_t r = 0; r < replicas; ++r) EXPECT_TRUE(communicators[r]->wait(*reductions[r]));
  for (std::size_t r = 0; r < replicas; ++r) {
    communicators[r]->stop();
    if (bytes) *bytes += transports[r]->bytesSent[static_cast<std::size_t>(Traffic::allReduce)];
  }
  return blocks;
}

TEST(AllReduce, AddsInReplicaOrderAndTouchesNothingElse) {
  // Sizes below, at and above the number of replicas; a gap that must stay.
  for (std::size_t replicas : {2u, 3u, 5u})
    for (std::size_t size : {1u, 2u, 7u, 64u, 100u}) {
      std::vector<std::vector<float>> blocks(replicas, std::vector<float>(size + 20));
      std::mt19937 random(7);
      std::uniform_real_distribution<float> uniform(-1e6f, 1e6f);
      for (auto& block : blocks)
        for (float& value : block) value = uniform(random) * uniform(random);
      const std::vector<Segment> segments = {{0, 1}, {16 * sizeof(float), size}};
      std::uint64_t bytes = 0;
      const auto results = reduce(blocks, segments, 0, static_cast<int>(replicas), &bytes);
      EXPECT_EQ(bytes, 2 * (replicas - 1) * (size + 1) * sizeof(float));
      for (std::size_t i = 0; i < size + 20; ++i) {
        const bool reduced = i == 0 || (i >= 16 && i < 16 + size);
        float sum = blocks[0][i];
        for (std::size_t r = 1; r < replicas; ++r) sum += blocks[r][i];
        for (std::size_t r = 0; r < replicas; ++r) ASSERT_EQ(results[r][i], reduced ? sum : blocks[r][i]);
      }
    }
}

TEST(AllReduce, LeavesOutWhoContributesNothing) {
  const auto results = reduce({{1, 1, 1}, {10, 10, 10}, {100, 100, 100}, {1000, 1000, 1000}}, {{0, 3}}, 3, 2);
  for (const std::vector<float>& result : results) EXPECT_EQ(result, (std::vector<float>{1001, 1001, 1001}));
}

/// Groups of so many floats, one after the other in a block, with staging behind each other.
std::vector<std::shared_ptr<ReduceGroup>> groupsOf(const std::vector<std::size_t>& counts, int replicas, int self,
                                                   std::byte* staging) {
  std::vector<std::shared_ptr<ReduceGroup>> groups;
  std::size_t before = 0;
  for (std::size_t count : counts) {
    auto group = std::make_shared<ReduceGroup>();
    for (int rank = 0; rank < replicas; ++rank) group->ranks.push_back(rank);
    group->self = self;
    group->channel = 3;
    group->segments = {{before * sizeof(float), count}};
    group->before = before;
    group->staging = staging;
    before += count;
    staging += group->share() * static_cast<std::size_t>(replicas - 1) * sizeof(float);
    groups.push_back(std::move(group));
  }
  return groups;
}

TEST(AllReduce, SharesOfGroupsAddUpToThatOfAll) {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    const int replicas = 2 + static_cast<int>(random() % 7);
    std::vector<std::size_t> counts(1 + random() % 6);
    std::size_t all = 0;
    for (std::size_t& count : counts) all += count = random() % 20;
    std::size_t sum = 0;
    for (int self = 0; self < replicas; ++self) {
      std::size_t own = 0;
      for (const auto& group : groupsOf(counts, replicas, self, nullptr)) {
        const std::size_t share = group->share(), even = group->floats() / static_cast<std::size_t>(replicas);
        EXPECT_TRUE(share == even || share == even + 1) << share << " of " << group->floats();
        EXPECT_EQ(group->begin(static_cast<std::size_t>(replicas)), group->floats());
        own += share;
      }
      EXPECT_LE(own, (all + static_cast<std::size_t>(replicas) - 1) / static_cast<std::size_t>(replicas));
      sum += own;
    }
    EXPECT_EQ(sum, all);
  }
}

TEST(AllReduce, GroupsOnALaneGiveTheSumsOfOneGroup) {
  constexpr int replicas = 3, rounds = 20;
  std::mt19937 random(11);
  std::uniform_real_distribution<float> uniform(-1e6f, 1e6f);
  const std::vector<std::size_t> counts = {1, 200'000, 70'000, 2, 3000, 150'000};
  std::size_t all = 0;
  for (std::size_t count : counts) all += count;
  auto transports = makeThreadTransports(replicas);
  std::vector<std::unique_ptr<Communicator>> communicators;
  std::vector<std::vector<float>> blocks(replicas, std::vector<float>(all)),
      staging(replicas, std::vector<float>((all + replicas - 1) / replicas * (replicas - 1)));
  std::vector<std::vector<std::unique_ptr<AllReduce>>> reductions(replicas);
  for (std::size_t r = 0; r < replicas; ++r) {
    communicators.push_back(std::make_unique<Communicator>(*transports[r]));
    auto lane = std::make_shared<ReduceLane>();
    for (const auto& group :
         groupsOf(counts, replicas, static_cast<int>(r), reinterpret_cast<std::byte*>(staging[r].data())))
      reductions[r].push_back(std::make_unique<AllReduce>(group, lane));
  }
  for (int round = 0; round < rounds; ++round) {
    for (auto& block : blocks)
      for (float& value : block) value = uniform(random);
    std::vector<float> expected = blocks[0];
    for (std::size_t i = 0; i < all; ++i) expected[i] = blocks[0][i] + blocks[1][i] + blocks[2][i];
    // Ranks post them at different moments: of one, all before any of another.
    for (std::size_t r = 0; r < replicas; ++r)
      for (const auto& reduction : reductions[(r + static_cast<std::size_t>(round)) % replicas]) {
        const std::size_t rank = (r + static_cast<std::size_t>(round)) % replicas;
        reduction->prepare(reinterpret_cast<std::byte*>(blocks[rank].data()));
        communicators[rank]->post(*reduction);
      }
    for (std::size_t r = 0; r < replicas; ++r)
      for (const auto& reduction : reductions[r]) ASSERT_TRUE(communicators[r]->wait(*reduction));
    for (const auto& block : blocks)
      for (std::size_t i = 0; i < all; ++i) ASSERT_EQ(block[i], expected[i]) << "float " << i << ", round " << round;
  }
}

/// Transfers that complete when they are told to.
class HandTransport : public Transport {
public:
  int rank() const override { return 0; }
  int ranks() const override { return 2; }
  void start(Transfer& transfer) override { channels.insert(transfer.channel); }
  bool test(Transfer& transfer) override { return !channels.contains(transfer.channel); }
  void cancel(Transfer&) override {}
  std::chrono::nanoseconds patience(int, bool) override { return {}; }
  bool aborted() const override { return false; }
  void abort(int) override {}

  std::set<int> channels; ///< on which something is under way
};

constexpr int gathers = 3, spreads = 4;
using Channels = std::set<int>;

/// Two reductions of a lane over a transport in the hand.
struct Pair {
  Pair(std::vector<std::size_t> counts, bool sameStaging = false) : block(1 << 20), staging(1 << 20) {
    auto groups = groupsOf(counts, 2, 0, reinterpret_cast<std::byte*>(staging.data()));
    if (sameStaging) groups[1]->staging = groups[0]->staging;
    for (const auto& group : groups) {
      reductions.push_back(std::make_unique<AllReduce>(group, lane));
      reductions.back()->prepare(reinterpret_cast<std::byte*>(block.data()));
    }
  }
  /// A round of the communication thread. Returns how many have completed.
  int round() {
    return static_cast<int>(std::erase_if(reductions, [&](const auto& work) { return work->advance(transport); }));
  }

  HandTransport transport;
  std::vector<float> block, staging;
  std::shared_ptr<ReduceLane> lane = std::make_shared<ReduceLane>();
  std::vector<std::unique_ptr<AllReduce>> reductions;
};

TEST(AllReduce, TheNextOneGathersWhileOneAddsAndSpreads) {
  Pair pair({1000, 1000});
  EXPECT_EQ(pair.round(), 0);
  EXPECT_EQ(pair.transport.channels, (Channels{gathers}));
  pair.transport.channels.clear(); // the first one has gathered
  EXPECT_EQ(pair.round(), 0);
  EXPECT_EQ(pair.transport.channels, (Channels{gathers})) << "the second one gathers before the first one adds";
  EXPECT_TRUE(pair.transport.looksAgain());
  EXPECT_EQ(pair.round(), 0);
  EXPECT_EQ(pair.transport.channels, (Channels{gathers, spreads}));
  pair.transport.channels.erase(gathers); // the second one has gathered, and adds; the first one still spreads
  for (int i = 0; i < 3; ++i) EXPECT_EQ(pair.round(), 0);
  EXPECT_EQ(pair.transport.channels, (Channels{spreads}));
  pair.transport.channels.clear();
  EXPECT_EQ(pair.round(), 1);
  EXPECT_EQ(pair.transport.channels, (Channels{spreads}));
  pair.transport.channels.clear();
  EXPECT_EQ(pair.round(), 1);
}

TEST(AllReduce, StagingIsNotFilledBeforeItWasRead) {
  Pair pair({1000, 1000}, /*sameStaging=*/true);
  pair.round();
  pair.transport.channels.clear();
  EXPECT_EQ(pair.round(), 0);
  EXPECT_EQ(pair.transport.channels, Channels{}) << "the first one has not added";
  EXPECT_EQ(pair.round(), 0);
  EXPECT_EQ(pair.transport.channels, (Channels{gathers, spreads}));
}

/// Links, and the collectives of a team, have their turn between them.
TEST(AllReduce, AddsManyFloatsInSeveralRounds) {
  Pair pair({1 << 19, 1});
  pair.round();
  pair.transport.channels.clear();
  pair.round();
  for (int piece = 0; piece < 4; ++piece) { // 2^18 floats in pieces of 2^16
    EXPECT_EQ(pair.transport.channels.count(spreads), 0u) << piece;
    EXPECT_TRUE(pair.transport.looksAgain()) << piece;
    pair.round();
  }
  EXPECT_EQ(pair.transport.channels.count(spreads), 1u);
}

} // namespace
