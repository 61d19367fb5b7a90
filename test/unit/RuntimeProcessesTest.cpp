// LINK: pdcrt pdcSchedule
// Transports `mpi` and `tcp`: the same bits as `threads`, whether MPI may buffer sends or not, and the same bytes. The
// test starts itself as ranks, which run the disabled tests at the end.
#include "MergedSchedule.h"
#include "ProcessRun.h"
#include "RunFolder.h"
#include "ThreadRun.h"

#include "pdc/Schedule/PipelineShape.h"
#include "pdcrt/MappedFile.h"
#include "pdcrt/MpiTransport.h"
#include "pdcrt/Options.h"
#include "pdcrt/TcpTransport.h"

#include <algorithm>
#include <cstdlib>
#include <unistd.h>

using namespace pdcrt;
using processes::Finished;
using processes::mpirun;
using processes::startOneByOne;

namespace {

constexpr std::int64_t minibatches = 47;
linear::NoiseData data;

/// "2-2-1", with enough warm-up. "1-1-1-1@2": on two ranks, stage s on rank s mod 2, with backwards in two halves, and
/// an update after every four minibatches.
Schedule scheduleOf(const std::string& plan) {
  std::vector<pdc::StageShape> stages;
  const std::size_t at = plan.find('@');
  for (char c : plan.substr(0, at))
    if (c != '-') stages.push_back({.replicas = c - '0'});
  for (std::size_t s = stages.size(); s-- > 0;) {
    stages[s].syncDelay = stages[s].replicas > 1 && stages.size() > 1;
    if (s + 1 < stages.size()) {
      const pdc::StageShape& next = stages[s + 1];
      stages[s].warmup = ((next.warmup + 2) * next.replicas + 2 * stages[s].replicas - 1) / stages[s].replicas;
    }
  }
  pdc::PipelineShape shape = pdc::straightShape(stages);
  if (at == std::string::npos) return pdc::buildSchedule(shape);
  shape.microbatches = 4;
  Merge merge = {.ranks = {}, .minibatches = minibatches, .handovers = 2, .seed = 1};
  merge.ranks.resize(static_cast<std::size_t>(plan[at + 1] - '0'));
  for (std::size_t s = 0; s < stages.size(); ++s)
    merge.ranks[s % merge.ranks.size()].push_back({static_cast<int>(s), 0});
  return MergedSchedule::of(pdc::buildSchedule(shape), merge);
}

Training trainingOf() {
  Training training;
  training.optimizer = OptimizerKind::adam;
  training.learningRate = 0.01;
  return training;
}

std::string weightsOf(const HostedStage& hosted) {
  const std::byte* weights = hosted.versions.at(hosted.versions.newest());
  return std::string(reinterpret_cast<const char*>(weights), hosted.stage->bytes.weights) +
         std::string(reinterpret_cast<const char*>(hosted.state), hosted.stage->bytes.state);
}

class Processes : public testing::TestWithParam<std::string> {};

TEST_P(Processes, TrainsTheBitsOfThreads) {
  const Schedule schedule = scheduleOf(GetParam());
  ThreadRun run;
  run.schedule = &schedule;
  run.stages = linear::linearStages(static_cast<int>(schedule.stages.size()));
  run.training = trainingOf();
  run.data = &data;
  run.readWeights = linear::readInitial;
  ASSERT_TRUE(run.run([](Executor& executor, int) { return executor.train(0, minibatches); }));

  for (const char* way : {"mpi", "synchronous mpi", "tcp"}) {
    std::string pattern = testing::TempDir() + "pdcrt-mpi-XXXXXX";
    const std::string folder = ::mkdtemp(pattern.data());
    const bool tcp = way == std::string("tcp"), synchronous = way == std::string("synchronous mpi");
    const std::string variables = "TEST_PLAN=" + GetParam() + " TEST_SYNCHRONOUS=" + (synchronous ? "1" : "0");
    const Finished finished =
        (tcp ? startOneByOne : mpirun)(schedule.ranks.size(), "Rank.DISABLED_Trains", variables, folder);
    ASSERT_EQ(finished.code, 0) << way << finished.log;
    for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
      std::string weights;
      ASSERT_TRUE(readText(folder + "/" + std::to_string(rank), weights));
      std::string expected;
      for (const Host& host : schedule.ranks[rank].hosts) expected += weightsOf(run.hosted(host.stage, host.replica));
      EXPECT_EQ(weights.substr(0, weights.find("bytes ")), expected);
      std::string bytes = "bytes ";
      for (Traffic traffic : {Traffic::forward, Traffic::backward, Traffic::allReduce})
        bytes += std::to_string(run.transports[rank]->bytesSent[static_cast<std::size_t>(traffic)]) + " ";
      EXPECT_EQ(weights.substr(weights.find("bytes ")), bytes);
    }
    std::filesystem::remove_all(folder);
  }
}

