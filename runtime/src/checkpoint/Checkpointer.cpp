// Copies in the executor's thread; files in a thread of their own.
#include "Checkpointer.h"

#include "EqualMembers.h"
#include "ShardRecords.h"
#include "files/MemberRecords.h"
#include "files/WeightFile.h"
#include "pdcrt/Device.h"
#include "pdcrt/Machine.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <deque>
#include <filesystem>
#include <sys/resource.h>

namespace pdcrt {
std::int64_t checkpointInterval(const Schedule& schedule, std::int64_t every) {
  if (every == 0) return 0;
  const std::int64_t period = periodMinibatches(schedule);
  const bool flushes = schedule.minibatchesPerUpdate > 0 && schedule.weights != WeightPolicy::twoVersions;
  std::int64_t least = every;
  // Forwards are ahead of the update by what is in flight, and by what an update waits for its all-reduce.
  for (const ScheduleStage& stage : schedule.stages)
    if (!flushes)
      least = std::max(least, std::int64_t{std::max(stage.warmup + 1, stage.slots) + stage.syncDelay} *
                                  stage.routing().length());
  return (least + period - 1) / period * period;
}

Checkpointer::Checkpointer(const CheckpointOptions& options, const Schedule& schedule, const Places& places,
                           const Training& training)
    : options_(options), schedule_(schedule), places_(places), training_(training),
      interval_(checkpointInterval(schedule, options.every)) {}

Checkpointer::~Checkpointer() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Checkpointer::begin(Executor& executor, std::int64_t first, std::map<std::string, FileSum> frozen) {
  if (!enabled()) return;
  frozen_ = std::move(frozen);
  const std::span<const HostedStage> hosted = executor.hosted();
  executor_ = &executor;
  stream_ = executor.stream();
  first_ = lastTaken_ = collectedUpTo_ = first;
  copies_.resize(hosted.size());
  for (std::size_t i = 0; i < hosted.size(); ++i) {
    Copy& copy = copies_[i];
    const BlockBytes& bytes = hosted[i].stage->bytes;
    copy.hosted = &hosted[i];
    copy.target = interval_;
    copy.state.resize(bytes.state);
    if (!hasWeights(copy)) continue;
    copy.weights.resize(weightsBytes(hosted[i]));
    copy.optimizer.resize(hosted[i].optimizer->layout().bytes());
    copy.counts.resize(hosted[i].optimizer->parameters().size());
  }
  // Signals are for the thread that runs the stages.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

/// Whether it is replica 0, or one of the first owners of shards, and this member of its team has something to write.
bool Checkpointer::hasWeights(const Copy& copy) {
  const Shards* shards = copy.hosted->optimizer->shards();
  const bool owns = copy.hosted->host.replica < (shards ? shards->owners() : 1);
  return owns && writesWeights(*copy.hosted->stage, copy.hosted->member);
}

Status Checkpointer::computed(const Action& action) {
  if (interval_ == 0) return {};
  for (Copy& copy : copies_) {
    if (copy.hosted->host.stage != action.stage) continue;
    const std::int64_t target = copy.target - drainedAt_;
    if (action.kind == ActionKind::forward && action.index < target &&
        copy.hosted->routing.next(action.index) >= target)
      takeState(copy);
    if (action.kind == ActionKind::update && schedule_.updateLast(action.stage, action.index) == target) {
      if (Status status = compareMembers(*executor_, *copy.hosted); !status) return status;
      take(copy, first_ + copy.target);
      copy.target += interval_;
    }
  }
  return {};
}

void Checkpointer::takeState(Copy& copy) {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !copy.busy; });
  }
  copyOut(copy.state, copy.hosted->state);
  copy.stateTaken = true;
}

void Checkpointer::copyOut(std::vector<std::byte>& to, const std::byte* block) {
  if (!to.empty()) device::copy(stream_, to.data(), block, to.size());
}

void Checkpointer::take(Copy& copy, std::int64_t minibatches) {
  const HostedStage& hosted = *copy.hosted;
  if (!copy.stateTaken) takeState(copy); // no forward since the last copy; it waits for the thread, too
  copy.stateTaken = false;
  copy.minibatches = minibatches;
  copy.lossScale = hosted.lossScale;
  copy.counted = hosted.updates - hosted.skipped;
  const std::byte* const newest = hosted.versions.at(hosted.versions.newest());
  if (hosted.optimizer->shards() && !copy.weights.empty())
    copyShard(stream_, hosted, newest, copy.weights.data());
  else
    copyOut(copy.weights, newest);
  copyOut(copy.optimizer, hosted.optimizerState);
  // Only a device that has failed makes this fail, and then the next wait of the executor says so.
  static_cast<void>(device::wait(stream_));
  for (std::size_t i = 0; i < copy.counts.size(); ++i)
    copy.counts[i] = copy.counted + hosted.optimizer->parameters()[i].updatesBefore;
  lastTaken_ = std::max(lastTaken_, minibatches);
  {
    std::lock_guard lock(mutex_);
    copy.busy = true;
  }
  push({.copy = &copy, .manifest = {}});
}

