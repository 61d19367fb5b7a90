// pdcrt::run: from flags to a trained model.
//
// Every rank does the same: it prepares its stages, says hello to rank 0, gets a verdict (or what is wrong), trains,
// evaluates, exports, and tells rank 0 what it has measured. Rank 0 also tells people.
#include "pdcrt/Check.h"
#include "pdcrt/Control.h"
#include "pdcrt/Data.h"
#include "pdcrt/Device.h"
#include "pdcrt/Evaluation.h"
#include "pdcrt/LinkProfile.h"
#include "pdcrt/MpiTransport.h"
#include "pdcrt/Options.h"
#include "pdcrt/Profile.h"
#include "pdcrt/Progress.h"
#include "pdcrt/RunFiles.h"
#include "pdcrt/Summary.h"
#include "pdcrt/Trace.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <unistd.h>

// Present where a library in the program uses OpenMP.
extern "C" __attribute__((weak)) void omp_set_num_threads(int);

namespace pdcrt {
namespace {

std::atomic<int> signalled{0};

void onSignal(int signal) {
  if (signalled.exchange(signal) == 0) return;
  std::signal(signal, SIG_DFL); // the second time it means it
  std::raise(signal);
}

double processorSeconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

void copyText(char (&to)[64], const std::string& from) {
  std::snprintf(to, sizeof to, "%s", from.c_str());
}

void tell(const Status& status) {
  std::fprintf(stderr, "error: %s\n", status.message().c_str());
  if (!status.help().empty()) std::fprintf(stderr, "help: %s\n", status.help().c_str());
}

/// Rank 0 reads messages between its actions; meanwhile the others tell at most the losses of what is in the pipeline.
std::size_t messagesUnderWay(const Schedule& schedule) {
  return static_cast<std::size_t>(std::max<std::int64_t>(16, minibatchesInFlight(schedule)));
}

/// Everything that one rank needs and does.
class RankRun : public RunObserver {
public:
  RankRun(const RunOptions& options, const RunFiles& files, std::span<const Stage* const> stages, Transport& transport,
          bool oneProcess)
      : options_(options), files_(files), stages_(stages), transport_(transport), communicator_(transport),
        control_(communicator_, messagesUnderWay(files.schedule)), rank_(transport.rank()), oneProcess_(oneProcess),
        executor_({.schedule = &files.schedule,
                   .rank = rank_,
                   .stages = stages,
                   .training = &files.training,
                   .communicator = &communicator_,
                   .data = &data_,
                   .observer = this}),
        trace_(options.traceFile.empty() ? 0 : static_cast<std::size_t>(options.traceEvents)) {}

  /// Nothing of this rank may move once its memory goes.
  ~RankRun() override { communicator_.stop(); }

  Status run() {
    if (omp_set_num_threads && (options_.kernelThreads > 0 || !std::getenv("OMP_NUM_THREADS")))
      omp_set_num_threads(std::max(1, options_.kernelThreads));
    for (auto step : {&RankRun::prepare, &RankRun::agree, &RankRun::train, &RankRun::finish})
      if (Status status = (this->*step)(); !status) return status;
    return {};
  }

  /// After run(): what a signal makes of a run that ended well.
  Status interruption() const {
    if (!stopped_) return {};
    return {Exit::again, "stopped by a signal after " + std::to_string(minibatches_) + " minibatches"};
  }

