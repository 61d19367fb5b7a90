// LINK: pdcrt pdcSchedule
// Checkpoints of replicas that divide the updates of a stage: each writes what it alone has, and any plan goes on.
#include "RunFolder.h"

#include "pdcrt/Checkpoint.h"

using namespace pdcrt;

namespace {

struct Plan {
  const char* name;
  std::vector<int> replicas, warmup;
  std::int64_t microbatches;
  Sharding sharding = Sharding::none;
  int shardDegree = 0;
};

Schedule scheduleOf(const Plan& plan, Sharding sharding) {
  std::vector<pdc::StageShape> stages;
  for (std::size_t s = 0; s < plan.replicas.size(); ++s)
    stages.push_back({.replicas = plan.replicas[s],
                      .warmup = plan.warmup[s],
                      .sharding = sharding,
                      .shardDegree = plan.shardDegree});
  pdc::PipelineShape shape = pdc::straightShape(stages);
  if (plan.name == std::string("units") || plan.shardDegree > 0) shape.kind = "bfs:2";
  shape.microbatches = plan.microbatches;
  shape.gradientNorm = true;
  return pdc::buildSchedule(shape);
}

// What a run writes does not depend on what its replicas divide, and any other plan goes on from it.
TEST(ShardedCheckpoints, AreResumedAsWholeOnesAre) {
  const Plan first{"first", {2, 1}, {2, 0}, 6}, units{"units", {2, 2}, {0, 0}, 6};
  const std::vector<Plan> others = {{"whole", {2, 1}, {2, 0}, 6},
                                    {"sharded", {2, 1}, {2, 0}, 6, Sharding::optimizer},
                                    {"more", {3, 2}, {2, 0}, 6, Sharding::optimizer},
                                    {"units", {3, 3}, {0, 0}, 6, Sharding::weights},
                                    {"groups", {4, 4}, {0, 0}, 8, Sharding::weights, 2},
                                    {"alone", {1, 1}, {2, 0}, 6}};
  std::vector<std::map<std::string, std::string>> exported;
  const std::vector<std::pair<Plan, Sharding>> writers = {
      {first, Sharding::none}, {first, Sharding::optimizer}, {units, Sharding::none}, {units, Sharding::weights}};
  for (const auto& [writer, sharding] : writers) {
    RunFolder folder(writer.replicas, writer.warmup, writer.microbatches);
    folder.training.optimizer = OptimizerKind::adam;
    folder.training.clipNorm = 0.5;
    folder.write("training.json", toJson(folder.training));
    folder.use(scheduleOf(writer, sharding));
    Outcome run = trainedOutcomeOf(folder, {"--steps=4", "--checkpoint-dir", folder.path + "/c"});
    ASSERT_EQ(run.code, 0) << run.errors;
    Manifest manifest;
    ASSERT_TRUE(readManifest(folder.path + "/c", 24, manifest));
    const bool isSharded = sharding != Sharding::none;
    EXPECT_EQ(manifest.owners, (std::vector<int>{isSharded ? 2 : 1, isSharded ? writer.replicas[1] : 1}));
    for (const Plan& plan : others) {
      folder.use(scheduleOf(plan, plan.sharding));
      const std::string copy = folder.path + "/" + plan.name;
      std::filesystem::copy(folder.path + "/c", copy, std::filesystem::copy_options::recursive);
      run = trainedOutcomeOf(folder,
                             {"--steps=8", "--resume", "--checkpoint-dir", copy, "--export-weights", copy + "-w"});
      ASSERT_EQ(run.code, 0) << run.errors;
      exported.push_back(filesOf(copy + "-w"));
      EXPECT_EQ(exported.back().size(), 2u) << "whole";
    }
  }
  for (std::size_t i = 0; i < others.size(); ++i)
    for (std::size_t with : {std::size_t{0}, 2 * others.size()})
      EXPECT_TRUE(exported[with + i] == exported[with + others.size() + i]) << others[i].name;
  EXPECT_TRUE(exported[0] == exported[1]);
}

// Of several owners of a shard the first writes it.
TEST(ShardedCheckpoints, OfGroupsHaveEachShardOnce) {
  const Plan groups{"groups", {4, 4}, {0, 0}, 8, Sharding::weights, 2}, whole{"units", {4, 4}, {0, 0}, 8},
      other{"units", {3, 3}, {0, 0}, 8, Sharding::weights};
  std::vector<std::map<std::string, std::string>> exported;
  for (const Plan& writer : {groups, whole}) {
    RunFolder folder(writer.replicas, writer.warmup, writer.microbatches);
    folder.training.optimizer = OptimizerKind::adam;
    folder.write("training.json", toJson(folder.training));
    folder.use(scheduleOf(writer, writer.sharding));
    Outcome run = trainedOutcomeOf(folder, {"--steps=3", "--checkpoint-dir", folder.path + "/c"});
    ASSERT_EQ(run.code, 0) << run.errors;
    if (writer.shardDegree > 0) {
      Manifest manifest;
      ASSERT_TRUE(readManifest(folder.path + "/c", 24, manifest));
      EXPECT_EQ(manifest.owners, (std::vector<int>{2, 2}));
      EXPECT_EQ(std::ranges::count(manifest.shards, ShardKind::state, &Shard::kind), 4)
          << "of those who write no weights";
      EXPECT_EQ(manifest.shards.size(), 4 + 8u) << "weights and optimizer of two shards of two stages";
    }
    folder.use(scheduleOf(other, other.sharding));
    run = trainedOutcomeOf(folder, {"--steps=6", "--resume", "--checkpoint-dir", folder.path + "/c", "--export-weights",
                                    folder.path + "/w"});
    ASSERT_EQ(run.code, 0) << run.errors;
    exported.push_back(filesOf(folder.path + "/w"));
  }
  EXPECT_TRUE(exported[0] == exported[1]);
}

TEST(ShardedCheckpoints, WithoutAReplicasFileAreRefused) {
  RunFolder folder({2, 1}, {2, 0}, 4);
  folder.use(scheduleOf({"", {2, 1}, {2, 0}, 4}, Sharding::optimizer));
  ASSERT_EQ(trainedOutcomeOf(folder, {"--steps=4", "--checkpoint-dir", folder.path + "/c"}).code, 0);
  const std::string file = checkpointFolder(folder.path + "/c", 16) + "/stage0.optimizer.replica1.safetensors";
  ASSERT_TRUE(std::filesystem::remove(file));
  const Outcome run = trainedOutcomeOf(folder, {"--steps=8", "--resume", "--checkpoint-dir", folder.path + "/c"});
  EXPECT_EQ(run.code, 65);
  EXPECT_NE(run.errors.find("stage0.optimizer.replica1.safetensors"), std::string::npos) << run.errors;
}

} // namespace