void Checkpointer::finish(std::int64_t minibatches) {
  if (!enabled()) return;
  if (first_ + minibatches > lastTaken_)
    for (Copy& copy : copies_) {
      copy.stateTaken = false;
      take(copy, first_ + minibatches);
    }
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return jobs_.empty() && !working_; });
}

std::optional<Message> Checkpointer::report() {
  std::lock_guard lock(mutex_);
  if (reports_.empty()) return std::nullopt;
  const Message message = reports_.front();
  reports_.pop_front();
  return message;
}

void Checkpointer::collect(const Message& report, const Manifest& manifest) {
  Collected& all = collected_[report.index];
  all.failed = all.failed || report.values[0] == 0;
  if (report.stage == 0 && report.replica == 0 && report.member == 0) {
    all.lossScale = report.values[1];
    all.finiteSteps = static_cast<std::int64_t>(report.values[2]);
  }
  auto add = [&](ShardKind kind, std::size_t at) {
    if (report.numbers[at] > 0)
      all.shards.push_back({.kind = kind,
                            .stage = report.stage,
                            .replica = report.replica,
                            .sum = {report.numbers[at], static_cast<std::uint32_t>(report.numbers[at + 1])},
                            .member = report.member});
  };
  const int owners = schedule_.stages[static_cast<std::size_t>(report.stage)].owners();
  add(report.replica < owners ? ShardKind::weights : ShardKind::state, 0);
  add(ShardKind::optimizer, 2);
  if (++all.reports < places_.hostCount()) return;

  Job job = {.copy = nullptr, .manifest = manifest, .givenUp = all.failed};
  job.manifest.minibatches = report.index;
  job.manifest.minibatchesPerUpdate = schedule_.minibatchesPerUpdate;
  job.manifest.lossScale = all.lossScale;
  job.manifest.finiteSteps = all.finiteSteps;
  for (const ScheduleStage& stage : schedule_.stages) {
    job.manifest.replicas.push_back(stage.replicas);
    job.manifest.owners.push_back(stage.owners());
  }
  job.manifest.members.assign(schedule_.stages.size(), 1);
  for (const Shard& shard : all.shards) {
    int& members = job.manifest.members[static_cast<std::size_t>(shard.stage)];
    members = std::max(members, shard.member + 1);
  }
  std::sort(all.shards.begin(), all.shards.end(), [](const Shard& a, const Shard& b) {
    return std::tuple(a.stage, a.kind, a.replica, a.member) < std::tuple(b.stage, b.kind, b.replica, b.member);
  });
  job.manifest.shards = std::move(all.shards);
  collectedUpTo_ = std::max(collectedUpTo_, report.index);
  collected_.erase(report.index);
  push(std::move(job));
}

Status Checkpointer::flush() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return jobs_.empty() && !working_; });
  return lastStatus_;
}

// ---- The thread ----

void Checkpointer::push(Job job) {
  {
    std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  changed_.notify_all();
}

void Checkpointer::run() {
  // It computes in the pauses of the stages, where they have some. (On Linux each thread has a priority of its own.)
  ::setpriority(PRIO_PROCESS, 0, 19);
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stopping_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    const Job job = std::move(jobs_.front());
    jobs_.pop_front();
    working_ = true;
    lock.unlock();
    if (job.copy)
      write(*job.copy);
    else
      complete(job);
    lock.lock();
    if (job.copy) job.copy->busy = false;
    working_ = false;
    changed_.notify_all();
  }
}

void Checkpointer::write(Copy& copy) {
  Message message;
  message.topic = Topic::shard;
  message.stage = copy.hosted->host.stage;
  message.replica = copy.hosted->host.replica;
  message.member = copy.hosted->member;
  message.index = copy.minibatches;
  message.values[1] = copy.lossScale.scale;
  message.values[2] = static_cast<double>(copy.lossScale.finiteSteps);
  const Status status = writeShards(copy, message);
  message.values[0] = status ? 1 : 0;
  if (!status)
    std::fprintf(stderr, "warning: %s; training goes on without this checkpoint\n", status.message().c_str());
  std::lock_guard lock(mutex_);
  reports_.push_back(message);
}

