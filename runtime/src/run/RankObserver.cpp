// What a rank is told while it trains, by the executor and by other ranks, and what it makes of it.
#include "RankRun.h"

#include "pdcrt/Machine.h"

#include <cstdio>
#include <cstring>
#include <ctime>

namespace pdcrt {
namespace {

double processorSeconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

} // namespace

// ---- From the executor ----

void RankRun::loss(int stage, std::int64_t minibatch, double value) {
  if (!tells()) return;
  Message message;
  message.topic = Topic::loss;
  message.stage = stage;
  message.index = minibatch;
  message.values[0] = value;
  toRank0(message);
}

void RankRun::term(int stage, const char* name, std::int64_t minibatch, double value) {
  const std::optional<std::size_t> place = placeOf(files_.training.terms, name);
  if (!tells() || !place) return;
  Message message;
  message.topic = Topic::term;
  message.stage = stage;
  message.index = minibatch;
  message.numbers[0] = *place;
  message.values[0] = value;
  toRank0(message);
}

void RankRun::skipped(const HostedStage& hosted, std::int64_t update) {
  constexpr std::int64_t told = 5; // a dynamic scale begins with some
  const bool first = tells() && hosted.host.replica == 0 && (!files_.schedule.gradientNorm || hosted.host.stage == 0);
  if (first && hosted.skipped <= told)
    std::fprintf(stderr, "note: update %lld of %s %d is skipped, gradients are not finite (loss scale %g)%s\n",
                 static_cast<long long>(update), files_.schedule.gradientNorm ? "all stages, seen by stage" : "stage",
                 hosted.host.stage, hosted.lossScale.scale, hosted.skipped == told ? "; more are not told" : "");
}

void RankRun::acted(const Action& action, double begin, double end) {
  recorder_.end(end);
  if (!options_.traceFile.empty() && done_ == 0) trace_.add(action, begin, end); // after a drain numbers begin again
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
  if (action.kind == ActionKind::forward) newest_ = std::max(newest_, done_ + action.index);
  processorMark_ = processor;
}

void RankRun::transferred(const Action& action, double posted, double completed) {
  if (options_.traceFile.empty() || done_ > 0) return;
  Action transfer = action;
  transfer.wait = false;
  trace_.add(transfer, posted, completed);
}

void RankRun::met(const Collective&, int, double begin, double end) {
  recorder_.met();
  waitSeconds_ += end - begin;
}

std::int64_t RankRun::minibatches(std::int64_t planned) {
  Message message;
  while (control_.poll(message)) handle(message);
  reportShards();
  if (signalled != 0 && !stopAsked_) {
    stopAsked_ = true;
    message = {};
    message.topic = Topic::stopWish;
    toRank0(message);
  }
  processorMark_ = processorSeconds();
  return std::min(planned, minibatches_ - done_);
}

// ---- From other ranks ----

void RankRun::toRank0(Message& message) {
  message.rank = rank_;
  if (rank_ == 0)
    handle(message);
  else
    control_.send(0, message); // where it cannot be sent, the executor learns of it in its next wait
}

/// Tells rank 0 of files that have been written since the last call.
void RankRun::reportShards() {
  if (!checkpointer_.enabled()) return;
  while (std::optional<Message> report = checkpointer_.report()) toRank0(*report);
}

/// What all checkpoints of the run have in common.
Manifest RankRun::manifest() const {
  Manifest manifest;
  manifest.batch = files_.training.batch;
  manifest.samples = options_.data == "synthetic" ? 0 : agreement_.samples;
  manifest.seed = files_.training.seed;
  manifest.shuffle = options_.shuffle;
  manifest.optimizer = nameOf(files_.training.optimizer);
  manifest.learningRate = files_.training.learningRate;
  manifest.modelHash = files_.modelHash;
  return manifest;
}

void RankRun::handle(const Message& message) {
  switch (message.topic) {
  case Topic::hello: hellos_[message.rank] = message; break;
  case Topic::verdict: take(message); break;
  case Topic::loss: progress_->loss(message.index, message.values[0]); break;
  case Topic::term: progress_->term(message.index, message.numbers[0], message.values[0]); break;
  case Topic::stopWish: stop(); break;
  case Topic::stop:
    minibatches_ = std::min(minibatches_, message.index);
    stopped_ = true;
    break;
  case Topic::shard: checkpointer_.collect(message, manifest()); break;
  case Topic::checkpointed: checkpointed_ = true; break;
  case Topic::load: loads_.add(message); break;
  case Topic::evaluation: {
    EvaluationSums sums;
    std::memcpy(&sums, message.values, sizeof sums);
    evaluations_[message.rank] = sums;
    break;
  }
  case Topic::statistics:
    statistics_.push_back({.rank = message.rank,
                           .host = {message.stage, message.replica},
                           .member = message.member,
                           .minibatches = message.index,
                           .wallSeconds = message.values[0],
                           .processorSeconds = message.values[1],
                           .waitSeconds = message.values[2],
                           .arenaBytes = static_cast<std::int64_t>(message.numbers[0]),
                           .peakBytes = static_cast<std::int64_t>(message.numbers[1]),
                           .bytesSent = message.numbers[2],
                           .teamBytes = message.numbers[4],
                           .otherBytes = static_cast<std::int64_t>(message.numbers[3])});
    break;
  }
}

/// Rank 0: ends the run at a minibatch that no rank can have reached yet, so that all drain alike.
void RankRun::stop() {
  if (stopped_ || trained_) return;
  // Where a whole period of the schedule has passed, a run that goes on from here deals out the minibatches alike.
  const std::int64_t step = files_.schedule.minibatchesPerUpdate > 0 ? periodMinibatches(files_.schedule) : 1;
  const std::int64_t margin = 2 * minibatchesInFlight(files_.schedule) + 16;
  const std::int64_t end = (newest_ + margin + step) / step * step;
  stopped_ = true;
  if (end >= minibatches_) return;
  minibatches_ = end;
  progress_->shorten(first_ + end);
  Message message;
  message.topic = Topic::stop;
  message.index = end;
  for (int rank = 1; rank < transport_.ranks(); ++rank) control_.send(rank, message);
}

void RankRun::take(const Message& verdict) {
  verdictCode_ = static_cast<Exit>(verdict.numbers[0]);
  minibatches_ = verdict.index;
  first_ = static_cast<std::int64_t>(verdict.numbers[2]);
  evaluationSamples_ = static_cast<std::int64_t>(verdict.numbers[1]);
  verdictTaken_ = true;
}

} // namespace pdcrt
