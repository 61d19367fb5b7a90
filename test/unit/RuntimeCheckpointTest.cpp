// LINK: pdcrt pdcSchedule
// Checkpoints of whole runs: what one holds, runs that go on from it, and disks that fail.
#include "RunFolder.h"
#include "ThreadRun.h"

#include "checkpoint/Checkpointer.h"
#include "checkpoint/Resume.h"
#include "data/Data.h"
#include "pdcrt/Checkpoint.h"
#include "pdcrt/Machine.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <set>

using namespace pdcrt;

namespace {

/// Nothing here is about what a machine that stops has on its disk.
const bool syncsNothing = [] {
  fileCalls.fsync = [](int) { return 0; };
  return true;
}();

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::vector<std::int64_t> complete(const std::string& directory) {
  std::vector<std::int64_t> result;
  for (const CheckpointEntry& entry : listCheckpoints(directory)) {
    EXPECT_TRUE(entry.complete) << entry.minibatches;
    result.push_back(entry.minibatches);
  }
  return result;
}

/// A pipeline and its schedule.
struct Plan {
  const char* name;
  std::vector<int> replicas, warmup;
  std::int64_t microbatches; ///< of schedules that flush
  bool sharded = false;      ///< replicas divide the updates
};

const Plan plans[] = {{"straight", {1, 1}, {2, 0}, 0},
                      {"replicated", {2, 1}, {3, 0}, 0},
                      {"unequal", {3, 2}, {4, 0}, 0},
                      {"three", {2, 2, 1}, {5, 2, 0}, 0},
                      {"flush", {1, 1}, {1, 0}, 4},
                      {"flushReplicated", {2, 1}, {2, 0}, 4},
                      {"flushOddly", {2, 1}, {2, 0}, 3},
                      {"sharded", {3, 2}, {4, 0}, 0, true},
                      {"flushSharded", {2, 1}, {2, 0}, 4, true}};

/// The same schedule, with replicas that divide the updates.
Schedule sharded(const Plan& plan) {
  std::vector<pdc::StageShape> stages;
  for (std::size_t s = 0; s < plan.replicas.size(); ++s)
    stages.push_back({.replicas = plan.replicas[s],
                      .warmup = plan.warmup[s],
                      .syncDelay = plan.microbatches == 0 && plan.replicas[s] > 1 ? 1 : 0,
                      .sharding = Sharding::optimizer});
  pdc::PipelineShape shape = pdc::straightShape(stages);
  shape.microbatches = plan.microbatches;
  return pdc::buildSchedule(shape);
}

class Plans : public testing::TestWithParam<Plan> {
protected:
  Plans() : folder(GetParam().replicas, GetParam().warmup, GetParam().microbatches) {
    if (GetParam().sharded) folder.use(sharded(GetParam()));
    folder.training.optimizer = OptimizerKind::adam;
    folder.training.learningRate = 0.01;
    folder.training.schedule.warmup = 50;
    folder.write("training.json", toJson(folder.training));
  }
  /// --steps for so many minibatches.
  std::string steps(std::int64_t minibatches) const {
    return "--steps=" + std::to_string(minibatches / std::max<std::int64_t>(1, GetParam().microbatches));
  }
  std::string in(const std::string& name) const { return folder.path + "/" + name; }
  RunFolder folder;
};

std::string nameOfPlan(const testing::TestParamInfo<Plan>& test) {
  return test.param.name;
}

// The pipeline does not drain for a checkpoint, and yet it holds what a run of that length leaves behind.
TEST_P(Plans, ACheckpointIsWhatARunOfItsLengthLeaves) {
  const std::int64_t length = 96;
  Outcome run =
      trainedOutcomeOf(folder, {steps(length), "--checkpoint-dir", in("all"), "--checkpoint-every=2", "--keep=100"});
  ASSERT_EQ(run.code, 0) << run.errors;
  const std::int64_t interval =
      checkpointInterval(folder.schedule, 2 * std::max<std::int64_t>(1, GetParam().microbatches));
  std::vector<std::int64_t> expected;
  for (std::int64_t at = interval; at < length; at += interval) expected.push_back(at);
  expected.push_back(length);
  ASSERT_EQ(complete(in("all")), expected);
  ASSERT_GE(expected.size(), 4u);
  for (std::int64_t at : expected) {
    const std::string one = in("one" + std::to_string(at));
    run = trainedOutcomeOf(folder, {steps(at), "--checkpoint-dir", one, "--export-weights", one + "-weights"});
    ASSERT_EQ(run.code, 0) << run.errors;
    EXPECT_TRUE(filesOf(checkpointFolder(in("all"), at)) == filesOf(checkpointFolder(one, at))) << at;
    // The parameters are those that the run exports.
    CheckpointReader reader;
    std::map<std::string, TensorRecord> saved;
    ASSERT_TRUE(reader.open(one, at));
    ASSERT_TRUE(reader.weights(saved));
    for (int s = 0; s < static_cast<int>(folder.schedule.stages.size()); ++s) {
      SafetensorsFile exported;
      ASSERT_TRUE(exported.open(one + "-weights/stage" + std::to_string(s) + ".safetensors"));
      for (const auto& [name, record] : exported.tensors()) {
        if (name[0] == 'm' && GetParam().replicas[static_cast<std::size_t>(s)] > 1) continue; // the mean of the state
        ASSERT_TRUE(saved.contains(name));
        EXPECT_TRUE(record.shape == saved[name].shape && std::ranges::equal(record.values, saved[name].values)) << name;
      }
    }
  }
}

// Under a schedule that flushes, nobody can tell that a run was interrupted.
TEST_P(Plans, AResumedRunIsTheUndisturbedOneWhereTheScheduleFlushes) {
  if (GetParam().microbatches == 0) GTEST_SKIP() << "this schedule does not flush";
  const std::int64_t length = 48, at = periodMinibatches(folder.schedule) * 3;
  ASSERT_EQ(trainedOutcomeOf(folder, {steps(length), "--export-weights", in("whole")}).code, 0);
  ASSERT_EQ(trainedOutcomeOf(folder, {steps(at), "--checkpoint-dir", in("c")}).code, 0);
  const Outcome run = trainedOutcomeOf(
      folder, {steps(length), "--checkpoint-dir", in("c"), "--resume", "--export-weights", in("resumed")});
  ASSERT_EQ(run.code, 0) << run.errors;
  EXPECT_TRUE(
      contains(run.errors, "note: going on from the checkpoint after " + std::to_string(at) + " of 48 minibatches"))
      << run.errors;
  EXPECT_TRUE(filesOf(in("resumed")) == filesOf(in("whole")));
}

// Training goes on after an evaluation as a run does that ends there and is resumed; checkpoints are counted through.
TEST_P(Plans, AnEvaluationOnTheWayIsAsARunThatEndsThere) {
  const std::int64_t step = std::max<std::int64_t>(1, GetParam().microbatches);
  const std::int64_t apart = periodMinibatches(folder.schedule), length = (3 * apart + apart / 2) / step * step;
  for (std::int64_t at = apart; at < length + apart; at += apart) {
    const Outcome run = trainedOutcomeOf(folder, {steps(std::min(at, length)), "--checkpoint-dir", in("c"), "--keep=9",
                                                  "--resume", "--export-weights", in("resumed")});
    ASSERT_EQ(run.code, 0) << run.errors;
  }
  const Outcome run = trainedOutcomeOf(folder, {steps(length), "--eval=synthetic", "--eval-every=1", "--checkpoint-dir",
                                                in("evaluated"), "--keep=9", "--checkpoint-every=1", "--metrics",
                                                in("m.jsonl"), "--export-weights", in("weights")});
  ASSERT_EQ(run.code, 0) << run.errors;
  std::map<std::string, std::string> weights = filesOf(in("weights"));
  weights.erase("initial.safetensors"); // of a run that begins
  EXPECT_TRUE(weights == filesOf(in("resumed")));
  for (std::int64_t at : complete(in("evaluated")))
    EXPECT_TRUE(filesOf(checkpointFolder(in("evaluated"), at)) == filesOf(checkpointFolder(in("c"), at))) << at;
  std::size_t told = 0;
  std::ifstream metrics(in("m.jsonl"));
  for (std::string line; std::getline(metrics, line);) told += contains(line, "\"mse\"");
  const auto evaluations = static_cast<std::size_t>((length + apart - 1) / apart);
  EXPECT_EQ(told, evaluations);
  std::size_t beside = 0;
  for (std::size_t i = 0; (i = run.errors.find("after step ", i)) != std::string::npos; ++i) ++beside;
  EXPECT_EQ(beside, evaluations - 1) << run.errors;
}

// Under the others a resumed run is one that has drained at the checkpoint.
TEST_P(Plans, AResumedRunIsOneThatHasDrained) {
  const std::int64_t length = 48, at = periodMinibatches(folder.schedule) * 3;
  ASSERT_EQ(trainedOutcomeOf(folder, {steps(length), "--checkpoint-dir", in("c"), "--keep=100", "--checkpoint-every",
                                      std::to_string(at / std::max<std::int64_t>(1, GetParam().microbatches))})
                .code,
            0);
  const std::int64_t from = complete(in("c")).front();
  ASSERT_LT(from, length);
  for (const CheckpointEntry& entry : listCheckpoints(in("c")))
    if (entry.minibatches > from) removeCheckpoint(in("c"), entry.minibatches);
  const Outcome run = trainedOutcomeOf(
      folder, {steps(length), "--checkpoint-dir", in("c"), "--resume", "--export-weights", in("resumed")});
  ASSERT_EQ(run.code, 0) << run.errors;

  ThreadRun drained;
  drained.schedule = &folder.schedule;
  drained.stages = linear::linearStages(static_cast<int>(folder.schedule.stages.size()));
  drained.training = folder.training;
  drained.training.seed = 7;
  drained.readWeights = linear::readInitial;
  DataSet data;
  ASSERT_TRUE(
      data.open({.path = "synthetic", .batch = linear::batch, .seed = 7, .syntheticSamples = 1000}, drained.stages));
  drained.data = &data;
  ASSERT_TRUE(drained.run([&](Executor& executor, int) {
    if (Status status = executor.train(0, from); !status) return status;
    if (Status status = executor.train(from, length - from); !status) return status;
    return executor.averageState();
  }));
  for (int s = 0; s < static_cast<int>(folder.schedule.stages.size()); ++s) {
    SafetensorsFile resumed;
    ASSERT_TRUE(resumed.open(in("resumed/stage" + std::to_string(s) + ".safetensors")));
    const HostedStage& hosted = drained.hosted(s, 0);
    auto same = [&](const auto& row, const std::byte* block) {
      const TensorRecord* record = resumed.find(row.name);
      ASSERT_TRUE(record);
      EXPECT_EQ(std::memcmp(record->values.data(), block + row.offset, record->values.size()), 0) << row.name;
    };
    for (const ParameterRow& row : hosted.stage->parameters) same(row, drained.weights(s, 0));
    for (const StateRow& row : hosted.stage->states) same(row, hosted.state);
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, Plans, testing::ValuesIn(plans), nameOfPlan);

/// A run of 24 minibatches in updates of four, in which something of the disk may go wrong.
struct Fixture : testing::Test {
  RunFolder folder{{1, 1}, {1, 0}, 4};
  std::string directory = folder.path + "/c";
  Outcome run(std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"--steps=6", "--checkpoint-every=2", "--checkpoint-dir", directory});
    return trainedOutcomeOf(folder, more);
  }
  void damage(std::int64_t minibatches, const std::string& file) const {
    const std::string path = checkpointFolder(directory, minibatches) + "/" + file;
    std::fstream(path, std::ios::in | std::ios::out | std::ios::binary).seekp(-3, std::ios::end).put('?');
  }
};

