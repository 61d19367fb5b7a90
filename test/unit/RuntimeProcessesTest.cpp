// LINK: pdcrt pdcSchedule
// Transports `mpi` and `tcp`: the same bits as `threads`, whether MPI may buffer sends or not, and the same bytes. The
// test starts itself as ranks, which run the disabled tests at the end.
#include "MergedSchedule.h"
#include "ProcessRun.h"
#include "RunFolder.h"
#include "ThreadRun.h"

#include "pdc/Schedule/PipelineShape.h"
#include "pdcrt/Launcher.h"
#include "pdcrt/MappedFile.h"
#include "pdcrt/Run.h"
#include "run/Options.h"
#include "transport/mpi/MpiTransport.h"
#include "transport/tcp/TcpTransport.h"

#include <algorithm>
#include <cstdlib>
#include <unistd.h>

using namespace pdcrt;
using processes::Finished;
using processes::mpirun;
using processes::mpirunWithin;
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
      for (const Host& host : schedule.ranks[rank].hosts) expected += bitsOf(run.hosted(host.stage, host.replica));
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

/// Ranks run a disabled test, in which rank 1 says in the end that it has got what rank 0 sends.
void expectThatAllComes(int ranks, const std::string& test, const std::string& variables) {
  std::string pattern = testing::TempDir() + "pdcrt-mpi-XXXXXX";
  const std::string folder = ::mkdtemp(pattern.data());
  const Finished finished = mpirunWithin(120, static_cast<std::size_t>(ranks), test,
                                         "TEST_RANKS=" + std::to_string(ranks) + " " + variables, folder);
  EXPECT_EQ(finished.code, 0) << variables << finished.log;
  EXPECT_TRUE(contains(finished.log, "all has come")) << finished.log;
  std::filesystem::remove_all(folder);
}

// Looks take time from the kernels: on one host ranks ring for each other, and nobody looks for what has not been sent,
// however MPI moves it.
TEST(MpiTransport, SleepsUntilItIsRung) {
  const int cores = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  for (const char* way : {"", "OMPI_MCA_btl_vader_single_copy_mechanism=none", "OMPI_MCA_btl=tcp,self"})
    for (const int ranks : {2, std::clamp(cores + 1, 3, 9)}) // with cores of their own, and without
      expectThatAllComes(ranks, "Rank.DISABLED_SleepsUntilItIsRung", way);
}

// MPI may put an answer off until the rank that owes it looks again.
TEST(MpiTransport, WhoeverSendsWakesTheReceiverFromTimeToTime) {
  expectThatAllComes(2, "Rank.DISABLED_IsWokenAgain", "");
}