Status Checkpointer::writeShards(Copy& copy, Message& message) const {
  const Stage& stage = *copy.hosted->stage;
  const int member = copy.hosted->member;
  const bool first = copy.hosted->host.replica == 0, owns = hasWeights(copy);
  if (!owns && (first || !writesState(stage, member))) return {};
  const std::string folder = checkpointFolder(options_.directory, copy.minibatches);
  if (fileCalls.mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST)
    return {Exit::cannotWrite, folder + ": cannot be made: " + std::strerror(errno)};
  const std::map<std::string, std::string> metadata = {{"minibatches", std::to_string(copy.minibatches)}};
  auto writeShard = [&](ShardKind kind, const MemberRecords& written, std::size_t at) -> Status {
    const Shard shard = {
        .kind = kind, .stage = copy.hosted->host.stage, .replica = copy.hosted->host.replica, .member = member};
    FileSum sum;
    if (Status status = writeSafetensors(folder + "/" + fileOf(shard), written.records, written.metadata, &sum);
        !status)
      return status;
    message.numbers[at] = sum.bytes;
    message.numbers[at + 1] = sum.crc;
    return {};
  };

  MemberRecords weights(member, metadata), optimizer(member, metadata);
  if (owns)
    if (Status status = store(copy, weights, optimizer); !status) return status;
  if (owns && !options_.adapters.empty()) weights.metadata[adaptersKey] = options_.adapters;
  if (first && owns)
    for (const ParameterRow& row : stage.parameters)
      if (const auto sum = frozen_.find(row.name); sum != frozen_.end())
        weights.metadata.insert(frozenMetadata(row.name, sum->second));
  for (const StateRow& row : stage.states) weights.add(row, row.name, copy.state.data() + row.offset);
  if (Status status = writeShard(owns ? ShardKind::weights : ShardKind::state, weights, 0); !status) return status;
  return owns ? writeShard(ShardKind::optimizer, optimizer, 2) : Status();
}

/// Puts the copy into the order of files, which are row-major, and lists its records. Nobody needs it as it was.
Status Checkpointer::store(Copy& copy, MemberRecords& weights, MemberRecords& optimizer) const {
  const HostedStage& hosted = *copy.hosted;
  const Stage& stage = *hosted.stage;
  const OptimizerLayout& layout = hosted.optimizer->layout();
  std::span<const TrainedParameter> trained = hosted.optimizer->parameters();
  if (hosted.member == 0 && hosted.host.replica == 0)
    for (std::size_t i = 0; i < trained.size(); ++i)
      optimizer.records.push_back({"updates/" + std::string(trained[i].row->name),
                                   Element::i64,
                                   {},
                                   std::as_bytes(std::span(&copy.counts[i], 1))});
  if (hosted.optimizer->shards())
    return storeShard(hosted, copy.weights.data(), copy.optimizer.data(), weights, optimizer);
  if (Status status = WeightFile::store(stage.parameters, copy.weights.data(), nullptr); !status) return status;
  // The i-th pieces of all parameters lie like the weights.
  for (std::size_t at = 0; at < layout.bytes(); at += arenaBytes(stage.bytes.weights))
    if (Status status = WeightFile::store(stage.parameters, copy.optimizer.data() + at, nullptr); !status)
      return status;
  for (const ParameterRow& row : stage.parameters)
    if (row.trained) weights.add(row, row.name, copy.weights.data() + row.offset);
  for (const TrainedParameter& parameter : trained) {
    const ParameterRow& row = *parameter.row;
    for (std::size_t piece = 0; piece < layout.pieces(row).size(); ++piece)
      optimizer.add(row, layout.pieces(row)[piece] + "/" + row.name,
                    copy.optimizer.data() + layout.offsetOf(piece, row));
  }
  return {};
}

void Checkpointer::complete(const Job& job) {
  const std::int64_t minibatches = job.manifest.minibatches;
  Status status;
  if (job.givenUp) {
    removeCheckpoint(options_.directory, minibatches);
    status = {Exit::cannotWrite,
              checkpointFolder(options_.directory, minibatches) + ": could not be written by all ranks",
              "see the warnings above; the checkpoints before it are what they were"};
  } else {
    status = completeCheckpoint(options_.directory, job.manifest, options_.keep);
    if (!status)
      std::fprintf(stderr, "warning: %s; training goes on without this checkpoint\n", status.message().c_str());
  }
  std::lock_guard lock(mutex_);
  lastStatus_ = status;
}

} // namespace pdcrt
