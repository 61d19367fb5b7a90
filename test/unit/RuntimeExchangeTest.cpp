// LINK: pdcrt
// The steps of a sum over replicas, each alone: gather and add are a reduce-scatter, spread is an all-gather.
#include "collectives/Exchange.h"

#include <gtest/gtest.h>

using namespace pdcrt;

namespace {

/// Replicas as threads, each with a block of its own.
struct Replicas {
  Replicas(std::vector<std::vector<float>> values, std::vector<Segment> segments) : blocks(std::move(values)) {
    transports = makeThreadTransports(static_cast<int>(blocks.size()));
    for (std::size_t r = 0; r < blocks.size(); ++r) {
      communicators.push_back(std::make_unique<Communicator>(*transports[r]));
      staging.emplace_back(1000);
      ReduceGroup group{.self = static_cast<int>(r), .channel = 3, .segments = segments};
      for (std::size_t i = 0; i < blocks.size(); ++i) group.ranks.push_back(static_cast<int>(i));
      group.staging = reinterpret_cast<std::byte*>(staging.back().data());
      parts.push_back(std::make_shared<const ExchangeParts>(std::make_shared<const ReduceGroup>(group)));
    }
  }
  std::byte* block(std::size_t r) { return reinterpret_cast<std::byte*>(blocks[r].data()); }

  /// Runs a work of each replica to its end.
  template <class One, class Prepare>
  void run(Prepare prepare) {
    std::vector<std::unique_ptr<One>> works;
    for (std::size_t r = 0; r < blocks.size(); ++r) {
      works.push_back(std::make_unique<One>(parts[r]));
      prepare(*works[r], r);
    }
    for (std::size_t r = 0; r < blocks.size(); ++r) communicators[r]->post(*works[r]);
    for (std::size_t r = 0; r < blocks.size(); ++r) ASSERT_TRUE(communicators[r]->wait(*works[r]));
  }

  std::vector<std::vector<float>> blocks, staging;
  std::vector<std::unique_ptr<Transport>> transports;
  std::vector<std::unique_ptr<Communicator>> communicators;
  std::vector<std::shared_ptr<const ExchangeParts>> parts;
};

} // namespace

TEST(Exchange, GatherAndAddLeaveTheSumOfAPartAtItsOwnerOnly) {
  // Two segments with a gap; parts of 2, 2 and 1 floats.
  Replicas replicas({{1, 2, 0, 3, 4, 5}, {10, 20, 0, 30, 40, 50}, {100, 200, 0, 300, 400, 500}}, {{0, 2}, {12, 3}});
  const std::vector<bool> all(3, true);
  replicas.run<GatherParts>([&](GatherParts& gather, std::size_t r) { gather.prepare(replicas.block(r), all); });
  EXPECT_EQ(replicas.blocks[0], (std::vector<float>{1, 2, 0, 3, 4, 5})) << "gathering changes no block";
  replicas.run<AddParts>([&](AddParts& add, std::size_t r) { add.prepare(replicas.block(r), all); });
  EXPECT_EQ(replicas.blocks[0], (std::vector<float>{111, 222, 0, 3, 4, 5}));
  EXPECT_EQ(replicas.blocks[1], (std::vector<float>{10, 20, 0, 333, 444, 50}));
  EXPECT_EQ(replicas.blocks[2], (std::vector<float>{100, 200, 0, 300, 400, 555}));
}

TEST(Exchange, SpreadGivesEveryReplicaThePartOfEachOwner) {
  Replicas replicas({{1, 2, 0, 3, 4, 5}, {10, 20, 0, 30, 40, 50}, {100, 200, 0, 300, 400, 500}}, {{0, 2}, {12, 3}});
  replicas.run<SpreadParts>([&](SpreadParts& spread, std::size_t r) { spread.prepare(replicas.block(r)); });
  for (const std::vector<float>& block : replicas.blocks) EXPECT_EQ(block, (std::vector<float>{1, 2, 0, 30, 40, 500}));
  EXPECT_EQ(replicas.transports[0]->bytesSent[static_cast<std::size_t>(Traffic::allReduce)], 2 * 2 * sizeof(float));
}

TEST(Exchange, WhoContributesNothingStillOwnsItsPart) {
  Replicas replicas({{1, 1}, {10, 10}}, {{0, 2}});
  const std::vector<bool> second = {false, true};
  replicas.run<GatherParts>([&](GatherParts& gather, std::size_t r) { gather.prepare(replicas.block(r), second); });
  replicas.run<AddParts>([&](AddParts& add, std::size_t r) { add.prepare(replicas.block(r), second); });
  EXPECT_EQ(replicas.blocks[0], (std::vector<float>{10, 1}));
  EXPECT_EQ(replicas.blocks[1], (std::vector<float>{10, 10}));
}
