// LINK: pdcSchedule
// Schedules in files: what is printed is read again as the same, PyTorch's CSV both ways, and what is refused.
#include "Rounds.h"

#include "pdc/Schedule/ScheduleFile.h"
#include "pdc/Support/Diagnostics.h"
#include "pdcrt/Verify.h"

#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <map>
#include <optional>
#include <random>

using namespace pdc;

namespace {

/// The batch of a CSV; a failure is an error of the test.
TorchBatch batchOf(const std::string& csv) {
  Diagnostics diags(nullptr);
  Expected<TorchBatch> batch = torchBatchFromCsv(csv, "x.csv", diags);
  EXPECT_TRUE(batch) << csv << (diags.all().empty() ? "" : diags.all()[0].message);
  return batch ? *batch : TorchBatch();
}

/// "line:column: what is wrong" with a CSV.
std::string errorOf(const std::string& csv) {
  Diagnostics diags(nullptr);
  if (torchBatchFromCsv(csv, "x.csv", diags)) return "";
  const Diagnostic& error = diags.all()[0];
  return std::to_string(error.location.line) + ":" + std::to_string(error.location.column) + ": " + error.message;
}

std::string csvOf(const pdcrt::Schedule& schedule) {
  Diagnostics diags(nullptr);
  Expected<std::string> csv = torchCsv(schedule, diags);
  return csv ? *csv : "error: " + diags.all()[0].message;
}

PipelineShape edgesOf(std::size_t stages) {
  return straightShape(std::vector<StageShape>(stages));
}

/// What each rank computes in one batch, without updates.
std::vector<std::string> computations(const pdcrt::Schedule& schedule) {
  std::vector<std::string> ranks;
  for (std::size_t r = 0; r < schedule.ranks.size(); ++r) {
    ranks.emplace_back();
    for (const pdcrt::Action& action : expand(schedule, static_cast<int>(r), schedule.minibatchesPerUpdate))
      if (pdcrt::isComputation(action.kind) && action.kind != pdcrt::ActionKind::update)
        ranks.back() += toString(action) + " ";
  }
  return ranks;
}

PipelineShape flushing(const std::string& kind, std::vector<StageShape> stages, std::int64_t microbatches) {
  PipelineShape shape = straightShape(stages);
  shape.kind = kind;
  shape.microbatches = microbatches;
  return shape;
}

} // namespace

// A forward of stage s takes step s + b at the earliest; 1F1B with two stages, by hand.
TEST(TorchCsv, StepsAreThoseOfUnitTimes) {
  EXPECT_EQ(csvOf(buildSchedule(flushing("1f1b-flush", {{1, 1, 0}, {1, 0, 0}}, 3))), "0F0,0F1,,0B0,0F2,0B1,,0B2\n"
                                                                                     ",1F0,1B0,1F1,1B1,1F2,1B2\n");
  EXPECT_EQ(csvOf(buildSchedule(flushing("gpipe", {{1, 1, 0}, {1, 0, 0}}, 2))), "0F0,0F1,,,0B0,0B1\n"
                                                                                ",1F0,1F1,1B0,1B1\n");
}

TEST(TorchCsv, RoundTripKeepsEveryComputation) {
  for (std::int64_t m : {1, 2, 4, 8})
    for (const char* kind : {"1f1b-flush", "gpipe", "zb-h1"})
      for (int replicas : {1, 2}) {
        if (m % replicas != 0) continue;
        pdcrt::Schedule schedule =
            buildSchedule(flushing(kind, {{1, 2 * replicas, 0}, {replicas, 1, 0}, {1, 0, 0}}, m));
        if (!pdcrt::checkEveryDrain(schedule).passed) continue; // warm-ups that do not go with one another
        TorchBatch batch = batchOf(csvOf(schedule));
        EXPECT_EQ(batch.microbatches, m);
        pdcrt::Schedule back = scheduleOfBatch(batch, edgesOf(3));
        EXPECT_EQ(pdcrt::checkEveryDrain(back).problem, "") << toString(back);
        EXPECT_EQ(computations(back), computations(schedule));
        EXPECT_EQ(csvOf(back), csvOf(schedule));
      }
}

