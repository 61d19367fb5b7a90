// LINK: pdcrt pdcSchedule
// Weights and checkpoints of stages that teams divide: read and written whole, by teams of any size.
#include "DividedStage.h"
#include "ScratchFolder.h"

#include "checkpoint/Checkpointer.h"
#include "checkpoint/EqualMembers.h"
#include "checkpoint/Resume.h"
#include "pdcrt/StoredTensor.h"
#include "run/RunFiles.h"

#include <deque>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <set>
#include <unistd.h>

using namespace pdcrt;
using namespace team;
namespace fs = std::filesystem;

namespace {

using States = std::map<std::string, std::vector<float>>;

/// The running statistics of a replica.
States statesOf(int replica) {
  return {{"mean", wholeOf("mean" + std::to_string(replica), {4})},
          {"count", wholeOf("count" + std::to_string(replica), {3})}};
}

/// Their mean over the replicas.
States meanOf(int replicas) {
  States mean = statesOf(0);
  for (auto& [name, values] : mean)
    for (std::size_t i = 0; i < values.size(); ++i) {
      for (int replica = 1; replica < replicas; ++replica) values[i] += statesOf(replica).at(name)[i];
      values[i] /= static_cast<float>(replicas);
    }
  return mean;
}

std::set<std::string> namesIn(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

class TeamFiles : public testing::Test {
protected:
  TeamFiles() {
    training.optimizer = OptimizerKind::adam;
    writeInitial();
  }

  /// The weights of the program's folder: all of them, whole. `fixed`: other values for that frozen parameter.
  void writeInitial(const std::string& fixed = "fixed") {
    fs::create_directory(program.path + "/weights");
    std::vector<TensorRecord> records;
    std::deque<std::vector<float>> values;
    const DividedStage whole(1);
    const auto add = [&](const auto& row, const std::string& name) {
      values.push_back(wholeOf(name, row.shape));
      records.push_back({row.name,
                         Element::f32,
                         {row.shape.dims, row.shape.dims + row.shape.rank},
                         std::as_bytes(std::span(values.back()))});
    };
    for (const ParameterRow& row : whole.parameters) add(row, row.name == std::string("fixed") ? fixed : row.name);
    for (const StateRow& row : whole.states) add(row, row.name + std::string("0"));
    ASSERT_TRUE(writeSafetensors(program.path + "/weights/stage0.safetensors", records));
  }

  /// The checkpoint after 8 minibatches of a run with so many replicas, each a team of so many members.
  void write(int replicas, int members) {
    const Schedule schedule = scheduleOf(replicas, members);
    const Places places(schedule);
    const DividedStage own(members);
    std::vector<Message> reports;
    const CheckpointOptions options = {.directory = folder, .every = 0, .keep = 1};
    for (int replica = 0; replica < replicas; ++replica)
      for (int member = 0; member < members; ++member) {
        Process process(schedule, own, training, replica, member);
        ASSERT_TRUE(process.status) << process.status.message();
        fill(process, statesOf(replica));
        Checkpointer checkpointer(options, schedule, places, training);
        std::map<std::string, FileSum> frozen;
        ASSERT_TRUE(frozenSums(program.path, process.executor, frozen));
        checkpointer.begin(process.executor, 0, frozen);
        checkpointer.finish(8);
        const std::optional<Message> report = checkpointer.report();
        ASSERT_TRUE(report);
        reports.push_back(*report);
      }
    Process first(schedule, own, training, 0, 0);
    Checkpointer checkpointer(options, schedule, places, training);
    checkpointer.begin(first.executor, 0, {});
    Manifest manifest;
    manifest.optimizer = "adam";
    for (const Message& report : reports) {
      EXPECT_EQ(checkpointer.collected(), 0);
      checkpointer.collect(report, manifest);
    }
    EXPECT_EQ(checkpointer.collected(), 8);
    const Status status = checkpointer.flush();
    ASSERT_TRUE(status) << status.message();
    ASSERT_TRUE(verifyCheckpoint(folder, 8));
  }

  Status load(Process& process) const {
    CheckpointReader reader;
    if (Status status = reader.open(folder, 8); !status) return status;
    StoredTensors initial;
    if (Status status = openInitial(program.path, initial); !status) return status;
    return loadCheckpoint(reader, training, initial, process.executor);
  }

  const ScratchFolder scratch, program;
  const std::string& folder = scratch.path;
  Training training;
};

TEST_F(TeamFiles, CheckpointsAreReadByTeamsOfAnySize) {
  for (const auto& [replicas, members] : {std::pair(1, 1), {1, 2}, {1, 4}, {2, 1}, {2, 4}}) {
    write(replicas, members);
    for (const auto& [otherReplicas, otherMembers] : {std::pair(1, 1), {1, 2}, {1, 4}, {2, 2}}) {
      const Schedule schedule = scheduleOf(otherReplicas, otherMembers);
      const DividedStage own(otherMembers);
      for (int replica = 0; replica < otherReplicas; ++replica)
        for (int member = 0; member < otherMembers; ++member) {
          SCOPED_TRACE(std::to_string(members) + " members, read by member " + std::to_string(member) + " of " +
                       std::to_string(otherMembers));
          Process process(schedule, own, training, replica, member);
          const Status status = load(process);
          ASSERT_TRUE(status) << status.message();
          expectFilled(process, replicas == otherReplicas ? statesOf(replica) : meanOf(replicas));
          EXPECT_EQ(process.hosted().updates, 17);
        }
    }
  }
}

TEST_F(TeamFiles, CheckpointsHoldEachElementOnce) {
  write(2, 2);
  EXPECT_EQ(namesIn(checkpointFolder(folder, 8)),
            (std::set<std::string>{"manifest.json", "stage0.safetensors", "stage0.member1.safetensors",
                                   "stage0.optimizer.safetensors", "stage0.optimizer.member1.safetensors",
                                   "stage0.replica1.safetensors", "stage0.replica1.member1.safetensors"}));
  SafetensorsFile file;
  ASSERT_TRUE(file.open(checkpointFolder(folder, 8) + "/stage0.member1.safetensors"));
  std::set<std::string> names;
  for (const auto& [name, record] : file.tensors()) names.insert(name);
  EXPECT_EQ(names, (std::set<std::string>{"qkv", "table", "filter", "mean"}));
  EXPECT_EQ(file.metadata().at("part/qkv"), "axis 1 blocks 3 of 2 member 1 shape 6 12");
  EXPECT_EQ(file.metadata().at("part/table"), "axis 0 blocks 1 of 2 member 1 shape 7 4");

  CheckpointReader reader;
  ASSERT_TRUE(reader.open(folder, 8));
  EXPECT_EQ(reader.manifest().members, std::vector<int>{2});
  std::map<std::string, TensorRecord> all;
  ASSERT_TRUE(reader.weights(all));
  ASSERT_EQ(all.size(), 6u);
  std::map<std::string, FileSum> frozen;
  ASSERT_TRUE(reader.frozen(frozen));
  ASSERT_EQ(frozen.size(), 2u);
  for (const DividedStage whole(1); const ParameterRow& row : whole.parameters) {
    const std::vector<float> expected = wholeOf(row.name, row.shape);
    if (!row.trained) {
      EXPECT_EQ(frozen.at(row.name), extended({}, std::as_bytes(std::span(expected)))) << row.name;
      continue;
    }
    ASSERT_EQ(all.at(row.name).values.size(), 4 * expected.size());
    EXPECT_EQ(std::memcmp(all.at(row.name).values.data(), expected.data(), 4 * expected.size()), 0) << row.name;
  }
  EXPECT_EQ(reader.averagedNames(), (std::vector<std::string>{"count", "mean"}));
  std::vector<float> mean;
  ASSERT_TRUE(reader.meanState("mean", mean));
  EXPECT_EQ(mean, meanOf(2).at("mean"));
}

TEST_F(TeamFiles, WithoutTeamsCheckpointsAreOfFormat1) {
  write(1, 1);
  EXPECT_EQ(namesIn(checkpointFolder(folder, 8)),
            (std::set<std::string>{"manifest.json", "stage0.safetensors", "stage0.optimizer.safetensors"}));
  std::ifstream file(checkpointFolder(folder, 8) + "/manifest.json");
  std::string first, second;
  std::getline(file, first);
  std::getline(file, second);
  EXPECT_EQ(second, " \"format\": 1,");
}

TEST_F(TeamFiles, ADamagedPartIsNamed) {
  write(1, 2);
  const std::string path = checkpointFolder(folder, 8) + "/stage0.optimizer.member1.safetensors";
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put('\x7f');
  }
  const Schedule schedule = scheduleOf(1, 1);
  const DividedStage own(1);
  Process process(schedule, own, training, 0, 0);
  const Status status = load(process);
  EXPECT_EQ(status.code(), Exit::badData);
  EXPECT_EQ(status.message(), path + ": is damaged: its checksum is not that of the manifest");
}

TEST_F(TeamFiles, OtherFrozenValuesAreRefused) {
  write(1, 2);
  writeInitial("other");
  const Schedule schedule = scheduleOf(1, 1);
  const DividedStage own(1);
  Process process(schedule, own, training, 0, 0);
  const Status status = load(process);
  EXPECT_EQ(status.code(), Exit::badData);
  EXPECT_EQ(status.message().find(program.path +
                                  "/weights/stage0.safetensors: 'fixed' has other values than the frozen "
                                  "parameter of the checkpoint: it is 96 "),
            0U)
      << status.message();
}

TEST_F(TeamFiles, InitialWeightsAreWhole) {
  for (int members : {1, 2, 4}) {
    const Schedule schedule = scheduleOf(1, members);
    const DividedStage own(members);
    for (int member = 0; member < members; ++member) {
      Process process(schedule, own, training, 0, member);
      const Status status = initialWeights(program.path, process.executor);
      ASSERT_TRUE(status) << status.message();
      expectFilled(process, statesOf(0), /*withOptimizer=*/false);
    }
  }
}

TEST_F(TeamFiles, ExportedWeightsAreWholeTogether) {
  for (int members : {4, 2, 1}) {
    const Schedule schedule = scheduleOf(1, members);
    const DividedStage own(members), whole(1);
    for (int member = members; member-- > 0;) {
      Process process(schedule, own, training, 0, member);
      fill(process, statesOf(0));
      ASSERT_TRUE(exportWeights(folder, /*adapters=*/"", process.executor));
      expectFilled(process, statesOf(0)); // as it was
    }
    // None is left of the larger team before.
    EXPECT_EQ(namesIn(folder).size(), static_cast<std::size_t>(members));
    StoredTensors tensors;
    ASSERT_TRUE(tensors.open(memberFiles(folder + "/stage0.safetensors")));
    for (const ParameterRow& row : whole.parameters) {
      const std::vector<float> expected = wholeOf(row.name, row.shape);
      const TensorRecord& record = tensors.whole().at(row.name);
      ASSERT_EQ(record.values.size(), 4 * expected.size());
      EXPECT_EQ(std::memcmp(record.values.data(), expected.data(), 4 * expected.size()), 0) << row.name;
    }
  }
}

TEST_F(TeamFiles, StagesOfOtherTeamsAreRefused) {
  const auto statusOf = [&](int made, int scheduled) {
    const Schedule schedule = scheduleOf(1, scheduled);
    const DividedStage own(made);
    return Process(schedule, own, training, 0, 0).status;
  };
  for (int members : {1, 2, 4}) EXPECT_TRUE(statusOf(members, members)) << members;
  EXPECT_EQ(statusOf(4, 1).message(), "stage 0 was generated for teams of 4, schedule.txt has teams of 1");
  EXPECT_EQ(statusOf(4, 1).code(), Exit::invalid);
  EXPECT_EQ(statusOf(4, 2).code(), Exit::invalid);
  EXPECT_EQ(statusOf(1, 2).code(), Exit::invalid);
}

TEST_F(TeamFiles, AnEpsOf0WouldSpoilPadding) {
  const Schedule schedule = scheduleOf(1, 2);
  const DividedStage own(2);
  training.epsilon = 1e-60;
  const Process process(schedule, own, training, 0, 0);
  EXPECT_EQ(process.status.code(), Exit::invalid);
  EXPECT_EQ(process.status.message(),
            "parameter 'table', whose axis of 7 is filled up for 2 members, would become nan with the \"eps\" of "
            "training.json, which is 0 in f32");
  training.optimizer = OptimizerKind::momentum;
  EXPECT_TRUE(Process(schedule, own, training, 0, 0).status);
  training.optimizer = OptimizerKind::adam;
  const DividedStage alone(1);
  EXPECT_TRUE(Process(scheduleOf(1, 1), alone, training, 0, 0).status);
}

TEST_F(TeamFiles, ABitThatMembersHaveNotAlikeIsNamed) {
  const Schedule schedule = scheduleOf(1, 4);
  const DividedStage own(4);
  const auto sumsOf = [&](Process& process) {
    HostedStage& hosted = process.hosted();
    return sumsOfWhole(own.stage, hosted.versions.raw(0), hosted.frozen, hosted.state);
  };
  Process one(schedule, own, training, 0, 1), other(schedule, own, training, 0, 3);
  fill(one, statesOf(0));
  fill(other, statesOf(0));
  const std::vector<std::uint32_t> sums = sumsOf(one);
  ASSERT_EQ(sums.size(), 2u); // "bias" and "count"
  EXPECT_TRUE(checkEqual(own.stage, {1, sums}, {3, sumsOf(other)}));

  const auto* const bias = &own.parameters[2];
  std::byte* const at = other.hosted().versions.raw(0) + bias->offset + 4 * 4;
  *at ^= std::byte{1};
  const std::vector<std::uint32_t> others = sumsOf(other);
  const Status status = checkEqual(own.stage, {1, sums}, {3, others});
  EXPECT_EQ(status.code(), Exit::noDevice);
  char expected[200];
  std::snprintf(expected, sizeof expected,
                "members of the team of stage 0 have other bits of 'bias', which they must have alike: by CRC-32C, "
                "member 1 has %08x, member 3 has %08x",
                sums[0], others[0]);
  EXPECT_EQ(status.message(), expected);
  // With shards, the owner of the element hears of it, and owners of others do not.
  const Shards shards(shardedParameters(own.stage.parameters), 2);
  for (int shard = 0; shard < 2; ++shard) {
    const auto sumsOfShard = [&](Process& process) {
      return sumsOfWhole(own.stage, process.hosted().versions.raw(0), process.hosted().frozen, process.hosted().state,
                         {.shards = &shards, .number = shard});
    };
    const std::vector<Shards::Range> ranges = shards.of(shard);
    const bool owns = std::ranges::any_of(ranges, [&](const Shards::Range& range) {
      return range.row == 2 && range.begin <= 4 && 4 < range.begin + range.count;
    });
    EXPECT_EQ(!checkEqual(own.stage, {1, sumsOfShard(one)}, {3, sumsOfShard(other)}), owns) << shard;
  }
  *at ^= std::byte{1};
  *(other.hosted().state + own.states[1].offset) ^= std::byte{1};
  EXPECT_NE(checkEqual(own.stage, {1, sums}, {3, sumsOf(other)}).message().find("'count'"), std::string::npos);

  // Everyone hears of it.
  const std::vector<std::uint32_t> wrong = sumsOf(other);
  for (const std::vector<std::uint32_t>& mine : {sums, wrong}) {
    const GatherSums gather = [&](std::span<const std::uint32_t> given, std::span<std::uint32_t> all) {
      EXPECT_EQ(all.size(), 4 * given.size());
      for (int member = 0; member < 4; ++member)
        std::copy_n((member == 3 ? wrong : sums).data(), sums.size(), all.data() + member * 2);
      return Status();
    };
    const std::string message = compareMembers(own.stage, mine, 4, gather).message();
    EXPECT_NE(message.find("'count'"), std::string::npos);
    EXPECT_NE(message.find("member 0 has"), std::string::npos);
    EXPECT_NE(message.find("member 3 has"), std::string::npos);
  }
  EXPECT_TRUE(compareMembers(own.stage, sums, 4, [&](std::span<const std::uint32_t>, std::span<std::uint32_t> all) {
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = sums[i % sums.size()];
    return Status();
  }));
  EXPECT_FALSE(compareMembers(own.stage, sums, 2, [](auto, auto) { return Status(Exit::again, "rank 1 is gone"); }));
  EXPECT_TRUE(compareMembers(own.stage, sums, 1, nullptr));

  *(other.hosted().state + own.states[0].offset) ^= std::byte{1}; // a part
  *(other.hosted().state + own.states[1].offset) ^= std::byte{1};
  EXPECT_TRUE(checkEqual(own.stage, {1, sums}, {3, sumsOf(other)}));
}

} // namespace