using Checkpoints = Fixture;

TEST_F(Checkpoints, TheNewestAreKept) {
  ASSERT_EQ(run().code, 0);
  EXPECT_EQ(complete(directory), (std::vector<std::int64_t>{16, 24}));
}

TEST_F(Checkpoints, OthersRunsAreNotMixed) {
  ASSERT_EQ(run().code, 0);
  const Outcome again = run();
  EXPECT_EQ(again.code, 2);
  EXPECT_TRUE(contains(again.errors, "holds the checkpoints of another run\nhelp: go on with them by --resume"))
      << again.errors;
}

TEST_F(Checkpoints, ADamagedOneIsPassedOver) {
  ASSERT_EQ(run({"--export-weights", folder.path + "/whole"}).code, 0);
  damage(24, "stage1.safetensors");
  Outcome resumed = run({"--resume", "--export-weights", folder.path + "/resumed"});
  EXPECT_EQ(resumed.code, 0) << resumed.errors;
  EXPECT_TRUE(contains(resumed.errors,
                       "stage1.safetensors: is damaged: its checksum is not that of the manifest; taking "
                       "the checkpoint before it"))
      << resumed.errors;
  EXPECT_TRUE(contains(resumed.errors, "after 16 of 24")) << resumed.errors;
  EXPECT_TRUE(filesOf(folder.path + "/resumed") == filesOf(folder.path + "/whole"));
  damage(24, "stage0.optimizer.safetensors");
  damage(16, "manifest.json");
  resumed = run({"--resume"});
  EXPECT_EQ(resumed.code, 65);
  EXPECT_TRUE(contains(resumed.errors, "none of its 2 checkpoints is whole")) << resumed.errors;
}