TEST(TorchCsv, ReadsRanksThatHostStages) {
  for (const char* kind : {"interleaved:2", "zb-v", "bfs:2"})
    for (std::int64_t m : {4, 8}) {
      pdcrt::Schedule schedule = buildSchedule(flushing(kind, std::vector<StageShape>(4), m));
      pdcrt::Schedule back = scheduleOfBatch(batchOf(csvOf(schedule)), edgesOf(4));
      EXPECT_EQ(pdcrt::checkEveryDrain(back).problem, "") << toString(back);
      EXPECT_EQ(computations(back), computations(schedule));
      for (std::size_t r = 0; r < 2; ++r) EXPECT_EQ(back.ranks[r].hosts, schedule.ranks[r].hosts);
    }
}

// Whatever order PyTorch would accept, executed in any interleaving: random topological orders.
TEST(TorchCsv, RandomOrdersRun) {
  std::mt19937 random(3);
  for (int round = 0; round < rounds(200); ++round) {
    const int ranks = 1 + static_cast<int>(random() % 3), stages = ranks * (1 + static_cast<int>(random() % 2));
    const std::int64_t m = 1 + static_cast<std::int64_t>(random() % 6);
    // Next forward, input gradient and weight gradient of each stage; whatever is possible may come next.
    std::vector<std::array<std::int64_t, 3>> done(static_cast<std::size_t>(stages));
    std::vector<std::string> rows(static_cast<std::size_t>(ranks));
    std::vector<std::string> expected = rows;
    for (std::int64_t left = 3 * m * stages; left > 0;) {
      const auto s = random() % static_cast<std::size_t>(stages), what = random() % 3;
      std::int64_t& next = done[s][what];
      const bool last = s + 1 == static_cast<std::size_t>(stages);
      bool possible = next < m;
      if (what == 0) possible = possible && (s == 0 || done[s - 1][0] > next);
      if (what == 1) possible = possible && done[s][0] > next && (last || done[s + 1][1] > next);
      if (what == 2) possible = possible && done[s][1] > next;
      if (!possible) continue;
      const bool full = what == 1 && done[s][2] == next && random() % 2;
      std::string cell = std::to_string(s) + (full ? "B" : std::string(1, "FIW"[what])) + std::to_string(next);
      rows[s % static_cast<std::size_t>(ranks)] += (random() % 3 ? "" : ",") + cell + ",";
      expected[s % static_cast<std::size_t>(ranks)] += cell + " ";
      ++next;
      if (full) ++done[s][2];
      left -= full ? 2 : 1;
    }
    std::string csv;
    for (const std::string& row : rows) csv += row + "\r\n";
    pdcrt::Schedule schedule = scheduleOfBatch(batchOf(csv), edgesOf(static_cast<std::size_t>(stages)));
    ASSERT_EQ(pdcrt::checkEveryDrain(schedule).problem, "") << csv << toString(schedule);
    EXPECT_EQ(computations(schedule), expected) << csv;
  }
}

TEST(TorchCsv, ReadsCommunicationAndOverlap) {
  Diagnostics diags(nullptr);
  Expected<TorchBatch> batch = torchBatchFromCsv("0UNSHARD,0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD,0RESHARD\n"
                                                 "1RECV_F0,(1F0;1B0)OVERLAP_F_B,1SEND_B0\n",
                                                 "x.csv", diags);
  ASSERT_TRUE(batch);
  EXPECT_EQ(computations(scheduleOfBatch(*batch, edgesOf(2))), (std::vector<std::string>{"0F0 0B0 ", "1F0 1B0 "}));
  ASSERT_EQ(diags.all().size(), 2u);
  EXPECT_EQ(diags.all()[0].message,
            "RECV_B, RECV_F, REDUCE_GRAD, RESHARD, SEND_B, SEND_F, UNSHARD left out: transfers and "
            "sums follow from the plan");
  EXPECT_EQ(diags.all()[1].message, "OVERLAP_F_B: a rank computes one after the other");
}

