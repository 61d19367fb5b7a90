// pdcrt::run: from flags to ranks, as threads of this process or as processes that MPI or TCP joins.
#include "pdcrt/Run.h"
#include "LinkProfile.h"
#include "RankRun.h"
#include "Tell.h"
#include "pdcrt/Device.h"
#include "pdcrt/Hash.h"
#include "pdcrt/Launcher.h"
#include "pdcrt/Places.h"
#include "pdcrt/Signals.h"
#include "pdcrt/Threads.h"
#include "transport/HostTransport.h"
#include "transport/mpi/MpiTransport.h"
#include "transport/nccl/NcclTransport.h"
#include "transport/tcp/TcpTransport.h"
#include "watch/Supervision.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <thread>

namespace pdcrt {

std::atomic<int> signalled{0};

const char* runtimeBuild(); // cmake/HashSources.cmake writes it

namespace {

/// The monotonic clock, which a handler of signals may read.
double secondsNow() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

std::atomic<double> signalledAt{0}; ///< the first one; 0: none
static_assert(std::atomic<double>::is_always_lock_free, "a handler of signals writes it");

/// Keeps the time of the first signal.
void noteFirst() {
  double none = 0;
  signalledAt.compare_exchange_strong(none, secondsNow());
}

void onSignal(int signal) {
  noteFirst();
  if (signalled.exchange(signal) == 0 || secondsNow() - signalledAt < secondSignalSeconds) return;
  std::signal(signal, SIG_DFL); // the second time it means it
  std::raise(signal);
}

/// What the supervisor hands on, or its end; a second one it sees to itself.
void onSupervisorSignal(int signal) {
  noteFirst();
  int none = 0;
  signalled.compare_exchange_strong(none, signal);
}

BlockWay wishOf(const RunOptions& options) {
  return options.transport == "nccl" ? BlockWay::nccl : options.transport == "host" ? BlockWay::host : BlockWay::unset;
}

/// Lets `transport`, which moves memory of the host, move blocks of GPUs. All ranks call it.
Status addBlocks(const RunOptions& options, const Schedule& schedule, std::unique_ptr<Transport>& transport) {
  BlockWay way = BlockWay::host;
  if (Status status = chooseBlockWay(*transport, schedule, wishOf(options), way); !status) return status;
  const bool isLone = transport->ranks() < Places(schedule).processes(); // who is profiled has nobody to talk to
  if (way == BlockWay::nccl && !isLone) return makeNcclTransport(ncclLanes(schedule), transport);
  transport = makeHostTransport(std::move(transport));
  return {};
}

/// How many processes, or threads, a run takes. Of a program of one stage that is profiled, one plays a member alone.
int processesOf(const RunOptions& options, const Places& places) {
  return options.profileFile.empty() || places.ranks() > 1 ? places.processes() : 1;
}

std::unique_ptr<FlightRecorder> recorderOf(const Places& places, int process) {
  const Place place = places.at(process);
  return std::make_unique<FlightRecorder>(process, places.hosts(process),
                                          places.members(place.rank) > 1 ? place.member : -1);
}

/// All ranks as threads. The status of the first rank that failed by itself.
Status runThreads(const RunOptions& options, const RunFiles& files, std::span<const Stage* const> stages) {
  const Places places(files.schedule);
  const auto ranks = static_cast<std::size_t>(processesOf(options, places));
  std::vector<std::unique_ptr<FlightRecorder>> recorders;
  Supervision supervision(options.directory, onSupervisorSignal);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    recorders.push_back(recorderOf(places, static_cast<int>(rank)));
    supervision.add(*recorders.back());
  }
  if (Status status = supervision.connect(files.hash, files.build); !status) return status;
  std::vector<std::unique_ptr<Transport>> transports = makeThreadTransports(static_cast<int>(ranks));
  std::vector<Status> statuses(ranks);
  std::atomic<bool> failed{false};
  auto runRank = [&](std::size_t rank) {
    // Threads copy from GPU to GPU by themselves, unless somebody wants it otherwise.
    if (!options.transport.empty())
      if (statuses[rank] = addBlocks(options, files.schedule, transports[rank]); !statuses[rank]) {
        failed = true;
        transports[rank]->abort(0);
        return;
      }
    RankRun run(options, files, stages, *transports[rank], *recorders[rank], /*oneProcess=*/true);
    statuses[rank] = run.run();
    if (!statuses[rank]) {
      failed = true;
      transports[rank]->abort(0);
    } else
      statuses[rank] = run.interruption();
  };
  std::vector<std::thread> threads;
  for (std::size_t rank = 1; rank < ranks; ++rank) threads.emplace_back(runRank, rank);
  runRank(0);
  for (std::thread& thread : threads) thread.join();
  Status first;
  for (const Status& status : statuses)
    if (!status && (first || first.message().empty() || (first.code() == Exit::again && status.code() != Exit::again)))
      first = status;
  supervision.finish(first, failed);
  return first;
}

/// Joins this process with the others of the run.
Status join(int ranks, int rank, const RunOptions& options, std::unique_ptr<Transport>& transport) {
  const std::string meeting = meetingPoint();
  if (meeting.empty()) return openMpi(ranks, {.rank = rank, .synchronousSends = options.synchronousSends}, transport);
  return openTcp(ranks, {.rank = rank, .meeting = meeting, .patience = startPatience()}, transport);
}

/// A process of its own per rank.
Status runProcess(const RunOptions& options, const RunFiles& files, std::span<const Stage* const> stages) {
  const std::optional<LaunchedAs> launched = launchedAs();
  const Places places(files.schedule);
  const int ranks = processesOf(options, places);
  const int rank = options.rank >= 0 ? options.rank : launched ? launched->rank : -1;
  // Before the others are met: MPI waits for everybody without a limit.
  if (launched && launched->ranks != ranks)
    return {Exit::usage,
            "the plan has " + places.count() + ", " + std::to_string(launched->ranks) +
                " were started; this one is rank " + std::to_string(launched->rank) + " by " + launched->by,
            "start as many processes as the plan has ranks: mpirun -n " + std::to_string(ranks) +
                ", or one with --threads"};
  if (rank >= ranks)
    return {Exit::usage, "the plan has " + places.count() + ", --rank=" + std::to_string(rank) + " is none"};
  const bool known = rank >= 0;
  const std::unique_ptr<FlightRecorder> recorded =
      known ? recorderOf(places, rank) : std::make_unique<FlightRecorder>(rank, std::vector<Host>());
  FlightRecorder& recorder = *recorded;
  Supervision supervision(options.directory, onSupervisorSignal);
  if (known) {
    supervision.add(recorder);
    recorder.enter(RunPhase::joining);
    if (Status status = supervision.connect(files.hash, files.build, launched ? launched->by : ""); !status)
      return status;
  }
  std::unique_ptr<Transport> transport;
  if (Status status = join(ranks, rank, options, transport); !status) {
    supervision.finish(status, false);
    return status;
  }
  recorder.enter(RunPhase::starting);
  Status status, interruption;
  if (!device::hostSeesBlocks()) status = addBlocks(options, files.schedule, transport);
  if (status) {
    RankRun run(options, files, stages, *transport, recorder, /*oneProcess=*/false);
    status = run.run();
    if (status) interruption = run.interruption();
  }
  if (!status) { // ends the other ranks too
    if (!status.message().empty()) tell(status);
    std::fflush(stderr);
    supervision.finish(status, true);
    transport->abort(static_cast<int>(status.code()));
    return {status.code(), ""};
  }
  supervision.finish(interruption, false);
  if (interruption) return {};
  // Now: once a rank has ended with another code than 0, mpirun ends the others.
  if (transport->rank() == 0) tell(interruption);
  std::fflush(stderr);
  return {interruption.code(), ""};
}

Status runAll(int argc, char** argv, std::span<const Stage* const> stages, const char* build) {
  RunOptions options;
  bool finished = false;
  if (Status status = parseOptions(argc, argv, options, finished); !status || finished) return status;
  waitBriefly(argv, threadsOf(options.kernelThreads, stages));
  if (!options.linkFile.empty()) return profileLink(options);
  if (Status status = device::open(); !status) return status;
  if (options.tf32 && !device::allowTf32())
    return {Exit::usage, std::string("--tf32 is for GPUs, this program was compiled for ") + device::target(),
            "leave it out, or compile the model with --target=cuda"};
  if (options.timesAlgorithms && device::hostSeesBlocks())
    return {Exit::usage,
            "--time-algorithms is for GPUs, this program was compiled for " + std::string(device::target()),
            "leave it out: pdc --profile=measure times those of the CPU"};
  if (!options.transport.empty() && device::hostSeesBlocks())
    return {Exit::usage, "--transport is for GPUs, this program was compiled for " + std::string(device::target()),
            "leave it out, or compile the model with --target=cuda"};
  RunFiles files;
  if (Status status = readRunFiles(options, files); !status) return status;
  files.build = hashOf(std::string(build) + runtimeBuild());
  signalled = 0;
  signalledAt = 0;
  std::signal(SIGINT, onSignal);
  std::signal(SIGTERM, onSignal);

  const Places places(files.schedule);
  const int ranks = processesOf(options, places);
  const std::optional<LaunchedAs> launched = launchedAs();
  const bool alone = !launched || launched->ranks == 1;
  if (!options.threads && !launched && isMpirunOfPdcRun())
    return {Exit::usage, "mpirun does not say which rank this process is (OMPI_COMM_WORLD_RANK): it is not Open MPI's",
            "put Open MPI's mpirun first on PATH, or give pdc-run --threads"};
  if (const std::string ignored = ignoredRanks(); alone && !options.threads && ranks > 1 && !ignored.empty())
    std::fprintf(stderr, "note: %s: ignored, no launcher has set them for this process (docs/Running.md)\n",
                 ignored.c_str());
  if (options.threads || (alone && (ranks == 1 || stages.size() == files.schedule.stages.size())))
    return runThreads(options, files, stages);
  if (alone)
    return {Exit::usage,
            "the plan has " + places.count() + ", this process was started alone and has " +
                std::to_string(stages.size()) + " of " + std::to_string(files.schedule.stages.size()) + " stages",
            "start all ranks with mpirun, srun or torchrun, or run pipeline --threads"};
  return runProcess(options, files, stages);
}

} // namespace

int run(int argc, char** argv, std::span<const Stage* const> stages, const char* build) {
  const Status status = runAll(argc, argv, stages, build);
  if (!status && !status.message().empty()) tell(status);
  return static_cast<int>(status.code());
}

} // namespace pdcrt