TEST_F(Checkpoints, ARunThatIsDoneHasNothingToDo) {
  ASSERT_EQ(run({"--export-weights", folder.path + "/whole"}).code, 0);
  const Outcome again = run({"--resume", "--export-weights", folder.path + "/again"});
  EXPECT_EQ(again.code, 0) << again.errors;
  EXPECT_TRUE(filesOf(folder.path + "/again") == filesOf(folder.path + "/whole"));
}

TEST_F(Checkpoints, HalfALineOfMetricsIsDropped) {
  const std::string metrics = folder.path + "/m.jsonl";
  ASSERT_EQ(run({"--metrics", metrics}).code, 0);
  const std::string whole = folder.read("m.jsonl");
  std::ofstream(metrics, std::ios::app) << R"({"step": 6, "lo)"; // what a killed run leaves
  ASSERT_EQ(run({"--resume", "--metrics", metrics}).code, 0);
  EXPECT_EQ(folder.read("m.jsonl"), whole);
}

TEST_F(Checkpoints, WithoutOneTrainingBegins) {
  const Outcome begun = run({"--resume"});
  EXPECT_EQ(begun.code, 0);
  EXPECT_TRUE(contains(begun.errors, "holds no checkpoint; training begins with the initial weights")) << begun.errors;
}