  // What the executor tells while it runs.
  void loss(int stage, std::int64_t minibatch, double value) override {
    Message message;
    message.topic = Topic::loss;
    message.stage = stage;
    message.index = minibatch;
    message.values[0] = value;
    toRank0(message);
  }
  void skipped(const HostedStage& hosted, std::int64_t update) override {
    constexpr std::int64_t told = 5; // a dynamic scale begins with some
    const bool first = hosted.host.replica == 0 && (!files_.schedule.gradientNorm || hosted.host.stage == 0);
    if (first && hosted.skipped <= told)
      std::fprintf(stderr, "note: update %lld of %s %d is skipped, gradients are not finite (loss scale %g)%s\n",
                   static_cast<long long>(update), files_.schedule.gradientNorm ? "all stages, seen by stage" : "stage",
                   hosted.host.stage, hosted.lossScale.scale, hosted.skipped == told ? "; more are not told" : "");
  }
  void acted(const Action& action, double begin, double end) override {
    if (!options_.traceFile.empty()) trace_.add(action, begin, end);
    if (action.wait) {
      waitSeconds_ += end - begin;
      processorMark_ = processorSeconds();
      return;
    }
    const double processor = processorSeconds();
    for (MeasuredStage& stage : measured_) {
      const bool computes = action.kind != ActionKind::update && action.kind != ActionKind::evaluate;
      if (stage.host.stage != action.stage || !computes) continue;
      stage.wallSeconds += end - begin;
      stage.processorSeconds += processor - processorMark_;
      if (action.kind == ActionKind::forward) ++stage.minibatches;
    }
    if (action.kind == ActionKind::forward) newest_ = std::max(newest_, action.index);
    processorMark_ = processor;
  }
  void transferred(const Action& action, double posted, double completed) override {
    if (options_.traceFile.empty()) return;
    Action transfer = action;
    transfer.wait = false;
    trace_.add(transfer, posted, completed);
  }
  std::int64_t minibatches(std::int64_t planned) override {
    Message message;
    while (control_.poll(message)) handle(message);
    if (signalled != 0 && !stopAsked_) {
      stopAsked_ = true;
      message = {};
      message.topic = Topic::stopWish;
      toRank0(message);
    }
    processorMark_ = processorSeconds();
    return std::min(planned, minibatches_);
  }

private:
  Status prepare() {
    if (Status status = executor_.prepare(); !status) return status;
    for (const HostedStage& hosted : executor_.hosted()) {
      hosted_.push_back(hosted.stage);
      measured_.push_back({.rank = rank_, .host = hosted.host});
      if (!files_.modelHash.empty() && files_.modelHash != hosted.stage->modelHash)
        return {Exit::invalid,
                "stage " + std::to_string(hosted.host.stage) + " was generated from a model with the hash " +
                    hosted.stage->modelHash + ", plan.json is for " + files_.modelHash,
                "build the programs in " + options_.directory + " again"};
    }
    if (!options_.exportFolder.empty())
      if (Status status = makeFolder(options_.exportFolder); !status) return status; // now, not after the training
    if (Status status = initialWeights(options_.directory, executor_); !status) return status;
    DataOptions data = {.path = options_.data,
                        .batch = files_.training.batch,
                        .seed = files_.training.seed,
                        .shuffle = options_.shuffle,
                        .mean = options_.mean,
                        .deviation = options_.deviation,
                        .ignoredLabel = files_.training.ignoreIndex,
                        .syntheticSamples = syntheticSamples()};
    if (Status status = data_.open(data, hosted_); !status) return status;
    if (!options_.evaluationData.empty()) {
      data.path = options_.evaluationData;
      data.evaluation = true;
      if (Status status = evaluationData_.open(data, hosted_); !status) return status;
    }
    return {};
  }

  std::int64_t minibatchesPerStep() const { return std::max<std::int64_t>(1, files_.schedule.minibatchesPerUpdate); }
  std::int64_t syntheticSamples() const {
    return options_.samples > 0
               ? options_.samples
               : std::max<std::int64_t>(1, options_.steps) * minibatchesPerStep() * files_.training.batch;
  }

