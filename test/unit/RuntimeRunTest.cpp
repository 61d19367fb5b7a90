// LINK: pdcrt pdcSchedule
// pdcrt::run from flags to files, with the ranks as threads; and each of its errors.
#include "Replay.h"
#include "RunFolder.h"

#include "data/Data.h"

#include <csignal>
#include <nlohmann/json.hpp>

using namespace pdcrt;

namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::vector<nlohmann::json> lines(const std::string& text) {
  std::vector<nlohmann::json> result;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) result.push_back(nlohmann::json::parse(line));
  return result;
}

TEST(Run, TrainsOnAFolderAndTellsEverything) {
  RunFolder folder({2, 1}, {3, 0});
  folder.writeData(32); // 10 minibatches of 3, 2 samples are left out
  const Outcome run =
      outcomeOf(folder, {"--data", folder.path + "/data", "--epochs", "3", "--seed", "5", "--metrics",
                         folder.path + "/metrics.jsonl", "--trace", folder.path + "/trace.json", "--export-weights",
                         folder.path + "/trained", "--eval", folder.path + "/data", "--threads"});
  ASSERT_EQ(run.code, 0) << run.errors;
  EXPECT_TRUE(contains(run.errors, "an epoch is 10 minibatches of 3 samples; the other 2 of 32 are left out"));
  EXPECT_TRUE(contains(run.errors, "step 30/30  epoch 3  loss ")) << run.errors;
  EXPECT_TRUE(contains(run.out, "test mse 0.")) << run.out;
  EXPECT_TRUE(contains(run.out, "stage  rank  predicted  measured")) << run.out;

  // The replay gives the losses and the weights.
  Training training = folder.training;
  training.seed = 5;
  DataSet data;
  ASSERT_TRUE(data.open({.path = folder.path + "/data", .batch = linear::batch, .seed = 5}, linear::linearStages(2)));
  Replay replay({.stages = linear::linearStages(2),
                 .replicas = {2, 1},
                 .warmup = {3, 0},
                 .syncDelay = {1, 0},
                 .training = training,
                 .data = &data,
                 .readWeights = linear::readInitial});
  replay.run(30);
  const std::vector<nlohmann::json> metrics = lines(folder.read("metrics.jsonl"));
  ASSERT_EQ(metrics.size(), 31u);
  for (std::size_t i = 0; i < 30; ++i) {
    EXPECT_EQ(metrics[i]["step"], i);
    EXPECT_EQ(metrics[i]["epoch"], i / 10);
    EXPECT_EQ(static_cast<float>(metrics[i]["loss"]), static_cast<float>(replay.losses()[i]));
    EXPECT_EQ(metrics[i]["lr"], 0.1);
    EXPECT_GT(metrics[i]["peak_memory_bytes"], 0);
  }
  EXPECT_TRUE(metrics[30].contains("mse"));

  for (int s = 0; s < 2; ++s) {
    SafetensorsFile trained;
    ASSERT_TRUE(trained.open(folder.path + "/trained/stage" + std::to_string(s) + ".safetensors"));
    const Stage& stage = *linear::linearStages(2)[static_cast<std::size_t>(s)];
    EXPECT_EQ(trained.tensors().size(), stage.parameters.size() + stage.states.size());
    for (const ParameterRow& row : stage.parameters) {
      const TensorRecord* record = trained.find(row.name);
      ASSERT_TRUE(record);
      EXPECT_EQ(std::memcmp(record->values.data(), replay.weights(static_cast<std::size_t>(s)).data() + row.offset,
                            record->values.size()),
                0);
    }
  }

  const nlohmann::json trace = nlohmann::json::parse(folder.read("trace.json"));
  std::size_t forwards = 0, sends = 0, reductions = 0;
  for (const nlohmann::json& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    EXPECT_GE(event["dur"], 0);
    const std::string name = event["name"];
    forwards += contains(name, "F") && event["cat"] == "compute";
    sends += event["cat"] == "send";
    reductions += event["cat"] == "all-reduce";
  }
  EXPECT_EQ(forwards, 60u);
  EXPECT_GT(sends, 50u);
  EXPECT_EQ(reductions, 2 * 15u);
  EXPECT_FALSE(std::filesystem::exists(folder.path + "/trace.json.rank0"));
}