TEST_F(Checkpoints, ARunThatDoesNotContinueItIsRefused) {
  ASSERT_EQ(run().code, 0);
  const Outcome shuffled = run({"--resume", "--shuffle=off"});
  EXPECT_EQ(shuffled.code, 2);
  EXPECT_TRUE(contains(shuffled.errors, "has --shuffle=on, this run has not\nhelp: give --shuffle=on"))
      << shuffled.errors;
  folder.training.optimizer = OptimizerKind::momentum;
  folder.write("training.json", toJson(folder.training));
  const Outcome other = run({"--resume"});
  EXPECT_EQ(other.code, 1);
  EXPECT_TRUE(contains(other.errors, "is of the optimizer 'sgd', training.json has 'momentum'")) << other.errors;
}

TEST_F(Checkpoints, AFolderIsNeeded) {
  const Outcome none = trainedOutcomeOf(folder, {"--steps=2", "--resume"});
  EXPECT_EQ(none.code, 2);
  EXPECT_TRUE(contains(none.errors, "--resume needs a folder\nhelp: name that of the checkpoints")) << none.errors;
}

TEST_F(Checkpoints, ASignalLeavesOne) {
  linear::forwardTime = std::chrono::microseconds(500);
  std::thread killer([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    ::kill(::getpid(), SIGTERM);
  });
  const Outcome stopped = trainedOutcomeOf(folder, {"--steps=100000", "--checkpoint-dir", directory});
  killer.join();
  linear::forwardTime = std::chrono::microseconds(0);
  EXPECT_EQ(stopped.code, 75) << stopped.errors;
  EXPECT_TRUE(contains(stopped.errors, " minibatches\nhelp: run again with --resume")) << stopped.errors;
  ASSERT_EQ(complete(directory).size(), 1u);
  EXPECT_TRUE(contains(stopped.errors, "after " + std::to_string(complete(directory)[0]) + " minibatches"));
}

// ---- Disks that fail ----

/// Fails the n-th of the calls that concern a checkpoint, or all from there on.
struct Failing {
  static inline std::atomic<int> countdown{0};
  static inline std::atomic<bool> forEver{false};
  static inline int reason = ENOSPC;
  static inline std::mutex mutex;
  static inline std::set<int> files; ///< descriptors of files of checkpoints
  static inline FileCalls real;

  static bool fails(bool concerned) {
    if (!concerned) return false;
    const int left = countdown.fetch_sub(1);
    errno = reason;
    return forEver ? left <= 0 : left == 0;
  }
  static bool ours(const char* path) { return std::string(path).find("/checkpoint-") != std::string::npos; }
  static bool ours(int file) {
    std::lock_guard lock(mutex);
    return files.contains(file);
  }