  /// Hello and verdict: all ranks have the same plan, and agree on the number of samples and minibatches.
  Status agree() {
    Message hello;
    hello.topic = Topic::hello;
    hello.numbers[0] = files_.hash;
    hello.numbers[1] = static_cast<std::uint64_t>(::sysconf(_SC_NPROCESSORS_ONLN));
    hello.values[0] = static_cast<double>(data_.samples());
    hello.values[1] = static_cast<double>(evaluationData_.samples());
    for (const HostedStage& hosted : executor_.hosted())
      if (hosted.host.replica == 0)
        for (const OutputRow& row : hosted.stage->outputs) hello.values[2] += row.kind == OutputKind::loss;
    char host[64] = {};
    ::gethostname(host, sizeof host - 1);
    copyText(hello.text, host);
    toRank0(hello);

    if (rank_ == 0) {
      if (!waitFor([&] { return static_cast<int>(hellos_.size()) == transport_.ranks(); })) return gone();
      Message verdict;
      verdict.topic = Topic::verdict;
      const Status status = decide(verdict);
      verdict.numbers[0] = static_cast<std::uint64_t>(status.code());
      for (int rank = 1; rank < transport_.ranks(); ++rank)
        if (!control_.send(rank, verdict)) return gone();
      take(verdict);
      if (!status) {
        control_.flush();
        return status;
      }
      progress_ = std::make_unique<Progress>(
          ProgressOptions{.minibatches = minibatches_,
                          .minibatchesPerStep = minibatchesPerStep(),
                          .minibatchesPerEpoch = static_cast<std::int64_t>(verdict.numbers[1]),
                          .inFlight = minibatchesInFlight(files_.schedule),
                          .lossStages = lossStages_,
                          .logEvery = options_.logEvery,
                          .metricsFile = options_.metricsFile},
          files_.training);
      return progress_->open();
    }
    if (!waitFor([&] { return verdictTaken_; })) return gone();
    if (verdictCode_ != Exit::done) return {verdictCode_, ""}; // rank 0 says why
    return {};
  }

  /// Rank 0: what the run is, from all hellos.
  Status decide(Message& verdict) {
    std::int64_t samples = -1, evaluationSamples = -1;
    std::map<std::string, std::pair<int, int>> hosts; // ranks, cores
    for (const auto& [rank, hello] : hellos_) {
      if (hello.numbers[0] != files_.hash)
        return {Exit::invalid,
                "rank " + std::to_string(rank) + " has a plan, schedule or flags with the hash " +
                    hex(hello.numbers[0]) + ", rank 0 has " + hex(files_.hash),
                "start all ranks from one build, with the same flags"};
      for (auto [value, known] : {std::pair(hello.values[0], &samples), {hello.values[1], &evaluationSamples}}) {
        const auto count = static_cast<std::int64_t>(value);
        if (count < 0) continue;
        if (*known >= 0 && *known != count)
          return {Exit::badData, "rank " + std::to_string(rank) + " sees " + std::to_string(count) +
                                     " samples, another rank " + std::to_string(*known)};
        *known = count;
      }
      lossStages_ += static_cast<int>(hello.values[2]);
      hosts[hello.text].first += 1;
      hosts[hello.text].second = static_cast<int>(hello.numbers[1]);
    }
    for (const auto& [host, counts] : hosts)
      if (counts.first > counts.second)
        sharing_.push_back(std::to_string(counts.first) + " ranks share " + std::to_string(counts.second) +
                           " cores of " + host);
    if (samples < 0) return {Exit::invalid, "no stage reads data", "the model needs an input"};
    if (lossStages_ == 0) return {Exit::invalid, "no stage has a loss", "run pdc with --loss"};
    const std::int64_t perEpoch = samples / files_.training.batch;
    if (const std::int64_t rest = samples % files_.training.batch; rest && !options_.steps)
      std::fprintf(stderr, "note: an epoch is %lld minibatches of %lld samples; the other %lld of %lld are left out\n",
                   static_cast<long long>(perEpoch), static_cast<long long>(files_.training.batch),
                   static_cast<long long>(rest), static_cast<long long>(samples));
    const std::int64_t minibatches = options_.steps > 0 ? options_.steps * minibatchesPerStep()
                                                        : std::max<std::int64_t>(1, options_.epochs) * perEpoch;
    verdict.index = minibatches;
    verdict.numbers[1] = static_cast<std::uint64_t>(std::max<std::int64_t>(1, perEpoch));
    verdict.numbers[2] = static_cast<std::uint64_t>(std::max<std::int64_t>(0, evaluationSamples));
    return checkSchedule(files_.schedule, minibatches);
  }