TEST(MpiTransport, LooksWhereRanksShareNoMemory) {
  expectThatAllComes(2, "Rank.DISABLED_Looks", "OMPI_MCA_osc=^sm");
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

/// Rank 1 says with a small message that its receive waits; then rank 0 sends a large one.
class TwoMessages {
public:
  explicit TwoMessages(Transport& transport) : transport_(transport), first_(transport.rank() == 0) {
    for (Transfer* transfer : {&large_, &small_}) {
      transfer->peer = 1 - transport.rank();
      transfer->channel = transfer == &large_ ? 1 : 2;
      transfer->outgoing = first_ == (transfer == &large_);
      std::vector<std::byte>& bytes = transfer == &large_ ? bytes_ : few_;
      transfer->data = bytes.data();
      transfer->bytes = bytes.size();
    }
    if (first_)
      for (std::size_t i = 0; i < bytes_.size(); ++i) bytes_[i] = valueOf(i);
  }

  /// `whileWaiting` is called where nothing has been sent, `sleep` with the idle rounds so far, after each.
  template <class WhileWaiting, class Sleep>
  void exchange(WhileWaiting whileWaiting, Sleep sleep) {
    auto finish = [&](Transfer& transfer) {
      for (int idle = 1; !transport_.test(transfer); ++idle) {
        sleep(idle);
        transport_.poll();
      }
    };
    transport_.start(first_ ? small_ : large_);
    transport_.poll();
    if (!first_) {
      whileWaiting();
      transport_.start(small_);
      finish(small_);
      finish(large_);
      for (std::size_t i = 0; i < bytes_.size(); ++i) ASSERT_EQ(bytes_[i], valueOf(i)) << i;
      std::cout << "all has come" << std::endl;
    } else {
      finish(small_);
      transport_.start(large_);
      finish(large_);
    }
  }

private:
  static std::byte valueOf(std::size_t i) { return static_cast<std::byte>(i * 7 % 251); }

  Transport& transport_;
  bool first_;
  std::vector<std::byte> bytes_ = std::vector<std::byte>(5 << 20), few_ = std::vector<std::byte>(8);
  Transfer large_, small_;
};

TEST(Rank, DISABLED_SleepsUntilItIsRung) {
  using namespace std::chrono_literals;
  std::unique_ptr<Transport> transport;
  const int ranks = std::atoi(std::getenv("TEST_RANKS"));
  ASSERT_TRUE(openMpi(ranks, {.rank = -1, .synchronousSends = true}, transport));
  const int crowd = transport->crowd();
  if (transport->rank() > 1) return;
  constexpr auto rarely = 20ms;
  TwoMessages messages(*transport);
  messages.exchange(
      [&] {
        for (const int idle : {1, 20, 100}) EXPECT_EQ(transport->patience(idle, /*awaited=*/false), rarely);
        EXPECT_EQ(transport->patience(1, /*awaited=*/true), crowd > 1 ? rarely : 0ms) << "no bell is as fast";
        EXPECT_EQ(transport->patience(100, /*awaited=*/true), rarely);
      },
      [&](int idle) {
        const auto limit = transport->patience(idle, /*awaited=*/false);
        // Who receives must not depend on its rare looks. Who sends may: MPI may put an answer off.
        transport->sleep(limit < rarely || transport->rank() == 0 ? limit : -1ns);
      });
}

/// Rank 1 sleeps until it has been woken three times, and only then receives.
TEST(Rank, DISABLED_IsWokenAgain) {
  using namespace std::chrono_literals;
  std::unique_ptr<Transport> transport;
  ASSERT_TRUE(openMpi(2, {.rank = -1, .synchronousSends = true}, transport));
  std::vector<std::byte> bytes(1 << 20);
  Transfer transfer;
  transfer.outgoing = transport->rank() == 0;
  transfer.peer = 1 - transport->rank();
  transfer.data = bytes.data();
  transfer.bytes = bytes.size();
  if (!transfer.outgoing)
    for (int times = 0; times < 3; ++times) {
      transport->sleep(-1ns);
      transport->poll();
    }
  transport->start(transfer);
  for (transport->poll(); !transport->test(transfer); transport->poll())
    transport->sleep(transport->patience(100, /*awaited=*/false));
  if (!transfer.outgoing) std::cout << "all has come" << std::endl;
}

TEST(Rank, DISABLED_Looks) {
  using namespace std::chrono_literals;
  std::unique_ptr<Transport> transport;
  ASSERT_TRUE(openMpi(2, {.rank = -1, .synchronousSends = true}, transport));
  TwoMessages messages(*transport);
  messages.exchange(
      [&] {
        EXPECT_EQ(transport->patience(100, /*awaited=*/false), pollingPatience(100, false, /*sends=*/false, 1));
        EXPECT_EQ(transport->patience(1, /*awaited=*/true), pollingPatience(1, true, /*sends=*/false, 1));
      },
      [&](int idle) { transport->sleep(transport->patience(idle, /*awaited=*/true)); });
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
  for (const HostedStage& hosted : executor.hosted()) result += bitsOf(hosted);
  result += "bytes ";
  for (Traffic traffic : {Traffic::forward, Traffic::backward, Traffic::allReduce})
    result += std::to_string(transport->bytesSent[static_cast<std::size_t>(traffic)]) + " ";
  ASSERT_TRUE(
      writeAtomically(std::getenv("TEST_FOLDER") + std::string("/") + std::to_string(transport->rank()), result));
}

} // namespace
