// LINK: pdcrt pdcSchedule
// Stages that teams compute (TeamStages.h): the weights are those of stages without teams, but for the order of sums;
// all members have the same bits, over threads, MPI and TCP; and a member that stops ends the run.
#include "OneLaneTransport.h"
#include "ProcessRun.h"
#include "RunFolder.h"
#include "TeamStages.h"
#include "ThreadRun.h"

#include "pdc/Schedule/PipelineShape.h"
#include "pdcrt/Checkpoint.h"
#include "pdcrt/Launcher.h"
#include "pdcrt/Run.h"
#include "transport/mpi/MpiTransport.h"
#include "transport/tcp/TcpTransport.h"

#include <cstdlib>
#include <filesystem>
#include <string>

using namespace pdcrt;

namespace {

constexpr std::int64_t minibatches = 24;
linear::NoiseData noise;

struct Pipeline {
  std::vector<int> replicas, teams;
  std::int64_t microbatches = 0;
  bool tied = false, norm = false;
};

Schedule scheduleOf(const Pipeline& of) {
  std::vector<pdc::StageShape> stages;
  for (std::size_t s = 0; s < of.replicas.size(); ++s)
    stages.push_back({.replicas = of.replicas[s],
                      .warmup = s == 0 && of.replicas.size() > 1
                                    ? (2 * of.replicas[1] + 2 * of.replicas[0] - 1) / of.replicas[0]
                                    : 0,
                      .syncDelay = of.microbatches == 0 && of.replicas[s] > 1 && of.replicas.size() > 1 ? 1 : 0});
  pdc::PipelineShape shape = pdc::straightShape(stages);
  shape.microbatches = of.microbatches;
  shape.gradientNorm = of.norm;
  if (of.tied) shape.shared.push_back({0, 1});
  Schedule schedule = pdc::buildSchedule(shape);
  for (std::size_t s = 0; s < of.teams.size(); ++s) schedule.stages[s].team = of.teams[s];
  return schedule;
}

Training trainingOf() {
  Training training;
  training.batch = linear::batch;
  training.learningRate = 0.05;
  return training;
}

void prepare(ThreadRun& run, const Schedule& schedule, const Pipeline& of) {
  run.schedule = &schedule;
  run.stages = linear::teamStages(of.teams, of.tied);
  run.training = trainingOf();
  run.data = &noise;
  run.readWeights = linear::readInitial;
}

bool train(ThreadRun& run) {
  return run.run([](Executor& executor, int) { return executor.train(0, minibatches); });
}

/// Trains, expects that all members of a replica have the same bits, and gives those of every replica.
std::vector<std::string> trained(ThreadRun& run, const Schedule& schedule) {
  EXPECT_TRUE(train(run)) << [&] {
    std::string all;
    for (const Status& status : run.statuses) all += status.message() + "\n";
    return all;
  }();
  std::vector<std::string> results;
  for (int s = 0; s < static_cast<int>(schedule.stages.size()); ++s)
    for (int r = 0; r < schedule.stages[static_cast<std::size_t>(s)].replicas; ++r) {
      results.push_back(bitsOf(run.hosted(s, r)));
      for (int m = 1; m < schedule.stages[static_cast<std::size_t>(s)].team; ++m)
        EXPECT_EQ(bitsOf(run.hosted(s, r, m)), results.back()) << "member " << m << " of " << s << "." << r;
    }
  return results;
}

std::vector<std::string> trained(const Pipeline& of, const std::function<void(ThreadRun&)>& change = {}) {
  const Schedule schedule = scheduleOf(of);
  ThreadRun run;
  prepare(run, schedule, of);
  if (change) change(run);
  return trained(run, schedule);
}

void expectNear(const std::vector<std::string>& ofTeams, const std::vector<std::string>& alone) {
  ASSERT_EQ(ofTeams.size(), alone.size());
  for (std::size_t i = 0; i < alone.size(); ++i) {
    ASSERT_EQ(ofTeams[i].size(), alone[i].size());
    const auto* a = reinterpret_cast<const float*>(ofTeams[i].data());
    const auto* b = reinterpret_cast<const float*>(alone[i].data());
    for (std::size_t k = 0; k < alone[i].size() / sizeof(float); ++k) EXPECT_NEAR(a[k], b[k], 2e-5) << i << " " << k;
  }
}

const std::vector<Pipeline> pipelines = {
    {.replicas = {1}, .teams = {2}},
    {.replicas = {1}, .teams = {3}},
    {.replicas = {2}, .teams = {2}},
    {.replicas = {1, 1}, .teams = {2, 2}},
    {.replicas = {2, 1}, .teams = {2, 2}},
    {.replicas = {1, 2}, .teams = {2, 2}, .microbatches = 4},
    {.replicas = {1, 1}, .teams = {2, 1}},
    {.replicas = {1, 1}, .teams = {1, 3}},
    {.replicas = {1, 1}, .teams = {2, 4}, .microbatches = 4},
    {.replicas = {1, 1}, .teams = {4, 3}, .microbatches = 4},
    {.replicas = {2, 2}, .teams = {2, 2}, .microbatches = 4, .tied = true},
    {.replicas = {1, 1}, .teams = {3, 2}, .microbatches = 4, .tied = true},
    {.replicas = {1, 1}, .teams = {2, 3}, .tied = true},
};

TEST(TeamRun, TrainsWhatStagesWithoutTeamsTrain) {
  for (const Pipeline& of : pipelines) {
    SCOPED_TRACE(testing::PrintToString(of.replicas) + " teams " + testing::PrintToString(of.teams));
    Pipeline alone = of;
    alone.teams.assign(of.teams.size(), 1);
    expectNear(trained(of), trained(alone));
  }
}

TEST(TeamRun, EvaluatesWhatStagesWithoutTeamsEvaluate) {
  const auto predictions = [](const Pipeline& of) {
    const Schedule schedule = scheduleOf(of);
    ThreadRun run;
    prepare(run, schedule, of);
    std::vector<std::vector<float>> results(static_cast<std::size_t>(Places(schedule).processes()));
    EXPECT_TRUE(run.run([&](Executor& executor, int process) {
      return executor.evaluate(5, noise, [&](const HostedStage& hosted, std::int64_t, const std::byte* slot) {
        const auto* y = reinterpret_cast<const float*>(slot + linear::outAt);
        if (hosted.host.stage == 1)
          results[static_cast<std::size_t>(process)].insert(results[static_cast<std::size_t>(process)].end(), y,
                                                            y + linear::batch * linear::width);
        return Status();
      });
    }));
    return results;
  };
  const auto teams = predictions({.replicas = {1, 1}, .teams = {2, 2}}),
             alone = predictions({.replicas = {1, 1}, .teams = {1, 1}});
  EXPECT_EQ(teams[2], teams[3]);
  ASSERT_EQ(teams[2].size(), alone[1].size());
  for (std::size_t i = 0; i < alone[1].size(); ++i) EXPECT_NEAR(teams[2][i], alone[1][i], 1e-6);
}

/// Clipped by the norm over all stages, and by that of each stage alone.
TEST(TeamRun, ClipsByTheSameNorm) {
  for (const ClipScope scope : {ClipScope::global, ClipScope::stage}) {
    const auto clip = [&](ThreadRun& run) {
      run.training.clipNorm = 0.05;
      run.training.clipScope = scope;
    };
    Pipeline of = {.replicas = {2, 1}, .teams = {2, 3}, .microbatches = 4, .norm = scope == ClipScope::global};
    const std::vector<std::string> teams = trained(of, clip);
    EXPECT_NE(teams, trained(of));
    of.teams = {1, 1};
    expectNear(teams, trained(of, clip));
  }
}

/// Of one stage alone: gains that are called divided count once for each member.
TEST(TeamRun, EveryMemberCountsItsPartsInTheNorm) {
  const auto stepOf = [&](int members, bool isDivided) {
    const Pipeline of = {.replicas = {1}, .teams = {members}};
    const Schedule schedule = scheduleOf(of);
    ThreadRun run;
    prepare(run, schedule, of);
    run.training.clipNorm = 1e-3; // so that the step is the gradient over its norm
    std::vector<ParameterRow> rows(run.stages[0]->parameters.begin(), run.stages[0]->parameters.end());
    for (ParameterRow& row : rows)
      if (isDivided) row.part = {.of = members, .wholeSize = members * row.shape.dims[0]};
    Stage stage = *run.stages[0];
    stage.parameters = rows;
    run.stages = {&stage};
    EXPECT_TRUE(run.run([](Executor& executor, int) { return executor.train(0, 1); }));
    const auto* gain = reinterpret_cast<const float*>(run.weights(0, 0) + linear::gainAt);
    float first = 0;
    EXPECT_TRUE(linear::readInitial("g0", Element::f32, {1}, std::as_writable_bytes(std::span(&first, 1))));
    return static_cast<double>(gain[0] - first);
  };
  EXPECT_NEAR(stepOf(3, false) / stepOf(1, false), 1, 1e-3);
  // Three members that each count everything: a norm that is √3 times as large.
  EXPECT_NEAR(stepOf(1, false) / stepOf(3, true), std::sqrt(3.0), 3e-3);
}

/// Where members have terms of gradients, those are summed over the members too, but for parameters of which they have
/// parts; also over one lane with turns, where both sums have the same turn.
TEST(TeamRun, SumsOverMembersLeaveOutParts) {
  const auto stepsOf = [&](bool sums, bool overLanes) {
    const Pipeline of = {.replicas = {2}, .teams = {2}, .microbatches = 4};
    Schedule schedule = scheduleOf(of);
    schedule.stages[0].teamSums = sums;
    ThreadRun run;
    prepare(run, schedule, of);
    const auto lanes = std::make_shared<one_lane::Lanes>();
    if (overLanes)
      run.makeTransports = [&](int ranks) { return one_lane::makeTransports(ranks, /*ordered=*/true, lanes); };
    std::vector<ParameterRow> rows(run.stages[0]->parameters.begin(), run.stages[0]->parameters.end());
    for (ParameterRow& row : rows)
      if (row.name == std::string("g0")) row.part = {.of = 2, .wholeSize = 2 * row.shape.dims[0]};
    Stage stage = *run.stages[0];
    stage.parameters = rows;
    run.stages = {&stage};
    EXPECT_TRUE(run.run([](Executor& executor, int) { return executor.train(0, 4); }));
    std::vector<std::pair<float, float>> steps; // of the gain and of a weight, by member
    for (int replica : {0, 1})
      for (int member : {0, 1}) {
        const auto step = [&](const char* name, std::size_t at) {
          float first = 0;
          EXPECT_TRUE(linear::readInitial(name, Element::f32, {1}, std::as_writable_bytes(std::span(&first, 1))));
          return *reinterpret_cast<const float*>(run.weights(0, replica, member) + at) - first;
        };
        steps.emplace_back(step("g0", linear::gainAt), step("w0", linear::weightAt));
      }
    return steps;
  };
  const auto alone = stepsOf(false, false), together = stepsOf(true, false);
  for (std::size_t i = 0; i < together.size(); ++i) {
    EXPECT_EQ(together[i], together[0]);
    EXPECT_NEAR(together[i].first / alone[0].first, 1, 1e-3);
    EXPECT_NEAR(together[i].second / alone[0].second, 2, 2e-3);
  }
  EXPECT_EQ(stepsOf(true, true), together);
}

TEST(TeamRun, AMemberThatStopsEndsTheRunAsARankDoes) {
  const Pipeline of = {.replicas = {1, 1}, .teams = {2, 2}};
  const Schedule schedule = scheduleOf(of);
  ThreadRun run;
  prepare(run, schedule, of);
  EXPECT_FALSE(run.run([](Executor& executor, int process) {
    return process == 1 ? Status(Exit::noDevice, "this member stops") : executor.train(0, minibatches);
  }));
  for (int process : {0, 2, 3}) {
    EXPECT_EQ(run.statuses[static_cast<std::size_t>(process)].code(), Exit::again) << process;
    EXPECT_EQ(run.statuses[static_cast<std::size_t>(process)].message(), "another rank has stopped") << process;
  }
}

const std::vector<Pipeline> overLanesOf = {{.replicas = {1, 1}, .teams = {2, 2}},
                                           {.replicas = {2, 1}, .teams = {2, 2}, .microbatches = 4},
                                           {.replicas = {1, 1}, .teams = {3, 3}, .microbatches = 4, .tied = true},
                                           {.replicas = {1, 1}, .teams = {2, 4}, .microbatches = 4},
                                           {.replicas = {2, 1}, .teams = {3, 2}, .microbatches = 4, .tied = true},
                                           {.replicas = {1, 1}, .teams = {2, 3}, .tied = true}};

/// Each process has one lane for transfers, in their turns, and one for its team, or one for both, and nothing is
/// buffered.
TEST(TeamRun, EndsOverOneLaneEach) {
  for (const bool oneForAll : {false, true})
    for (const Pipeline& of : overLanesOf) {
      const auto lanes = std::make_shared<one_lane::Lanes>();
      lanes->oneForAll = oneForAll;
      const auto overLanes = [&](ThreadRun& run) {
        run.makeTransports = [&](int ranks) { return one_lane::makeTransports(ranks, /*ordered=*/true, lanes); };
      };
      EXPECT_EQ(trained(of, overLanes), trained(of));
      EXPECT_FALSE(lanes->deadlock);
    }
}

/// Where transfers and collectives share a lane and start when they are posted, not in their turns.
TEST(TeamRun, StandsOverOneLaneWithoutTurns) {
  int deadlocks = 0;
  for (int attempt = 0; attempt < 20 && deadlocks == 0; ++attempt)
    for (const Pipeline& of : overLanesOf) {
      const auto lanes = std::make_shared<one_lane::Lanes>();
      lanes->oneForAll = true;
      const Schedule schedule = scheduleOf(of);
      ThreadRun run;
      prepare(run, schedule, of);
      run.makeTransports = [&](int ranks) { return one_lane::makeTransports(ranks, /*ordered=*/false, lanes); };
      const bool ended = train(run);
      EXPECT_EQ(ended, !lanes->deadlock);
      deadlocks += lanes->deadlock;
    }
  EXPECT_GT(deadlocks, 0);
}

/// The processes of TrainsTheBitsOfThreads: each trains, and leaves its weights.
TEST(TeamProcess, DISABLED_Trains) {
  const Pipeline of = pipelines[static_cast<std::size_t>(std::atoi(std::getenv("TEST_PIPELINE")))];
  const Schedule schedule = scheduleOf(of);
  const Places places(schedule);
  std::unique_ptr<Transport> transport;
  const bool synchronous = std::getenv("TEST_SYNCHRONOUS") != nullptr;
  const Status joined =
      meetingPoint().empty()
          ? openMpi(places.processes(), {.synchronousSends = synchronous}, transport)
          : openTcp(places.processes(), {.rank = launchedAs()->rank, .meeting = meetingPoint(), .patience = 60},
                    transport);
  ASSERT_TRUE(joined) << joined.message();
  const Place place = places.at(transport->rank());
  const std::vector<const Stage*> stages = linear::teamStages(of.teams, of.tied);
  const Training training = trainingOf();
  {
    Communicator communicator(*transport);
    Executor executor({.schedule = &schedule,
                       .rank = place.rank,
                       .member = place.member,
                       .stages = stages,
                       .training = &training,
                       .communicator = &communicator,
                       .data = &noise});
    Status status = executor.prepare();
    if (status) status = executor.setWeights(linear::readInitial);
    if (status) status = executor.train(0, minibatches);
    ASSERT_TRUE(status) << status.message();
    for (const HostedStage& hosted : executor.hosted())
      ASSERT_TRUE(writeAtomically(std::getenv("TEST_FOLDER") + std::string("/stage") +
                                      std::to_string(hosted.host.stage) + "." + std::to_string(hosted.host.replica) +
                                      "." + std::to_string(hosted.member),
                                  bitsOf(hosted)));
  }
}

class TeamProcesses : public testing::TestWithParam<int> {};

TEST_P(TeamProcesses, TrainTheBitsOfThreads) {
  const Pipeline& of = pipelines[static_cast<std::size_t>(GetParam())];
  const Schedule schedule = scheduleOf(of);
  const std::vector<std::string> threads = trained(of);
  const auto count = static_cast<std::size_t>(Places(schedule).processes());
  for (const char* way : {"mpi", "synchronous mpi", "tcp"}) {
    std::string folder = testing::TempDir() + "pdcrt-team-XXXXXX";
    ASSERT_NE(::mkdtemp(folder.data()), nullptr);
    const std::string variables = "TEST_PIPELINE=" + std::to_string(GetParam()) +
                                  (way == std::string("synchronous mpi") ? " TEST_SYNCHRONOUS=1" : "");
    const processes::Finished run =
        way == std::string("tcp") ? processes::startOneByOne(count, "TeamProcess.DISABLED_Trains", variables, folder)
                                  : processes::mpirun(count, "TeamProcess.DISABLED_Trains", variables, folder);
    ASSERT_EQ(run.code, 0) << way << ": " << run.log;
    std::size_t i = 0;
    for (int s = 0; s < static_cast<int>(schedule.stages.size()); ++s)
      for (int r = 0; r < schedule.stages[static_cast<std::size_t>(s)].replicas; ++r, ++i)
        for (int m = 0; m < schedule.stages[static_cast<std::size_t>(s)].team; ++m) {
          std::string bytes;
          ASSERT_TRUE(readText(
              folder + "/stage" + std::to_string(s) + "." + std::to_string(r) + "." + std::to_string(m), bytes));
          EXPECT_EQ(bytes, threads[i]) << way << ", member " << m << " of " << s << "." << r;
        }
    std::filesystem::remove_all(folder);
  }
}

INSTANTIATE_TEST_SUITE_P(Pipelines, TeamProcesses, testing::Values(1, 4, 6, 11));

// ---- Whole runs ----

/// A folder of two stages with these teams.
class TeamFolder : public RunFolder {
public:
  explicit TeamFolder(std::vector<int> ofStages)
      : RunFolder({1, 1}, {1, 0}, 2), teams(std::move(ofStages)), stages(linear::teamStages(teams)) {
    Schedule withTeams = schedule;
    for (std::size_t s = 0; s < teams.size(); ++s) withTeams.stages[s].team = teams[s];
    use(withTeams);
    writeData(24);
  }