  void take(const Message& verdict) {
    verdictCode_ = static_cast<Exit>(verdict.numbers[0]);
    minibatches_ = verdict.index;
    evaluationSamples_ = static_cast<std::int64_t>(verdict.numbers[2]);
    verdictTaken_ = true;
  }

  Status train() {
    origin_ = now();
    if (!options_.profileFile.empty()) return profile(executor_, data_, files_.training, options_.profileFile);
    if (Status status = executor_.train(0, minibatches_); !status) return status;
    trained_ = true;
    if (rank_ != 0) return {};
    if (!waitFor([&] { return progress_->complete(); })) return gone();
    secondsPerMinibatch_ = progress_->secondsPerMinibatch();
    progress_->finish();
    return {};
  }

  /// Evaluation, weights, measurements.
  Status finish() {
    if (!options_.profileFile.empty()) return {};
    const bool evaluates = !options_.evaluationData.empty() && !stopped_;
    if (evaluates || !options_.exportFolder.empty())
      if (Status status = executor_.averageState(); !status) return status;
    if (evaluates)
      if (Status status = evaluate(); !status) return status;
    if (!options_.exportFolder.empty())
      if (Status status = exportWeights(options_.exportFolder, executor_); !status) return status;
    if (!options_.traceFile.empty())
      if (Status status = trace_.writePart(options_.traceFile, rank_, origin_); !status) return status;
    return measure();
  }

  Status evaluate() {
    const std::int64_t batch = files_.training.batch;
    EvaluationSums sums;
    Executor::Predicted predicted = [&](const HostedStage& hosted, std::int64_t minibatch,
                                        const std::byte* slot) -> Status {
      const std::int64_t valid = std::min(batch, evaluationSamples_ - minibatch * batch);
      addStage(sums, files_.training, *hosted.stage, slot, valid);
      return {};
    };
    const std::int64_t minibatches = (evaluationSamples_ + batch - 1) / batch;
    if (Status status = executor_.evaluate(minibatches, evaluationData_, predicted); !status) return status;

    Message message;
    message.topic = Topic::evaluation;
    static_assert(sizeof(EvaluationSums) <= sizeof message.values);
    std::memcpy(message.values, &sums, sizeof sums);
    toRank0(message);
    if (rank_ != 0) return {};
    if (!waitFor([&] { return static_cast<int>(evaluations_.size()) == transport_.ranks(); })) return gone();
    EvaluationSums total;
    for (const auto& [rank, part] : evaluations_) total.add(part);
    if (Status status = checkSums(total, files_.training); !status) return status;
    const std::string& metric = files_.training.metric;
    if (total.lossWeight > 0) std::printf("test loss %.4f\n", lossOf(total));
    if (metric != "none") std::printf("test %s %.4f\n", metric.c_str(), metricOf(total, files_.training));
    std::fflush(stdout);
    progress_->evaluated(metric, metricOf(total, files_.training), lossOf(total));
    return {};
  }