INSTANTIATE_TEST_SUITE_P(Plans, Processes, testing::Values("1-1", "2-1", "2-2-1", "3-2", "1-1-1-1@2", "1-1@1"),
                         [](const testing::TestParamInfo<std::string>& test) {
                           std::string name = test.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           if (auto at = name.find('@'); at != std::string::npos) name.replace(at, 1, "_on_");
                           return name;
                         });

/// Whole programs, started either way.
class Run : public testing::TestWithParam<bool> {
protected:
  static Finished start(std::size_t ranks, const std::string& variables, const std::string& folder) {
    return (GetParam() ? startOneByOne : mpirun)(ranks, "Rank.DISABLED_Runs", variables, folder);
  }
};

INSTANTIATE_TEST_SUITE_P(Ways, Run, testing::Bool(), [](const auto& test) { return test.param ? "Tcp" : "Mpi"; });

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_P(Run, GivesTheWeightsMetricsAndResultsOfThreads) {
  RunFolder folder({2, 1}, {3, 0});
  folder.writeData(32);
  const Finished run = start(3, "TEST_EXPORT=processes", folder.path);
  ASSERT_EQ(run.code, 0) << run.log;
  testing::internal::CaptureStdout();
  EXPECT_EQ(runIn(folder, {"--data", folder.path + "/data", "--epochs=3", "--eval", folder.path + "/data",
                           "--export-weights", folder.path + "/threads", "--threads"}),
            0);
  const std::string out = testing::internal::GetCapturedStdout();
  for (const char* stage : {"/stage0.safetensors", "/stage1.safetensors"})
    EXPECT_EQ(folder.read(std::string("processes") + stage), folder.read(std::string("threads") + stage));
  const std::string result = out.substr(out.find("test loss"), out.find("stage  rank") - out.find("test loss"));
  EXPECT_TRUE(contains(run.log, result.substr(0, result.find("   ")))) << run.log;
  EXPECT_TRUE(contains(run.log, "stage  rank  predicted  measured")) << run.log;
}

// Looks take time from the kernels: while nobody waits for a transfer, none follows another at once.
TEST(MpiTransport, LooksRarelyBesideKernels) {
  std::string pattern = testing::TempDir() + "pdcrt-mpi-XXXXXX";
  const std::string folder = ::mkdtemp(pattern.data());
  const int cores = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  for (const int ranks : {2, std::clamp(cores + 1, 3, 9)}) { // with cores of their own, and without
    const Finished finished =
        mpirun(ranks, "Rank.DISABLED_HasASendUnderWay", "TEST_RANKS=" + std::to_string(ranks), folder);
    EXPECT_EQ(finished.code, 0) << finished.log;
    EXPECT_TRUE(contains(finished.log, "looked at")) << finished.log;
  }
  std::filesystem::remove_all(folder);
}

TEST_P(Run, StopsWhereRanksDisagree) {
  RunFolder folder({1, 1}, {2, 0});
  folder.writeData(32);
  const Finished run = start(2, "TEST_EXPORT=processes TEST_OTHER_SEED=1", folder.path);
  EXPECT_EQ(run.code, 1) << run.log;
  EXPECT_TRUE(contains(run.log, "error: rank 1 has a plan, schedule or flags with the hash ")) << run.log;
}

TEST_P(Run, StopsWhereTheLossIsNotFinite) {
  RunFolder folder({1, 1}, {2, 0});
  folder.writeData(32);
  folder.training.learningRate = 1e38;
  folder.write("training.json", toJson(folder.training));
  const Finished run = start(2, "TEST_EXPORT=processes", folder.path);
  EXPECT_EQ(run.code, 76) << run.log;
  EXPECT_TRUE(contains(run.log, "error: the loss of minibatch ")) << run.log;
}

TEST_P(Run, StopsWhereTooFewRanksWereStarted) {
  RunFolder folder({1, 1, 1}, {4, 2, 0});
  folder.writeData(32);
  const Finished run = start(2, "TEST_EXPORT=processes", folder.path);
  EXPECT_EQ(run.code, 2) << run.log;
  EXPECT_TRUE(contains(run.log, "error: the plan has 3 ranks, 2 were started")) << run.log;
}

/// Of Open MPI over TCP, so that ranks which send large messages to each other need not take turns, or wait for what
/// the kernel has taken.
TEST(MpiRun, SetsHowTcpSendsUnlessTheUserSaysHow) {
  const std::string own[] = {"btl_tcp_flags=send,inplace", "btl_tcp_sndbuf=131072"};
  const std::string users[] = {"btl_tcp_flags=send,put", "btl_tcp_sndbuf=65536"};
  for (const bool says : {false, true}) {
    std::string pattern = testing::TempDir() + "pdcrt-mpi-XXXXXX";
    const std::string folder = ::mkdtemp(pattern.data());
    const Finished finished =
        mpirun(2, "Rank.DISABLED_Trains",
               "TEST_PLAN=1-1 TEST_SYNCHRONOUS=0 OMPI_MCA_btl=tcp,self OMPI_MCA_mpi_show_mca_params=all" +
                   (says ? " OMPI_MCA_" + users[0] + " OMPI_MCA_" + users[1] : std::string()),
               folder);
    ASSERT_EQ(finished.code, 0) << finished.log;
    for (const std::string& parameter : says ? users : own)
      EXPECT_TRUE(contains(finished.log, parameter + "\n") || contains(finished.log, parameter + " "))
          << parameter << "\n"
          << finished.log;
    std::filesystem::remove_all(folder);
  }
}