TEST(Run, CountsStepsAsUpdatesWhereTheScheduleFlushes) {
  RunFolder folder({1, 1}, {1, 0}, /*microbatches=*/4);
  const Outcome run = outcomeOf(folder, {"--data=synthetic", "--steps=5", "--metrics", folder.path + "/metrics.jsonl"});
  ASSERT_EQ(run.code, 0) << run.errors;
  EXPECT_EQ(lines(folder.read("metrics.jsonl")).size(), 5u);
}

TEST(Run, ProfilesTheGroupsOfAOneStageProgram) {
  RunFolder folder({1}, {0});
  linear::forwardTime = linear::backwardTime = std::chrono::microseconds(2000);
  const Outcome run = outcomeOf(folder, {"--profile", folder.path + "/profile.json"});
  linear::forwardTime = linear::backwardTime = std::chrono::microseconds(0);
  ASSERT_EQ(run.code, 0) << run.errors;
  const nlohmann::json profile = nlohmann::json::parse(folder.read("profile.json"));
  const nlohmann::json& group = profile["groups"].at(0);
  EXPECT_EQ(group["name"], "linear");
  const double sum = static_cast<double>(group["forward_ms"]) + static_cast<double>(group["input_gradient_ms"]) +
                     static_cast<double>(group["weight_gradient_ms"]);
  EXPECT_GE(group["forward_ms"], 2.0);
  EXPECT_LT(group["weight_gradient_ms"], 1.0);
  EXPECT_NEAR(sum, profile["step_ms"], 0.05 * sum);
  EXPECT_GT(profile["data_ms"], 0.0); // copying the samples takes some time, but not that of a kernel
  EXPECT_LT(profile["data_ms"], 1.0);
}

struct BadCase {
  const char* name;
  int code;
  std::vector<std::string> flags;
  void (*spoil)(const RunFolder&);
  std::vector<std::string> says;
};

class BadRun : public testing::TestWithParam<BadCase> {};

TEST_P(BadRun, IsToldWithItsExitCode) {
  RunFolder folder({1, 1}, {2, 0});
  folder.writeData(12);
  GetParam().spoil(folder);
  std::vector<std::string> flags = GetParam().flags;
  for (std::string& flag : flags)
    if (std::size_t at = flag.find("$DIR"); at != std::string::npos) flag.replace(at, 4, folder.path);
  const Outcome run = outcomeOf(folder, flags);
  EXPECT_EQ(run.code, GetParam().code);
  EXPECT_EQ(run.errors.rfind("error: ", 0), 0u) << run.errors;
  for (const std::string& part : GetParam().says) EXPECT_TRUE(contains(run.errors, part)) << run.errors;
}

void nothing(const RunFolder&) {}