  /// Tells rank 0 what was measured; rank 0 prints it.
  Status measure() {
    for (const MeasuredStage& stage : measured_) {
      Message message;
      message.topic = Topic::statistics;
      message.stage = stage.host.stage;
      message.replica = stage.host.replica;
      message.index = stage.minibatches;
      message.numbers[0] = executor_.arena().bytes;
      message.numbers[1] = static_cast<std::uint64_t>(peakMemoryBytes());
      message.values[0] = stage.wallSeconds;
      message.values[1] = stage.processorSeconds;
      message.values[2] = waitSeconds_;
      for (Traffic kind : {Traffic::forward, Traffic::backward, Traffic::allReduce, Traffic::shared})
        message.numbers[2] += transport_.bytesSent[static_cast<std::size_t>(kind)];
      toRank0(message);
    }
    if (rank_ != 0) return control_.flush() ? Status() : gone();
    std::size_t replicas = 0;
    for (const ScheduleStage& stage : files_.schedule.stages) replicas += static_cast<std::size_t>(stage.replicas);
    if (!waitFor([&] { return statistics_.size() == replicas; })) return gone();
    if (!options_.traceFile.empty())
      if (Status status = Trace::join(options_.traceFile, transport_.ranks()); !status) return status;
    std::fputs(summaryOf(files_, {.stages = statistics_,
                                  .secondsPerMinibatch = secondsPerMinibatch_,
                                  .oneProcess = oneProcess_,
                                  .sharing = sharing_})
                   .c_str(),
               stdout);
    std::fflush(stdout);
    return {};
  }

  // ---- Messages ----

  void toRank0(Message& message) {
    message.rank = rank_;
    if (rank_ == 0)
      handle(message);
    else
      control_.send(0, message); // where it cannot be sent, the executor learns of it in its next wait
  }

  void handle(const Message& message) {
    switch (message.topic) {
    case Topic::hello: hellos_[message.rank] = message; break;
    case Topic::verdict: take(message); break;
    case Topic::loss: progress_->loss(message.index, message.values[0]); break;
    case Topic::stopWish: stop(); break;
    case Topic::stop:
      minibatches_ = std::min(minibatches_, message.index);
      stopped_ = true;
      break;
    case Topic::evaluation: {
      EvaluationSums sums;
      std::memcpy(&sums, message.values, sizeof sums);
      evaluations_[message.rank] = sums;
      break;
    }
    case Topic::statistics:
      statistics_.push_back({.rank = message.rank,
                             .host = {message.stage, message.replica},
                             .minibatches = message.index,
                             .wallSeconds = message.values[0],
                             .processorSeconds = message.values[1],
                             .waitSeconds = message.values[2],
                             .arenaBytes = static_cast<std::int64_t>(message.numbers[0]),
                             .peakBytes = static_cast<std::int64_t>(message.numbers[1]),
                             .bytesSent = message.numbers[2]});
      break;
    }
  }

  /// Rank 0: ends the run at a minibatch that no rank can have reached yet, so that all drain alike.
  void stop() {
    if (stopped_ || trained_) return;
    const std::int64_t step = minibatchesPerStep();
    const std::int64_t margin = 2 * minibatchesInFlight(files_.schedule) + 16;
    const std::int64_t end = (newest_ + margin + step) / step * step;
    stopped_ = true;
    if (end >= minibatches_) return;
    minibatches_ = end;
    progress_->shorten(end);
    Message message;
    message.topic = Topic::stop;
    message.index = end;
    for (int rank = 1; rank < transport_.ranks(); ++rank) control_.send(rank, message);
  }

  template <class Done>
  bool waitFor(Done done) {
    Message message;
    while (!done()) {
      if (!control_.wait(message)) return false;
      handle(message);
    }
    return true;
  }

  static Status gone() { return {Exit::again, "another rank has stopped"}; }

  const RunOptions& options_;
  const RunFiles& files_;
  std::span<const Stage* const> stages_;
  Transport& transport_;
  Communicator communicator_;
  Control control_;
  int rank_;
  bool oneProcess_;
  DataSet data_, evaluationData_;
  Executor executor_;
  Trace trace_;
  std::vector<const Stage*> hosted_;
  std::vector<MeasuredStage> measured_;
  double waitSeconds_ = 0, processorMark_ = 0, origin_ = 0;

