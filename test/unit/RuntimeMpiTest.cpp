// LINK: pdcrt pdcSchedule
// Transport `mpi`: the same bits as `threads`, whether MPI may buffer sends or not, and the same bytes. The test starts
// mpirun on itself; its ranks run the disabled test at the end.
#include "LinearStages.h"
#include "ThreadRun.h"

#include "pdc/Schedule/PipelineShape.h"
#include "pdcrt/MappedFile.h"
#include "pdcrt/MpiTransport.h"

#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>

using namespace pdcrt;

namespace {

constexpr std::int64_t minibatches = 47;
linear::NoiseData data;

/// "2-2-1", with enough warm-up.
Schedule scheduleOf(const std::string& plan) {
  std::vector<pdc::StageShape> stages;
  for (char c : plan)
    if (c != '-') stages.push_back({.replicas = c - '0'});
  for (std::size_t s = stages.size(); s-- > 0;) {
    stages[s].syncDelay = stages[s].replicas > 1 && stages.size() > 1;
    if (s + 1 < stages.size()) {
      const pdc::StageShape& next = stages[s + 1];
      stages[s].warmup = ((next.warmup + 2) * next.replicas + 2 * stages[s].replicas - 1) / stages[s].replicas;
    }
  }
  return pdc::buildSchedule(pdc::straightShape(stages));
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

class Mpi : public testing::TestWithParam<std::string> {};

TEST_P(Mpi, TrainsTheBitsOfThreads) {
  const Schedule schedule = scheduleOf(GetParam());
  ThreadRun run;
  run.schedule = &schedule;
  run.stages = linear::linearStages(static_cast<int>(schedule.stages.size()));
  run.training = trainingOf();
  run.data = &data;
  run.readWeights = linear::readInitial;
  ASSERT_TRUE(run.run([](Executor& executor, int) { return executor.train(0, minibatches); }));

  for (const char* synchronous : {"0", "1"}) {
    std::string pattern = testing::TempDir() + "pdcrt-mpi-XXXXXX";
    const std::string folder = ::mkdtemp(pattern.data());
    const std::string program = std::filesystem::read_symlink("/proc/self/exe");
    const std::string command =
        "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TEST_PLAN=" + GetParam() + " TEST_FOLDER=" + folder +
        " TEST_SYNCHRONOUS=" + synchronous + " mpirun --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 -n " +
        std::to_string(schedule.ranks.size()) + " " + program +
        " --gtest_also_run_disabled_tests --gtest_filter=MpiRank.DISABLED_Trains > " + folder + "/log 2>&1";
    std::string log;
    ASSERT_EQ(std::system(command.c_str()), 0) << (readText(folder + "/log", log) ? log : command);
    for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
      std::string weights;
      ASSERT_TRUE(readText(folder + "/" + std::to_string(rank), weights));
      const Host& host = schedule.ranks[rank].hosts[0];
      EXPECT_EQ(weights.substr(0, weights.find("bytes ")), weightsOf(run.hosted(host.stage, host.replica)));
      std::string bytes = "bytes ";
      for (Traffic traffic : {Traffic::forward, Traffic::backward, Traffic::allReduce})
        bytes += std::to_string(run.transports[rank]->bytesSent[static_cast<std::size_t>(traffic)]) + " ";
      EXPECT_EQ(weights.substr(weights.find("bytes ")), bytes);
    }
    std::filesystem::remove_all(folder);
  }
}

INSTANTIATE_TEST_SUITE_P(Plans, Mpi, testing::Values("1-1", "2-1", "2-2-1", "3-2"),
                         [](const testing::TestParamInfo<std::string>& test) {
                           std::string name = test.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

/// One rank of the run that TrainsTheBitsOfThreads starts.
TEST(MpiRank, DISABLED_Trains) {
  const Schedule schedule = scheduleOf(std::getenv("TEST_PLAN"));
  std::unique_ptr<Transport> transport;
  const MpiOptions options = {.rank = -1, .synchronousSends = std::getenv("TEST_SYNCHRONOUS") == std::string("1")};
  ASSERT_TRUE(openMpi(static_cast<int>(schedule.ranks.size()), options, transport));
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
  std::string result = weightsOf(executor.hosted()[0]) + "bytes ";
  for (Traffic traffic : {Traffic::forward, Traffic::backward, Traffic::allReduce})
    result += std::to_string(transport->bytesSent[static_cast<std::size_t>(traffic)]) + " ";
  ASSERT_TRUE(
      writeAtomically(std::getenv("TEST_FOLDER") + std::string("/") + std::to_string(transport->rank()), result));
}

} // namespace