  /// What a run with these flags prints.
  std::string run(std::vector<std::string> flags, int code = 0) const {
    flags.insert(flags.begin(), {"pipeline", "--threads", "--dir", path, "--data", path + "/data"});
    std::vector<char*> arguments;
    for (std::string& flag : flags) arguments.push_back(flag.data());
    testing::internal::CaptureStdout();
    EXPECT_EQ(pdcrt::run(static_cast<int>(arguments.size()), arguments.data(), stages), code);
    return testing::internal::GetCapturedStdout();
  }
  /// The exported weights of a stage.
  std::vector<float> weights(const std::string& folder, int stage) const {
    SafetensorsFile file;
    std::vector<float> values;
    EXPECT_TRUE(file.open(path + "/" + folder + "/stage" + std::to_string(stage) + ".safetensors"));
    for (const std::string name : {"w", "g", "mean"}) {
      const TensorRecord* record = file.find(name + std::to_string(stage));
      if (!record) return {};
      const std::size_t before = values.size();
      values.resize(before + record->values.size() / sizeof(float));
      file.copyOut(*record, reinterpret_cast<std::byte*>(values.data() + before));
    }
    return values;
  }

  std::vector<int> teams;
  std::vector<const Stage*> stages;
};

std::size_t countOf(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(TeamRun, WholeRunsTellAndWriteOnce) {
  const TeamFolder teams({2, 3}), alone({1, 1});
  std::string told;
  for (const TeamFolder* folder : {&teams, &alone}) {
    const std::string out =
        folder->run({"--epochs=3", "--eval", folder->path + "/data", "--metrics", folder->path + "/metrics.jsonl",
                     "--trace", folder->path + "/trace.json", "--export-weights", folder->path + "/weights.out"});
    EXPECT_EQ(countOf(out, "test loss"), 1u) << out;
    const std::string result =
        out.substr(out.find("test loss"), out.find('\n', out.find("test loss")) - out.find("test loss"));
    if (folder == &teams) told = result;
    EXPECT_EQ(result, told);
    EXPECT_EQ(countOf(folder->read("metrics.jsonl"), "\"loss\""), 24u / linear::batch * 3 / 2);
    EXPECT_EQ(countOf(folder->read("trace.json"), "process_name"), 2u);
    if (folder != &teams) continue;
    for (const char* row : {"\n  0:0  ", "\n  0:1  ", "\n  1:0  ", "\n  1:1  ", "\n  1:2  "})
      EXPECT_EQ(countOf(out, row), 1u) << out;
  }
  for (int stage = 0; stage < 2; ++stage) {
    const std::vector<float> a = teams.weights("weights.out", stage), b = alone.weights("weights.out", stage);
    ASSERT_EQ(a.size(), b.size());
    ASSERT_FALSE(a.empty());
    for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 2e-5);
  }
}

TEST(TeamRun, GoesOnFromACheckpointWithTheBitsOfOneRun) {
  const TeamFolder whole({2, 2}), resumed({2, 2});
  whole.run({"--epochs=4", "--export-weights", whole.path + "/end"});
  resumed.run({"--epochs=2", "--checkpoint-dir", resumed.path + "/checkpoints"});
  resumed.run({"--epochs=4", "--checkpoint-dir", resumed.path + "/checkpoints", "--resume", "--export-weights",
               resumed.path + "/end"});
  for (int stage = 0; stage < 2; ++stage) EXPECT_EQ(resumed.weights("end", stage), whole.weights("end", stage));
}

/// What a broken device does: one member gets other bits of a gradient that all have whole.
void differentiateWrongly(const Call& c) {
  linear::LinearStage<1, 2>::stage.backwardWeight(c);
  if (c.stream->member() == 2) *reinterpret_cast<float*>(c.gradients) *= 1.001F;
}

TEST(TeamRun, MembersThatBecomeDifferentEndTheRun) {
  TeamFolder folder({2, 3});
  Stage spoilt = *folder.stages[1];
  spoilt.backwardWeight = differentiateWrongly;
  folder.stages[1] = &spoilt;
  const std::string checkpoints = folder.path + "/checkpoints";
  for (const std::vector<std::string>& flags :
       {std::vector<std::string>{"--epochs=1"},
        {"--epochs=4", "--checkpoint-dir", checkpoints, "--checkpoint-every=2"}}) {
    testing::internal::CaptureStderr();
    folder.run(flags, static_cast<int>(Exit::noDevice));
    const std::string told = testing::internal::GetCapturedStderr();
    EXPECT_EQ(countOf(told, "members of the team of stage 1 have other bits of 'w1'"), 1u) << told;
    EXPECT_EQ(countOf(told, "member 0 has"), 1u) << told;
    EXPECT_EQ(countOf(told, "member 2 has"), 1u) << told;
  }
  for (const CheckpointEntry& entry : listCheckpoints(checkpoints)) EXPECT_FALSE(entry.complete);
}

/// Members lie one behind the other, again and again.
TEST(TeamRun, EveryMemberGathersWhatAllHave) {
  const Pipeline of = {.replicas = {1, 1}, .teams = {3, 2}, .microbatches = 4};
  const Schedule schedule = scheduleOf(of);
  ThreadRun run;
  prepare(run, schedule, of);
  EXPECT_TRUE(run.run([](Executor& executor, int process) {
    const HostedStage& hosted = executor.hosted()[0];
    for (std::uint32_t round = 0; round < 3; ++round) {
      const std::uint32_t own[] = {100 * round + static_cast<std::uint32_t>(process), 7};
      std::vector<std::uint32_t> all(2 * static_cast<std::size_t>(hosted.members)), expected;
      if (Status status = executor.gatherFromTeam(hosted, own, all); !status) return status;
      for (int member = 0; member < hosted.members; ++member) {
        expected.push_back(100 * round + static_cast<std::uint32_t>(process - hosted.member + member));
        expected.push_back(7);
      }
      EXPECT_EQ(all, expected);
    }
    return Status();
  }));
}

TEST(TeamRun, ProgramsOfOtherTeamsAreRefused) {
  const Pipeline of = {.replicas = {1}, .teams = {2}};
  const Schedule schedule = scheduleOf(of);
  ThreadRun run;
  prepare(run, schedule, of);
  run.stages = linear::teamStages({3});
  EXPECT_FALSE(train(run));
  EXPECT_EQ(run.statuses[0].message(), "stage 0 was generated for teams of 3, schedule.txt has teams of 2");
}

} // namespace