  std::int64_t minibatches_ = 0, evaluationSamples_ = 0;
  std::int64_t newest_ = 0; ///< minibatch that this rank has computed
  bool verdictTaken_ = false, stopAsked_ = false, stopped_ = false, trained_ = false;
  Exit verdictCode_ = Exit::done;

  // Rank 0's.
  std::unique_ptr<Progress> progress_;
  std::map<int, Message> hellos_;
  std::map<int, EvaluationSums> evaluations_;
  std::vector<MeasuredStage> statistics_;
  std::vector<std::string> sharing_;
  int lossStages_ = 0;
  double secondsPerMinibatch_ = 0;
};

/// All ranks as threads. The status of the first rank that failed by itself.
Status runThreads(const RunOptions& options, const RunFiles& files, std::span<const Stage* const> stages) {
  const std::size_t ranks = files.schedule.ranks.size();
  std::vector<std::unique_ptr<Transport>> transports = makeThreadTransports(static_cast<int>(ranks));
  std::vector<Status> statuses(ranks);
  auto runRank = [&](std::size_t rank) {
    RankRun run(options, files, stages, *transports[rank], /*oneProcess=*/true);
    statuses[rank] = run.run();
    if (!statuses[rank])
      transports[rank]->abort(0);
    else
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
  return first;
}

Status runMpi(const RunOptions& options, const RunFiles& files, std::span<const Stage* const> stages) {
  std::unique_ptr<Transport> transport;
  const std::optional<LaunchedAs> launched = launchedAs();
  const MpiOptions mpi = {.rank = options.rank >= 0 ? options.rank
                                  : launched        ? launched->rank
                                                    : -1,
                          .synchronousSends = options.synchronousSends};
  if (Status status = openMpi(static_cast<int>(files.schedule.ranks.size()), mpi, transport); !status) return status;
  Status status, interruption;
  {
    RankRun run(options, files, stages, *transport, /*oneProcess=*/false);
    status = run.run();
    if (status) interruption = run.interruption();
  }
  if (!status) { // ends the other ranks too
    if (!status.message().empty()) tell(status);
    std::fflush(stderr);
    transport->abort(static_cast<int>(status.code()));
  }
  if (transport->rank() != 0 && !interruption) interruption = {Exit::again, ""};
  return interruption;
}

Status runAll(int argc, char** argv, std::span<const Stage* const> stages) {
  RunOptions options;
  bool finished = false;
  if (Status status = parseOptions(argc, argv, options, finished); !status || finished) return status;
  if (!options.linkFile.empty()) return profileLink(options);
  if (Status status = device::open(); !status) return status;
  RunFiles files;
  if (Status status = readRunFiles(options, files); !status) return status;
  std::signal(SIGINT, onSignal);
  std::signal(SIGTERM, onSignal);

  const std::size_t ranks = files.schedule.ranks.size();
  const std::optional<LaunchedAs> launched = launchedAs();
  const bool alone = !launched || launched->ranks == 1;
  if (options.threads || (alone && (ranks == 1 || stages.size() == files.schedule.stages.size())))
    return runThreads(options, files, stages);
  if (alone)
    return {Exit::usage,
            "the plan has " + std::to_string(ranks) + " ranks, this process was started alone and has " +
                std::to_string(stages.size()) + " of " + std::to_string(files.schedule.stages.size()) + " stages",
            "start all ranks with mpirun, or run pipeline --threads"};
  if (!device::hostSeesBlocks())
    return {Exit::usage, std::string("the ranks of a program for ") + device::target() + " cannot be processes yet",
            "run pipeline --threads, on one machine"};
  return runMpi(options, files, stages);
}

} // namespace

int run(int argc, char** argv, std::span<const Stage* const> stages) {
  const Status status = runAll(argc, argv, stages);
  if (!status && !status.message().empty()) tell(status);
  return static_cast<int>(status.code());
}

} // namespace pdcrt