INSTANTIATE_TEST_SUITE_P(
    Errors, BadRun,
    testing::ValuesIn(std::vector<BadCase>{
        {"unknownFlag", 2, {"--date", "x"}, nothing, {"--date", "help: "}},
        {"noData", 2, {}, nothing, {"--data is missing"}},
        {"badNormalize", 2, {"--data=$DIR/data", "--normalize=0.5"}, nothing, {"--normalize=0.5 is not MEAN/STD"}},
        {"missingFolder",
         65,
         {"--data=$DIR/other"},
         nothing,
         {"other: is neither a folder nor a file", "help: give a folder with .npy files"}},
        {"missingFile",
         65,
         {"--data=$DIR/data"},
         [](const RunFolder& f) { std::filesystem::remove(f.path + "/data/target.npy"); },
         {"target.npy: cannot be read", "help: this stage reads "}},
        {"wrongShape",
         65,
         {"--data=$DIR/data"},
         [](const RunFolder& f) {
           const std::int64_t shape[] = {2, 3};
           const float values[6] = {};
           ASSERT_TRUE(writeNpy(f.path + "/data/x.npy", Element::f32, shape, std::as_bytes(std::span(values))));
         },
         {"has the shape [2, 3], input 'x' needs [samples, 5]"}},
        {"samplesDiffer",
         65,
         {"--data=$DIR/data"},
         [](const RunFolder& f) {
           const std::int64_t shape[] = {6, 5};
           const float values[30] = {};
           ASSERT_TRUE(writeNpy(f.path + "/data/target.npy", Element::f32, shape, std::as_bytes(std::span(values))));
         },
         {"sees 6 samples, another rank 12"}},
        {"noWeights",
         65,
         {"--data=$DIR/data"},
         [](const RunFolder& f) { std::filesystem::remove_all(f.path + "/weights"); },
         {"weights: holds no .safetensors file"}},
        {"noPlan",
         1,
         {"--data=$DIR/data"},
         [](const RunFolder& f) { std::filesystem::remove(f.path + "/plan.json"); },
         {"plan.json: cannot be read", "--dir"}},
        {"brokenSchedule",
         1,
         {"--data=$DIR/data"},
         [](const RunFolder& f) { f.write("schedule.txt", "nonsense\n"); },
         {"schedule.txt: "}},
        {"deadlock",
         1,
         {"--data=$DIR/data"},
         [](const RunFolder& f) {
           // The sender waits for the transfer at once, and the receiver for its gradient: as after a careless edit.
           Schedule schedule = f.schedule;
           for (Action& action : schedule.ranks[1].repeat)
             if (action.kind == ActionKind::sendBackward && !action.wait) action.wait = true;
           f.write("schedule.txt", toString(schedule));
         },
         {"schedule.txt cannot run 4 minibatches: ", "help: "}},
        {"badTraining",
         1,
         {"--data=$DIR/data"},
         [](const RunFolder& f) { f.write("training.json", R"({"lr": -1})"); },
         {"training.json: /lr is -1, expected a number of at least 0"}},
        {"otherModel",
         1,
         {"--data=$DIR/data"},
         [](const RunFolder& f) {
           std::string plan = f.read("plan.json");
           plan.replace(plan.find("0000"), 4, "1234");
           f.write("plan.json", plan);
         },
         {"model with the hash 0000, plan.json is for 1234"}},
        {"lossNotFinite",
         76,
         {"--data=$DIR/data", "--epochs=50", "--lr=1e38"},
         nothing,
         {"error: the loss of minibatch ", " is "}},
        {"cannotWrite",
         74,
         {"--data=$DIR/data", "--metrics=$DIR/no/such/folder.jsonl"},
         nothing,
         {"folder.jsonl: cannot be written"}},
        {"cannotExport",
         74,
         {"--data=$DIR/data", "--export-weights=$DIR/plan.json"},
         nothing,
         {"plan.json: cannot be written"}},
    }),
    [](const testing::TestParamInfo<BadCase>& test) { return test.param.name; });

TEST(Run, DrainsAndExportsAfterASignal) {
  RunFolder folder({1, 1}, {2, 0});
  linear::forwardTime = std::chrono::microseconds(1000);
  std::thread killer([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    ::kill(::getpid(), SIGTERM);
  });
  const Outcome run =
      outcomeOf(folder, {"--data=synthetic", "--steps=100000", "--export-weights", folder.path + "/trained"});
  killer.join();
  linear::forwardTime = std::chrono::microseconds(0);
  EXPECT_EQ(run.code, 75) << run.errors;
  EXPECT_TRUE(contains(run.errors, "stopped by a signal after "));
  EXPECT_TRUE(std::filesystem::exists(folder.path + "/trained/stage1.safetensors"));
}

} // namespace