TEST(TorchCsv, SaysWhatIsWrongAndWhere) {
  EXPECT_EQ(errorOf("0F0,0B0\n"), "");
  EXPECT_EQ(errorOf(" \n\n"), "0:0: expected a row of computations for each rank, got an empty file");
  EXPECT_EQ(errorOf("0F0,0X0,0B0\n"), "1:5: '0X0' is no computation of a pipeline schedule");
  EXPECT_EQ(errorOf("0F0,0F,0B0\n"), "1:5: '0F' is no computation of a pipeline schedule");
  EXPECT_EQ(errorOf("F0\n"), "1:1: 'F0' is no computation of a pipeline schedule");
  EXPECT_EQ(errorOf("0F0,0B0;\n"), "1:5: '0B0;' is no computation of a pipeline schedule");
  EXPECT_EQ(errorOf("0F99999999999999999999\n"),
            "1:1: '0F99999999999999999999' is no computation of a pipeline schedule");
  EXPECT_EQ(errorOf("(0F0;0B0)TOGETHER\n"), "1:1: '(0F0;0B0)TOGETHER' is no computation of a pipeline schedule");
  EXPECT_EQ(errorOf("0F0,0BW0\n"), "1:5: '0BW0': BW is no letter of a computation");
  EXPECT_EQ(errorOf("0F0,0B0,0W0\n"), "1:9: '0W0' comes after the weight gradient of the same microbatch");
  EXPECT_EQ(errorOf("0F0,0B0,0B0\n"), "1:9: '0B0' comes after the backward of the same microbatch");
  EXPECT_EQ(errorOf("0F0,0F0,0B0\n"), "1:5: '0F0' comes after the forward of microbatch 0; a stage computes its "
                                      "microbatches in order");
  EXPECT_EQ(errorOf("0F0,0F1,0B1,0B0\n"), "1:9: '0B1' comes before the backward of microbatch 0; a stage computes its "
                                          "microbatches in order");
  EXPECT_EQ(errorOf("0B0,0F0\n"), "1:1: '0B0' comes before its forward");
  EXPECT_EQ(errorOf("0F0,0W0,0I0\n"), "1:5: '0W0' comes before its input gradient");
  EXPECT_EQ(errorOf("0F0,0B0\n1F0\n"), "2:0: stage 1 lacks the backward of microbatch 0");
  EXPECT_EQ(errorOf("0F0,0I0\n"), "1:0: stage 0 lacks the weight gradient of the backward of microbatch 0");
  EXPECT_EQ(errorOf("0F0,0B0\n2F0,2B0\n"), "2:0: stage 1 is missing, there is a stage 2");
  EXPECT_EQ(errorOf("0F1,0B1\n"), "1:0: stage 0 lacks the forward of microbatch 0");
  EXPECT_EQ(errorOf("0F0,0F1,0B0,0B1\n1F0,1B0\n"), "2:0: stage 1 has 1 microbatches, others 2");
  EXPECT_EQ(errorOf("0F0,0B0\n,,\n1F0,1B0\n"), "2:0: rank 1 computes nothing");
  // A stage of two rows has two replicas, with every other microbatch.
  EXPECT_EQ(errorOf("0F0,0B0,0F2,0B2\n0F1,0B1,0F3,0B3\n"), "");
  EXPECT_EQ(errorOf("0F0,0B0,0F1,0B1\n0F2,0B2,0F3,0B3\n"), "1:0: stage 0 lacks the forward of microbatch 2");
  EXPECT_EQ(errorOf("0F0,0B0,1F0,1B0,0F1,0B1,1F1,1B1\n0F2,0B2\n").empty(), false);
}

TEST(TorchCsv, IsForBatchesThatAreAlike) {
  EXPECT_EQ(csvOf(buildSchedule(straightShape({{1, 1, 0}, {1, 0, 0}}))),
            "error: PyTorch's CSV holds one batch, after which the pipeline drains; '1f1b' does not drain");
  EXPECT_EQ(csvOf(buildSchedule(flushing("2bw", {{1, 1, 0}, {1, 0, 0}}, 4))),
            "error: PyTorch's CSV holds one batch, after which the pipeline drains; '2bw' does not drain");
  EXPECT_EQ(csvOf(buildSchedule(flushing("gpipe", {{2, 1, 0}, {1, 0, 0}}, 3))),
            "error: the batches of stage 0 differ: 3 microbatches over 2 replicas");
}

namespace {

/// The file of a text; a failure leaves its message in `error`.
std::optional<ScheduleFile> read(const std::string& name, const std::string& text, std::string* error = nullptr) {
  const std::string path = testing::TempDir() + name;
  std::ofstream(path) << text;
  Diagnostics diags(nullptr);
  Expected<ScheduleFile> file = readScheduleFile(path, diags);
  if (error && !file) *error = diags.all()[0].message;
  if (!file) return std::nullopt;
  return std::move(*file);
}

} // namespace