  Failing(int n, bool always) {
    countdown = n;
    forEver = always;
    real = fileCalls;
    fileCalls.open = [](const char* path, int flags, mode_t mode) {
      if (fails(ours(path))) return -1;
      const int file = real.open(path, flags, mode);
      std::lock_guard lock(mutex);
      if (ours(path)) files.insert(file);
      return file;
    };
    fileCalls.write = [](int file, const void* data, std::size_t bytes) -> ssize_t {
      return fails(ours(file)) ? -1 : real.write(file, data, bytes);
    };
    fileCalls.fsync = [](int file) { return fails(ours(file)) ? -1 : 0; };
    fileCalls.close = [](int file) {
      const bool failed = fails(ours(file));
      {
        std::lock_guard lock(mutex);
        files.erase(file);
      }
      const int closed = real.close(file);
      if (failed) errno = reason;
      return failed ? -1 : closed;
    };
    fileCalls.rename = [](const char* from, const char* to) { return fails(ours(to)) ? -1 : real.rename(from, to); };
    fileCalls.unlink = [](const char* path) { return fails(ours(path)) ? -1 : real.unlink(path); };
    fileCalls.mkdir = [](const char* path, mode_t mode) { return fails(ours(path)) ? -1 : real.mkdir(path, mode); };
    fileCalls.rmdir = [](const char* path) { return fails(ours(path)) ? -1 : real.rmdir(path); };
  }
  ~Failing() { fileCalls = real; }
};

/// Whole runs, in which each call fails in turn: training gives the same weights, and of the checkpoints that are said
/// to be there, each is whole.
void failEachCall(const Fixture& test, bool forEver) {
  Fixture& f = const_cast<Fixture&>(test);
  ASSERT_EQ(f.run({"--export-weights", f.folder.path + "/expected"}).code, 0);
  const auto expected = filesOf(f.folder.path + "/expected");
  bool reached = true;
  for (int n = 0; reached; n += forEver ? 7 : 3) {
    std::filesystem::remove_all(f.directory);
    Outcome run;
    {
      Failing failing(n, forEver);
      run = f.run({"--export-weights", f.folder.path + "/result"});
      reached = Failing::countdown < 0;
    }
    ASSERT_TRUE(filesOf(f.folder.path + "/result") == expected) << n << run.code << run.errors;
    std::int64_t newest = -1;
    ASSERT_TRUE(newestWhole(f.directory, newest)) << n;
    const bool failed = contains(run.errors, "warning: ");
    ASSERT_TRUE(run.code == 0 ? newest == 24 : run.code == 74 && failed) << n << run.errors;
    if (!forEver) {
      ASSERT_GE(newest, 16) << n << ": an error of one call costs one checkpoint";
    }
    if (!reached) {
      ASSERT_FALSE(failed) << run.errors;
    }
    for (const CheckpointEntry& entry : listCheckpoints(f.directory)) {
      if (entry.complete) {
        ASSERT_TRUE(verifyCheckpoint(f.directory, entry.minibatches)) << n;
      }
    }
  }
}

/// Opens no file of that name; writing checkpoints of stage 0 takes a while.
struct FailingExport {
  static inline FileCalls real;
  FailingExport() {
    real = fileCalls;
    fileCalls.open = [](const char* path, int flags, mode_t mode) {
      const std::string name = path;
      if (contains(name, "/result/stage1")) {
        errno = ENOSPC;
        return -1;
      }
      if (contains(name, "/checkpoint-") && contains(name, "/stage0"))
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
      return real.open(path, flags, mode);
    };
  }
  ~FailingExport() { fileCalls = real; }
};

TEST_F(Checkpoints, AnExportThatFailsLeavesTheLastOne) {
  Outcome failed;
  {
    FailingExport failing;
    failed = run({"--export-weights", folder.path + "/result"});
  }
  EXPECT_EQ(failed.code, 74) << failed.errors;
  EXPECT_TRUE(contains(failed.errors, "/result/stage1")) << failed.errors;
  EXPECT_EQ(complete(directory), (std::vector<std::int64_t>{16, 24})) << failed.errors;
}

TEST_F(Checkpoints, AnErrorOfAnyCallStopsNoTraining) {
  failEachCall(*this, false);
}

TEST_F(Checkpoints, AFullDiskStopsNoTraining) {
  failEachCall(*this, true);
}

} // namespace