/// Rank 1 receives the large message when the small one, which is sent later, has come.
TEST(Rank, DISABLED_HasASendUnderWay) {
  using namespace std::chrono_literals;
  std::unique_ptr<Transport> transport;
  const int ranks = std::atoi(std::getenv("TEST_RANKS")), crowd = ranksPerCore(ranks);
  ASSERT_TRUE(openMpi(ranks, {.rank = -1, .synchronousSends = true}, transport));
  std::vector<std::byte> bytes(1 << 20), few(8);
  const bool sends = transport->rank() == 0;
  Transfer large, small;
  large.outgoing = small.outgoing = sends;
  large.peer = small.peer = sends ? 1 : 0;
  large.channel = 1;
  small.channel = 2;
  large.data = bytes.data();
  large.bytes = bytes.size();
  small.data = few.data();
  small.bytes = few.size();
  auto finish = [&](Transfer& transfer) {
    while (!transport->test(transfer)) transport->poll();
  };
  if (sends) {
    transport->start(large);
    for (const auto& [idle, beside] : {std::pair{1, 1ms}, {20, 2ms}, {100, 4ms}}) {
      EXPECT_EQ(transport->patience(idle, /*awaited=*/true), pollingPatience(idle, true, /*sends=*/true, crowd));
      EXPECT_EQ(transport->patience(idle, /*awaited=*/false), beside);
    }
    std::cout << "looked at" << std::endl;
    transport->start(small);
    finish(small);
    finish(large);
    EXPECT_EQ(transport->patience(100, /*awaited=*/false), 4ms);
  } else if (transport->rank() == 1) {
    transport->start(small);
    finish(small);
    transport->start(large);
    finish(large);
  }
}

/// One rank of the runs above: a whole program.
TEST(Rank, DISABLED_Runs) {
  const std::string folder = std::getenv("TEST_FOLDER"), samples = folder + "/data",
                    exported = folder + "/" + std::getenv("TEST_EXPORT");
  std::vector<std::string> flags = {"pipeline",   "--dir",  folder,  "--data",           samples,
                                    "--epochs=3", "--eval", samples, "--export-weights", exported};
  if (std::getenv("TEST_OTHER_SEED") && launchedAs()->rank == 1) flags.push_back("--seed=1");
  std::vector<char*> arguments;
  for (std::string& flag : flags) arguments.push_back(flag.data());
  Schedule schedule;
  std::string text, error;
  ASSERT_TRUE(readText(folder + "/schedule.txt", text));
  ASSERT_TRUE(parseSchedule(text, schedule, error));
  const std::vector<const Stage*> stages = linear::linearStages(static_cast<int>(schedule.stages.size()));
  std::exit(pdcrt::run(static_cast<int>(arguments.size()), arguments.data(), stages));
}

/// One rank of the run that TrainsTheBitsOfThreads starts.
TEST(Rank, DISABLED_Trains) {
  const Schedule schedule = scheduleOf(std::getenv("TEST_PLAN"));
  std::unique_ptr<Transport> transport;
  const int ranks = static_cast<int>(schedule.ranks.size());
  if (meetingPoint().empty()) {
    const MpiOptions options = {.rank = -1, .synchronousSends = std::getenv("TEST_SYNCHRONOUS") == std::string("1")};
    ASSERT_TRUE(openMpi(ranks, options, transport));
  } else {
    ASSERT_TRUE(openTcp(ranks, {.rank = launchedAs()->rank, .meeting = meetingPoint()}, transport));
  }
  const Training training = trainingOf();
  const std::vector<const Stage*> stages = linear::linearStages(static_cast<int>(schedule.stages.size()));
  Communicator communicator(*transport);
  Executor executor({.schedule = &schedule,
                     .rank = transport->rank(),
                     .stages = stages,
                     .training = &training,
                     .communicator = &communicator,
                     .data = &data});
  ASSERT_TRUE(executor.prepare());
  ASSERT_TRUE(executor.setWeights(linear::readInitial));
  ASSERT_TRUE(executor.train(0, minibatches));
  communicator.stop();
  std::string result;
  for (const HostedStage& hosted : executor.hosted()) result += weightsOf(hosted);
  result += "bytes ";
  for (Traffic traffic : {Traffic::forward, Traffic::backward, Traffic::allReduce})
    result += std::to_string(transport->bytesSent[static_cast<std::size_t>(traffic)]) + " ";
  ASSERT_TRUE(
      writeAtomically(std::getenv("TEST_FOLDER") + std::string("/") + std::to_string(transport->rank()), result));
}

} // namespace
