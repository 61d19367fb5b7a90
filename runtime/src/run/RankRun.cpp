// What a rank does, step by step. What it is told and tells meanwhile is in RankObserver.cpp.
#include "RankRun.h"

#include "Agreement.h"
#include "Processor.h"
#include "checkpoint/EqualMembers.h"
#include "checkpoint/Resume.h"
#include "measure/Profile.h"
#include "pdcrt/Cores.h"
#include "pdcrt/Device.h"
#include "pdcrt/Machine.h"
#include "pdcrt/Places.h"
#include "pdcrt/Threads.h"
#include "pdcrt/WriteFile.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

// Present where a library in the program uses OpenMP.
extern "C" __attribute__((weak)) void omp_set_num_threads(int);

namespace pdcrt {
namespace {

/// Rank 0 reads messages between its actions; meanwhile the others tell at most the losses, and their terms, of what is
/// in the pipeline.
std::size_t mostMessages(const Schedule& schedule, const Training& training) {
  const auto ofEach = static_cast<std::int64_t>(1 + training.terms.size());
  return static_cast<std::size_t>(std::max<std::int64_t>(16, minibatchesInFlight(schedule) * ofEach));
}

} // namespace

RankRun::RankRun(const RunOptions& options, const RunFiles& files, std::span<const Stage* const> stages,
                 Transport& transport, FlightRecorder& recorder, bool oneProcess)
    : options_(options), files_(files), stages_(stages), transport_(transport), communicator_(transport),
      control_(communicator_, mostMessages(files.schedule, files.training)), rank_(transport.rank()),
      place_(Places(files.schedule).at(rank_)), recorder_(recorder), oneProcess_(oneProcess),
      executor_({.schedule = &files.schedule,
                 .rank = place_.rank,
                 .member = place_.member,
                 .isLone = !options.profileFile.empty(),
                 .stages = stages,
                 .training = &files.training,
                 .communicator = &communicator_,
                 .data = &data_,
                 .observer = this,
                 .recordsPhases = options.graphs,
                 .kernelTimes = options.timesAlgorithms || !options.profileFile.empty() ? &kernelTimes_ : nullptr}),
      trace_(options.traceFile.empty() ? 0 : static_cast<std::size_t>(options.traceEvents)),
      checkpointer_({.directory = options.checkpointFolder,
                     .every = options.checkpointEvery * minibatchesPerStep(),
                     .keep = options.checkpointsKept,
                     .adapters = files.adapters},
                    files.schedule, executor_.places(), files.training) {}

Status RankRun::run() {
  kernelThreads = threadsOf(options_.kernelThreads, stages_);
  if (omp_set_num_threads) omp_set_num_threads(kernelThreads);
  if (transport_.crowd() > 1) takeTurnsOf(longTurn);
  try {
    for (auto step : {&RankRun::prepare, &RankRun::agree, &RankRun::load, &RankRun::train, &RankRun::finish})
      if (Status status = (this->*step)(); !status) return status;
  } catch (const std::exception& error) { // of a kernel, a launch or an allocation
    return {Exit::noDevice, "rank " + std::to_string(rank_) + ": " + error.what()};
  }
  return {};
}

Status RankRun::interruption() const {
  if (!lastCheckpoint_) return lastCheckpoint_;
  if (!unwritten_) return unwritten_;
  if (!stopped_) return {};
  return {Exit::again, "stopped by a signal after " + std::to_string(first_ + minibatches_) + " minibatches",
          checkpointer_.enabled() ? "run again with --resume" : ""};
}

Status RankRun::prepare() {
  if (Status status = executor_.prepare(); !status) return status;
  for (const HostedStage& hosted : executor_.hosted()) {
    hosted_.push_back(hosted.stage);
    measured_.push_back({.rank = rank_,
                         .host = hosted.host,
                         .member = place_.member,
                         .otherBytes = static_cast<std::int64_t>(device::otherBytes())});
    if (!files_.modelHash.empty() && files_.modelHash != hosted.stage->modelHash)
      return {Exit::invalid,
              "stage " + std::to_string(hosted.host.stage) + " was generated from a model with the hash " +
                  hosted.stage->modelHash + ", plan.json is for " + files_.modelHash,
              "build the programs in " + options_.directory + " again"};
  }
  // Now, not after the training.
  if (!options_.exportFolder.empty())
    if (Status status = makeFolder(options_.exportFolder); !status) return status;
  for (const std::string& file : {options_.traceFile, options_.profileFile})
    if (!file.empty())
      if (Status status = checkWritable(file); !status) return status;
  if (checkpointer_.enabled())
    if (Status status = makeFolder(options_.checkpointFolder); !status) return status;
  DataOptions data = {.path = options_.data,
                      .batch = files_.training.batch,
                      .batchAxes = files_.training.batchAxes,
                      .seed = files_.training.seed,
                      .shuffle = options_.shuffle,
                      .mean = options_.mean,
                      .deviation = options_.deviation,
                      .ignoredLabel = files_.training.ignoreIndex,
                      .syntheticSamples = syntheticSamples(),
                      .tokenType = options_.tokenType,
                      .labelShift = options_.labelShift};
  if (Status status = data_.open(data, hosted_); !status) return status;
  if (!options_.evaluationData.empty()) {
    data.path = options_.evaluationData;
    data.evaluation = true;
    if (Status status = evaluationData_.open(data, hosted_); !status) return status;
  }
  return {};
}

std::int64_t RankRun::syntheticSamples() const {
  return options_.samples > 0
             ? options_.samples
             : std::max<std::int64_t>(1, options_.steps) * minibatchesPerStep() * files_.training.batch;
}

/// Hello and verdict: all ranks have the same plan, and agree on the number of samples and minibatches.
Status RankRun::agree() {
  Message hello;
  hello.topic = Topic::hello;
  hello.numbers[0] = files_.hash;
  const Cores cores = ownCores();
  hello.numbers[1] = static_cast<std::uint64_t>(cores.count);
  hello.numbers[4] = cores.set;
  hello.numbers[2] = files_.build;
  hello.values[0] = static_cast<double>(data_.samples());
  hello.values[1] = static_cast<double>(evaluationData_.samples());
  const WindowsRead& windows = data_.windows().length < 0 ? evaluationData_.windows() : data_.windows();
  hello.numbers[3] = windows.input;
  hello.values[3] = static_cast<double>(windows.length);
  for (const HostedStage& hosted : executor_.hosted())
    if (hosted.host.replica == 0 && tells())
      for (const OutputRow& row : hosted.stage->outputs) {
        hello.values[2] += row.kind == OutputKind::loss;
        hello.values[5] += row.kind == OutputKind::term && placeOf(files_.training.terms, row.name);
      }
  hello.values[4] = kindOfDevice();
  char host[64] = {};
  ::gethostname(host, sizeof host - 1);
  std::snprintf(hello.text, sizeof hello.text, "%s", host);
  toRank0(hello);

  if (rank_ == 0) {
    if (!waitFor([&] { return static_cast<int>(hellos_.size()) == transport_.ranks(); })) return transport_.failure();
    Message verdict;
    verdict.topic = Topic::verdict;
    const Status status = agreeOn(hellos_, options_, files_, agreement_);
    verdict.numbers[0] = static_cast<std::uint64_t>(status.code());
    verdict.numbers[1] = static_cast<std::uint64_t>(agreement_.evaluationSamples);
    verdict.numbers[2] = static_cast<std::uint64_t>(agreement_.first);
    verdict.index = agreement_.minibatches - agreement_.first;
    for (int rank = 1; rank < transport_.ranks(); ++rank)
      if (!control_.send(rank, verdict)) return transport_.failure();
    take(verdict);
    if (!status) {
      control_.flush();
      return status;
    }
    progress_ = std::make_unique<Progress>(ProgressOptions{.first = first_,
                                                           .minibatches = agreement_.minibatches,
                                                           .minibatchesPerStep = minibatchesPerStep(),
                                                           .minibatchesPerEpoch = agreement_.minibatchesPerEpoch,
                                                           .inFlight = minibatchesInFlight(files_.schedule),
                                                           .lossStages = agreement_.lossStages,
                                                           .terms = agreement_.terms,
                                                           .logEvery = options_.logEvery,
                                                           .metricsFile = options_.metricsFile,
                                                           .tensorboardFolder = options_.tensorboardFolder},
                                           files_.training);
    return progress_->open();
  }
  if (!waitFor([&] { return verdictTaken_; })) return transport_.failure();
  if (verdictCode_ != Exit::done) return {verdictCode_, ""}; // rank 0 says why
  return {};
}

/// Weights: the initial ones, or those of the checkpoint.
Status RankRun::load() {
  if (first_ == 0) return initialWeights(options_.directory, executor_);
  CheckpointReader reader;
  if (Status status = reader.open(options_.checkpointFolder, first_); !status) return status;
  StoredTensors initial;
  if (Status status = openInitial(options_.directory, initial); !status) return status;
  return loadCheckpoint(reader, files_.training, initial, executor_);
}

Status RankRun::train() {
  origin_ = now();
  if (!options_.profileFile.empty())
    return profile(executor_, data_, /*copies=*/options_.data.empty() || options_.data == "synthetic", files_.training,
                   options_.graphs, kernelTimes_, options_.profileFile);
  std::map<std::string, FileSum> frozen;
  if (checkpointer_.enabled())
    if (Status status = frozenSums(options_.directory, executor_, frozen); !status) return status;
  checkpointer_.begin(executor_, first_, std::move(frozen));
  const std::int64_t apart = evaluationInterval(files_.schedule, options_.evaluateEvery);
  while (true) {
    const std::int64_t part = apart > 0 ? std::min(apart, minibatches_ - done_) : minibatches_;
    checkpointer_.goOn(done_);
    recorder_.enter(RunPhase::training);
    if (Status status = executor_.train(first_ + done_, part); !status) return status;
    recorder_.enter(RunPhase::finishing);
    done_ = std::min(done_ + part, minibatches_);
    if (done_ == minibatches_) break;
    if (Status status = evaluateMeanwhile(); !status) return status;
  }
  trained_ = true;
  if (rank_ != 0) return {};
  if (!waitFor([&] { return progress_->complete(); })) return transport_.failure();
  secondsPerMinibatch_ = progress_->secondsPerMinibatch();
  progress_->finish();
  return {};
}

/// Evaluates the drained pipeline with the mean of its replicas' states, with which training does not go on, and lets
/// its time out of the steps'.
Status RankRun::evaluateMeanwhile() {
  if (rank_ == 0 && !waitFor([&] { return progress_->told() >= first_ + done_; })) return transport_.failure();
  const double begin = now();
  Stream stream = executor_.stream();
  std::vector<std::vector<std::byte>> states;
  for (const HostedStage& hosted : executor_.hosted()) {
    states.emplace_back(hosted.stage->bytes.state);
    if (!states.back().empty()) device::copy(stream, states.back().data(), hosted.state, states.back().size());
  }
  if (Status status = device::wait(stream); !status) return status;
  if (Status status = executor_.averageState(); !status) return status;
  if (Status status = evaluate(/*last=*/false); !status) return status;
  for (std::size_t i = 0; i < states.size(); ++i)
    if (!states[i].empty()) device::copy(stream, executor_.hosted()[i].state, states[i].data(), states[i].size());
  if (Status status = device::wait(stream); !status) return status;
  if (rank_ == 0) progress_->leaveOut(now() - begin);
  return {};
}

/// The checkpoint of the drained pipeline. That it cannot be written is told when all else is done. All ranks wait for
/// its manifest: what fails in one of them afterwards ends rank 0, too, and must not cost the run its last checkpoint.
Status RankRun::saveLast() {
  if (!checkpointer_.enabled()) return {};
  checkpointer_.finish(minibatches_);
  reportShards();
  if (rank_ != 0) return waitFor([&] { return checkpointed_; }) ? Status() : transport_.failure();
  if (!waitFor([&] { return checkpointer_.collected() >= first_ + minibatches_; })) return transport_.failure();
  lastCheckpoint_ = checkpointer_.flush();
  Message done;
  done.topic = Topic::checkpointed;
  for (int rank = 1; rank < transport_.ranks(); ++rank)
    if (!control_.send(rank, done)) return transport_.failure();
  return {};
}

/// Checkpoint, evaluation, weights, measurements.
Status RankRun::finish() {
  if (!options_.profileFile.empty()) return {};
  for (const HostedStage& hosted : executor_.hosted())
    if (Status status = compareMembers(executor_, hosted); !status) return status;
  if (Status status = saveLast(); !status) return status;
  const bool evaluates = !options_.evaluationData.empty() && !stopped_;
  if (evaluates || !options_.exportFolder.empty())
    if (Status status = executor_.averageState(); !status) return status;
  // First what must not be lost. What cannot be written ends no other rank, which may still be writing its own.
  if (!options_.exportFolder.empty()) complain(exportWeights(options_.exportFolder, files_.adapters, executor_));
  if (evaluates)
    if (Status status = evaluate(/*last=*/true); !status) return status;
  if (!options_.traceFile.empty() && tells()) complain(trace_.writePart(options_.traceFile, place_.rank, origin_));
  return measure();
}

void RankRun::complain(const Status& status) {
  if (status) return;
  std::fprintf(stderr, "error: %s\n", status.message().c_str());
  if (!status.help().empty()) std::fprintf(stderr, "help: %s\n", status.help().c_str());
  unwritten_ = {status.code(), ""};
}

/// The result of the last evaluation is the run's, the others' are told beside its progress.
Status RankRun::evaluate(bool last) {
  const std::int64_t batch = files_.training.batch;
  EvaluationSums sums;
  Loads loads;
  Executor::Predicted predicted = [&](const HostedStage& hosted, std::int64_t minibatch,
                                      const std::byte* slot) -> Status {
    const std::int64_t valid = std::min(batch, evaluationSamples_ - minibatch * batch);
    addStage(sums, files_.training, *hosted.stage, slot, valid, place_.member);
    if (tells()) loads.add(files_.training, *hosted.stage, slot, valid);
    return {};
  };
  const std::int64_t minibatches = (evaluationSamples_ + batch - 1) / batch;
  const std::uint64_t before = bytesToTeam();
  if (Status status = executor_.evaluate(minibatches, evaluationData_, predicted); !status) return status;
  evaluationTeamBytes_ += bytesToTeam() - before;

  for (Message& load : loads.messages()) toRank0(load);
  Message message;
  message.topic = Topic::evaluation;
  static_assert(sizeof(EvaluationSums) <= sizeof message.values);
  std::memcpy(message.values, &sums, sizeof sums);
  toRank0(message);
  if (rank_ != 0) return {};
  if (!waitFor([&] { return static_cast<int>(evaluations_.size()) == transport_.ranks(); }))
    return transport_.failure();
  EvaluationSums total;
  for (const auto& [rank, part] : evaluations_) total.add(part);
  evaluations_.clear();
  const std::string layers = std::exchange(loads_, {}).text(files_.training);
  if (Status status = checkSums(total, files_.training); !status) return status;
  const std::string& metric = files_.training.metric;
  if (last) {
    if (total.lossWeight > 0) std::printf("test loss %.4f\n", lossOf(total));
    if (metric != "none") std::printf("test %s %.4f\n", metric.c_str(), metricOf(total, files_.training));
    std::fflush(stdout);
  }
  progress_->evaluated(metric, metricOf(total, files_.training), lossOf(total), layers);
  return {};
}

/// Tells rank 0 what was measured; rank 0 prints it.
Status RankRun::measure() {
  for (const MeasuredStage& stage : measured_) {
    Message message;
    message.topic = Topic::statistics;
    message.stage = stage.host.stage;
    message.replica = stage.host.replica;
    message.member = place_.member;
    message.index = stage.minibatches;
    message.numbers[0] = executor_.arena().bytes;
    message.numbers[1] = static_cast<std::uint64_t>(peakMemoryBytes());
    // Code of kernels and of libraries is loaded when it is first called, recorded graphs come later still.
    message.numbers[3] = std::max(static_cast<std::uint64_t>(stage.otherBytes), std::uint64_t{device::otherBytes()});
    message.values[0] = stage.wallSeconds;
    message.values[1] = stage.processorSeconds;
    message.values[2] = waitSeconds_;
    for (Traffic kind : {Traffic::forward, Traffic::backward, Traffic::allReduce, Traffic::shared, Traffic::team})
      message.numbers[2] += transport_.bytesSent[static_cast<std::size_t>(kind)];
    message.numbers[4] = bytesToTeam() - evaluationTeamBytes_;
    toRank0(message);
  }
  if (rank_ != 0) return control_.flush() ? Status() : transport_.failure();
  const Places places(files_.schedule);
  if (!waitFor([&] { return statistics_.size() == places.hostCount(); })) return transport_.failure();
  complain(progress_->memory(statistics_));
  if (!options_.traceFile.empty()) complain(Trace::join(options_.traceFile, places.ranks()));
  std::fputs(summaryOf(files_, {.stages = statistics_,
                                .secondsPerMinibatch = secondsPerMinibatch_,
                                .oneProcess = oneProcess_,
                                .sharing = agreement_.sharing})
                 .c_str(),
             stdout);
  std::fflush(stdout);
  return {};
}

} // namespace pdcrt