// What planners ask of lists that were written by hand is what they ask of the kind that made these lists.
TEST(GivenSchedule, SaysWhatTheListsSay) {
  for (const char* name : {"1f1b", "1f1b-flush", "gpipe", "2bw", "zb-h1", "zb-v", "interleaved:2", "bfs:2"}) {
    const ScheduleKind kind(name);
    PipelineShape shape = straightShape(std::vector<StageShape>(4));
    for (int s = 0; s < 4; ++s) shape.stages[static_cast<std::size_t>(s)].warmup = 3 - s;
    shape.kind = kind;
    shape.microbatches = kind->hasBatches ? 4 : 0;
    const pdcrt::Schedule schedule = buildSchedule(shape);
    std::string text = toString(schedule);
    text.replace(text.find(name), std::string(name).size(), "mine");
    const std::optional<ScheduleFile> file = read("mine.schedule", text);
    ASSERT_TRUE(file) << name;
    const ScheduleDef& given = *file->shape.kind;
    EXPECT_TRUE(given.isGiven);
    EXPECT_EQ(given.hasBatches, kind->hasBatches) << name;
    EXPECT_EQ(given.flushes, kind->flushes) << name;
    EXPECT_EQ(given.inFlightFitsBatch, kind->inFlightFitsBatch) << name;
    EXPECT_EQ(given.splitsBackward, kind->splitsBackward) << name;
    EXPECT_EQ(given.stagesPerRank, kind->stagesPerRank) << name;
    for (int s = 0; s < 4; ++s) {
      const auto at = static_cast<std::size_t>(s);
      EXPECT_EQ(given.rankOfStage(s, 4), kind->stagesPerRank > 1 ? kind->rankOfStage(s, 4) : 0) << name;
      EXPECT_EQ(given.depths(4, {}, {}, s).slots, schedule.stages[at].slots) << name;
      EXPECT_EQ(given.depths(4, {}, {}, s).handovers, schedule.stages[at].handovers) << name;
      EXPECT_EQ(given.versions(shape.weights, {}, {}, s), schedule.stages[at].versions) << name;
    }
    // For these edges, the lists; for others, none.
    PipelineShape own = shape;
    own.kind = file->shape.kind;
    EXPECT_EQ(toString(buildSchedule(own)), text);
    own.edges.pop_back();
    EXPECT_TRUE(buildSchedule(own).ranks.empty()) << name;
    // A plan file says the same without the lists.
    const std::optional<ScheduleKind> named = ScheduleKind::named(given.name);
    ASSERT_TRUE(named) << given.name;
    EXPECT_EQ((*named)->hasBatches, given.hasBatches);
    EXPECT_EQ((*named)->flushes, given.flushes);
    EXPECT_EQ((*named)->splitsBackward, given.splitsBackward);
    EXPECT_EQ((*named)->stagesPerRank, given.stagesPerRank);
  }
  EXPECT_FALSE(ScheduleKind::named("given:"));
  EXPECT_FALSE(ScheduleKind::named("given:flush,1"));
  EXPECT_FALSE(ScheduleKind::named("given:flush,split,"));
}

TEST(GivenSchedule, RefusesWhatNoPlanHas) {
  std::string error;
  EXPECT_FALSE(read("unequal.csv", "0F0,1F0,1B0,0B0\n2F0,2B0\n", &error));
  EXPECT_EQ(error, "rank 0 hosts 2 stages, rank 1 hosts 1: there is no plan for that");
  pdcrt::Schedule schedule;
  schedule.kind = "mine";
  schedule.minibatchesPerUpdate = 2;
  schedule.stages = {{.replicas = 2}, {}, {}};
  schedule.ranks = {{.hosts = {{0, 0}, {1, 0}}, .step = 2}, {.hosts = {{0, 1}, {2, 0}}, .step = 2}};
  EXPECT_FALSE(read("copies.schedule", toString(schedule), &error));
  EXPECT_EQ(error, "stage 0 has 2 replicas, stage 1 has 1: ranks that host several stages are copies of one pipeline");
}
