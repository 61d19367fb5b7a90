// LINK: pdcrt pdcSchedule
// pdcrt::run where ranks host several stages and backwards are in two halves: everything that a run tells and writes is
// what it is with one stage on each rank.
#include "MergedSchedule.h"
#include "RunFolder.h"

#include <nlohmann/json.hpp>

using namespace pdcrt;

namespace {

constexpr std::int64_t samples = 96; // 32 minibatches of 3, 8 updates

/// Stages 0 and 2 on rank 0, stage 1 on rank 1.
Schedule merged(const Schedule& apart) {
  const Merge merge = {.ranks = {{{0, 0}, {2, 0}}, {{1, 0}}}, .minibatches = 32, .handovers = 3, .seed = 4};
  return MergedSchedule::of(apart, merge);
}

Outcome outcomeOf(const RunFolder& folder, const std::string& results) {
  const std::string in = folder.path + "/" + results;
  return outcomeOf(folder, {"--data", folder.path + "/data", "--eval", folder.path + "/data", "--metrics",
                            in + ".jsonl", "--trace", in + ".json", "--export-weights", in, "--threads"});
}

class HostedStages : public testing::Test {
protected:
  void SetUp() override {
    folder.writeData(samples);
    apart = outcomeOf(folder, "apart");
    ASSERT_EQ(apart.code, 0) << apart.errors;
    folder.use(merged(folder.schedule));
    together = outcomeOf(folder, "together");
    ASSERT_EQ(together.code, 0) << together.errors;
  }

  RunFolder folder{{1, 1, 1}, {2, 1, 0}, /*microbatches=*/4};
  Outcome apart, together;
};

/// The lines of `text` that begin with `start`.
std::vector<std::string> linesOf(const std::string& text, const std::string& start) {
  std::vector<std::string> result;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);)
    if (line.rfind(start, 0) == 0) result.push_back(line);
  return result;
}

TEST_F(HostedStages, ExportTheSameWeightsAndState) {
  for (int s = 0; s < 3; ++s) {
    const std::string file = "/stage" + std::to_string(s) + ".safetensors";
    EXPECT_FALSE(folder.read("apart" + file).empty());
    EXPECT_EQ(folder.read("together" + file), folder.read("apart" + file));
  }
}

TEST_F(HostedStages, EvaluateToTheSame) {
  EXPECT_EQ(linesOf(apart.out, "test ").size(), 2u);
  EXPECT_EQ(linesOf(together.out, "test "), linesOf(apart.out, "test "));
}

TEST_F(HostedStages, WriteTheSameLosses) {
  const std::vector<std::string> a = linesOf(folder.read("apart.jsonl"), "{"),
                                 b = linesOf(folder.read("together.jsonl"), "{");
  ASSERT_EQ(a.size(), 8u + 1);
  ASSERT_EQ(b.size(), a.size());
  for (std::size_t i = 0; i < 8; ++i)
    EXPECT_EQ(nlohmann::json::parse(a[i])["loss"], nlohmann::json::parse(b[i])["loss"]) << i;
}

TEST_F(HostedStages, AreAllInTheTrace) {
  std::map<std::string, int> count; // "0 F2": forwards of stage 2 on rank 0
  const nlohmann::json trace = nlohmann::json::parse(folder.read("together.json"));
  for (const nlohmann::json& event : trace["traceEvents"])
    if (event["ph"] == "X" && event["cat"] != "wait") {
      const std::string name = event["name"];
      const std::size_t kind = name.find_first_not_of("0123456789"), end = name.find_first_of("0123456789", kind);
      ++count[std::to_string(static_cast<int>(event["pid"])) + " " + name.substr(kind, end - kind) +
              name.substr(0, kind)];
    }
  for (const char* forward : {"0 F0", "1 F1", "0 F2", "0 I0", "1 I1", "0 I2", "0 W0", "1 W1", "0 W2"})
    EXPECT_EQ(count[forward], 32) << forward;
  for (const char* update : {"0 U0", "1 U1", "0 U2"}) EXPECT_EQ(count[update], 8) << update;
}

TEST_F(HostedStages, HaveALineEachInTheSummary) {
  const std::vector<std::string> lines = linesOf(together.out, "    ");
  std::vector<std::pair<int, int>> found; // stage, rank
  for (const std::string& line : lines) {
    std::istringstream words(line);
    if (int stage = 0, rank = 0; words >> stage >> rank) found.push_back({stage, rank});
  }
  EXPECT_EQ(found, (std::vector<std::pair<int, int>>{{0, 0}, {1, 1}, {2, 0}})) << together.out;
}

TEST(HostedStagesErrors, AHandoverThatWouldBeOverwrittenIsRefused) {
  RunFolder folder({1, 1, 1}, {2, 1, 0}, /*microbatches=*/4);
  folder.writeData(samples);
  Schedule schedule = merged(folder.schedule);
  for (ScheduleStage& stage : schedule.stages) stage.handovers = 1;
  folder.use(schedule);
  const Outcome run = outcomeOf(folder, "run");
  EXPECT_EQ(run.code, 1);
  EXPECT_NE(run.errors.find("that waits for its weight gradients, the stage has 1 handovers"), std::string::npos)
      << run.errors;
}

TEST(HostedStagesErrors, AProgramWithoutAStageOfItsRankIsRefused) {
  RunFolder folder({1, 1, 1}, {2, 1, 0}, /*microbatches=*/4);
  folder.writeData(samples);
  folder.use(merged(folder.schedule));
  const std::string data = folder.path + "/data";
  std::vector<std::string> flags = {"rank0", "--dir", folder.path, "--data", data, "--threads"};
  std::vector<char*> arguments;
  for (std::string& flag : flags) arguments.push_back(flag.data());
  std::vector<const Stage*> stages = linear::linearStages(3);
  stages.pop_back();
  testing::internal::CaptureStderr();
  EXPECT_EQ(pdcrt::run(static_cast<int>(arguments.size()), arguments.data(), stages), 1);
  const std::string errors = testing::internal::GetCapturedStderr();
  EXPECT_NE(errors.find("rank 0 hosts stage 2, which this program does not contain"), std::string::npos) << errors;
}

} // namespace
