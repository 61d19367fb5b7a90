// LINK: pdcrt pdcSchedule
// Random small plans over MPI with synchronous sends (MPI_Issend), so that no message is ever buffered, and with
// messages far beyond what Open MPI sends eagerly: none hangs, and each trains the weights of its replay. One group of
// processes runs all plans in a row. A plan that hangs is named, with what the check says of it.
#include "ProcessRun.h"
#include "RandomRun.h"
#include "Rounds.h"

#include "pdcrt/Hash.h"
#include "pdcrt/Machine.h"
#include "run/RunFiles.h"
#include "transport/mpi/MpiTransport.h"

#include <atomic>
#include <condition_variable>
#include <fstream>
#include <gtest/gtest.h>
#include <iostream>
#include <map>
#include <mutex>
#include <sstream>

using namespace pdcrt;

namespace {

constexpr int mostRanks = 6;
timed::NoiseData data;

std::uint64_t hashOf(const Stage& stage, const std::byte* weights) {
  std::string values;
  for (const ParameterRow& row : stage.parameters)
    values.append(reinterpret_cast<const char*>(weights + row.offset),
                  static_cast<std::size_t>(row.shape.elements()) * sizeof(float));
  return pdcrt::hashOf(values);
}

using Host = std::pair<int, int>; ///< stage, replica
using Hashes = std::map<Host, std::uint64_t>;

/// Of the weights that each replica must have in the end.
Hashes expected(const RandomRun& run, ReplayMistake mistake = {}) {
  const timed::Stages stages(run.model);
  Replay replay = run.replay(stages, data, mistake);
  replay.run(run.minibatches);
  Hashes result;
  for (std::size_t s = 0; s < run.shape.stages.size(); ++s)
    for (int replica = 0; replica < run.shape.stages[s].replicas; ++replica)
      result[{static_cast<int>(s), replica}] = hashOf(*stages.all()[s], replay.weights(s).data());
  return result;
}

/// Runs plans `first`, `first + 1`, … and returns what each rank wrote, by plan.
std::map<int, Hashes> runPlans(int first, int count, processes::Finished& finished, int limitS = 600) {
  std::string pattern = testing::TempDir() + "pdcrt-plans-XXXXXX";
  const std::string folder = ::mkdtemp(pattern.data());
  finished =
      processes::mpirunWithin(limitS, mostRanks, "SynchronousRank.DISABLED_RunsPlans",
                              "TEST_FIRST=" + std::to_string(first) + " TEST_COUNT=" + std::to_string(count), folder);
  std::map<int, Hashes> result;
  for (int rank = 0; rank < mostRanks; ++rank) {
    std::ifstream file(folder + "/" + std::to_string(rank));
    int plan = 0, stage = 0, replica = 0;
    std::uint64_t hash = 0;
    while (file >> plan >> stage >> replica >> hash) result[plan][{stage, replica}] = hash;
  }
  std::filesystem::remove_all(folder);
  return result;
}

TEST(SynchronousSends, RandomPlansEndWithTheWeightsOfTheReplay) {
  const int count = pdc::rounds(25);
  processes::Finished finished;
  const std::map<int, Hashes> trained = runPlans(0, count, finished);
  ASSERT_EQ(finished.code, 0) << finished.log;
  ASSERT_EQ(trained.size(), static_cast<std::size_t>(count));
  std::map<std::string, int> kinds;
  for (const auto& [plan, hashes] : trained) {
    const RandomRun run(static_cast<unsigned>(plan), mostRanks);
    EXPECT_EQ(hashes, expected(run)) << "plan " << plan << ": " << run.description();
    ++kinds[run.schedule.kind.substr(0, run.schedule.kind.find(':'))];
  }
  for (const auto& [kind, runs] : kinds) std::cout << kind << ": " << runs << " plans\n";
  EXPECT_EQ(kinds.size(), pdc::scheduleNames().size());
}

TEST(SynchronousSends, AReplayWithAMistakeDiffers) {
  int differs = 0, plans = 0;
  for (unsigned plan = 0; plan < 10; ++plan, ++plans) {
    const RandomRun run(plan, mostRanks);
    differs += expected(run) != expected(run, {.versionOff = 1});
  }
  EXPECT_GT(differs, plans / 2);
}

TEST(SynchronousSends, APlanThatHangsIsNamed) {
  processes::Finished finished;
  runPlans(-1, 3, finished, /*limitS=*/60);
  EXPECT_NE(finished.code, 0);
  for (const char* part : {"plan -1 (1f1b, replicas 1 1, warm-up 0 1, ", "has not ended after 2 s",
                           "deadlock in a run of", "cycle: 0 -> 1 -> 0"})
    EXPECT_NE(finished.log.find(part), std::string::npos) << part << " not in\n" << finished.log;
  // Of the rank that speaks first: mpirun ends the other one.
  EXPECT_TRUE(finished.log.find("rank 0 is after 0SF0>1 in ?0RB0<1") != std::string::npos ||
              finished.log.find("rank 1 is after 1F0 in ?1RF1<0") != std::string::npos)
      << finished.log;
}

/// Ends the process, and so all ranks, when a run has not ended in time.
class Watchdog : public RunObserver {
public:
  Watchdog(int plan, const RandomRun& run, int rank, std::chrono::seconds limit) {
    thread_ = std::thread([this, plan, &run, rank, limit] {
      std::unique_lock lock(mutex_);
      if (condition_.wait_for(lock, limit, [this] { return ended_; })) return;
      const std::vector<Action> actions = expand(run.schedule, rank, run.minibatches);
      const CheckResult result = check(run.schedule, run.minibatches);
      const std::size_t done = done_;
      std::ostringstream text; // one write: the ranks share a terminal
      text << "plan " << plan << " (" << run.description() << ") has not ended after " << limit.count() << " s: rank "
           << rank << " is "
           << (done > 0 ? "after " + toString(actions[std::min(done, actions.size()) - 1]) : "at its beginning")
           << (done < actions.size() ? " in " + toString(actions[done]) : "")
           << "\nthe check: " << (result.passed ? "passed" : result.problem) << '\n';
      std::cerr << text.str() << std::flush;
      std::_Exit(3);
    });
  }
  ~Watchdog() override {
    {
      std::lock_guard lock(mutex_);
      ended_ = true;
    }
    condition_.notify_one();
    thread_.join();
  }
  /// Called after each action.
  std::int64_t minibatches(std::int64_t planned) override {
    ++done_;
    return planned;
  }

private:
  std::mutex mutex_;
  std::condition_variable condition_;
  bool ended_ = false;
  std::atomic<std::size_t> done_{0};
  std::thread thread_;
};

/// Plan -1 deadlocks: its second stage runs further ahead than the first.
RandomRun planOf(int plan) {
  RandomRun run(static_cast<unsigned>(std::max(plan, 0)), mostRanks);
  if (plan >= 0) return run;
  run.shape = pdc::straightShape({{.warmup = 0}, {.warmup = 1}});
  run.schedule = pdc::buildSchedule(run.shape);
  run.model.edges = run.shape.edges;
  run.model.stages.resize(2);
  run.minibatches = 4;
  return run;
}

/// One rank of the runs above.
TEST(SynchronousRank, DISABLED_RunsPlans) {
  std::unique_ptr<Transport> transport;
  ASSERT_TRUE(openMpi(mostRanks, {.rank = -1, .synchronousSends = true}, transport));
  Communicator communicator(*transport);
  const int rank = transport->rank(), first = std::atoi(std::getenv("TEST_FIRST"));
  std::ofstream results(std::getenv("TEST_FOLDER") + std::string("/") + std::to_string(rank));
  for (int plan = first; plan < first + std::atoi(std::getenv("TEST_COUNT")); ++plan) {
    const RandomRun run = planOf(plan);
    if (rank >= static_cast<int>(run.schedule.ranks.size())) continue;
    const timed::Stages stages(run.model);
    const std::vector<const Stage*> programs = stages.all();
    // Ranks that take no part in a plan are ahead, and wait in the next one.
    Watchdog watchdog(plan, run, rank, std::chrono::seconds(plan < 0 ? 2 : 120));
    Executor executor({.schedule = &run.schedule,
                       .rank = rank,
                       .stages = programs,
                       .training = &run.training,
                       .communicator = &communicator,
                       .data = &data,
                       .observer = &watchdog});
    ASSERT_TRUE(executor.prepare());
    ASSERT_TRUE(executor.setWeights(timed::readInitial));
    ASSERT_TRUE(executor.train(0, run.minibatches));
    for (HostedStage& hosted : executor.hosted())
      ASSERT_TRUE(executor.withWeights(hosted, [&](const std::byte* weights) {
        results << plan << ' ' << hosted.host.stage << ' ' << hosted.host.replica << ' '
                << hashOf(*hosted.stage, weights) << std::endl;
      }));
  }
  communicator.stop();
}

} // namespace
