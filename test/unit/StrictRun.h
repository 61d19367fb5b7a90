// Runs a schedule for real: executors, communication threads and the transport `threads`, one thread per rank, under
// the contract that MPI has for transfers that are under way, made visible by what stands between executor and
// communication thread:
//
// - A receive buffer is undefined from the post on: it is filled with rubbish, and the bytes arrive when the receive
//   is awaited. So does the result of an all-reduce, which may be posted in a backward, bucket by bucket.
// - A send buffer must not change from the post until the send has been awaited.
// - What is started must be awaited, once, by the list; and not before it is started.
// - Buffers of a ring are used in turn: the transfers of an edge in one direction, and the all-reduces of a stage, are
//   started, and awaited, in order.
// - A message carries its minibatch, as a tag would, and the receiver expects its own; a wait is for the minibatch
//   whose transfer was started; the n-th all-reduce of a stage is of the same bucket for the same update on all
//   replicas, and the n-th norm of all stages' gradients for the same update; it is there when all have joined.
// - Versions and gradients of shared parameters are started, and awaited, in order too, also where none are to be sent.
// - A send completes only when its receive has been posted (synchronous).
//
// A run that nothing can end any more is stopped by a time-out: no rank has made progress for some milliseconds, and
// all threads of ranks and communication sleep.
#pragma once

#include "ThreadRun.h"

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <deque>
#include <filesystem>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>
#include <vector>

namespace strict {

using namespace pdcrt;

inline constexpr std::byte rubbish{0xA5};

inline constexpr int everyStage = -1;

/// The updates for which the replicas of each stage have started all-reduces, and all of them norms, in the order of
/// starting.
class Reductions {
public:
  /// For norms in which so many stage replicas take part.
  explicit Reductions(int everybody) : everybody_(everybody) {}

  /// The n-th of a replica. False if another replica's is for another update.
  bool agree(int stage, std::size_t n, std::int64_t update) {
    std::lock_guard lock(mutex_);
    std::vector<std::int64_t>& started = started_[stage];
    if (n == started.size()) started.push_back(update);
    if (stage == everyStage && ++joined_[update] == everybody_) changed_.notify_all();
    return started[n] == update;
  }

  /// Waits until all have joined the norm of `update`. False after abort().
  bool waitForNorm(std::int64_t update) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return aborted_ || joined_[update] == everybody_; });
    return !aborted_;
  }
  void abort() {
    std::lock_guard lock(mutex_);
    aborted_ = true;
    changed_.notify_all();
  }

private:
  int everybody_;
  bool aborted_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, std::vector<std::int64_t>> started_;
  std::map<std::int64_t, int> joined_; ///< by update
};

/// Stands between an executor and its communication thread.
class StrictCommunicator : public Communicator {
public:
  StrictCommunicator(Transport& transport, Reductions& reductions) : Communicator(transport), reductions_(reductions) {}

  std::vector<Action> list;             ///< what the executor executes,
  std::atomic<std::size_t> executed{0}; ///< and how much of it it has

  /// Whose transfers these are, after prepare().
  void watch(const Schedule& schedule, std::span<const HostedStage> hosted, std::size_t gradientBytes) {
    schedule_ = &schedule;
    gradientBytes_ = gradientBytes;
    for (const HostedStage& stage : hosted) {
      weightBytes_ = std::max(weightBytes_, stage.stage->bytes.weights);
      for (std::span<TransferGroup> ring : stage.edges.rings()) {
        addRing(ring.size());
        for (const TransferGroup& transfers : ring) addPlace(&transfers);
      }
      addRing(stage.gradients.sets().size() * stage.gradients.buckets().size());
      for (const GradientFlow::Set& set : stage.gradients.sets())
        for (std::size_t i = 0; i < set.allReduces.size(); ++i) {
          addPlace(set.allReduces[i].get());
          bucketOf_[set.allReduces[i].get()] = static_cast<int>(i);
        }
      addRing(stage.gathered.ring().size());
      for (std::size_t i = 0, size = stage.gathered.ring().size(); i < size; ++i) // versions count from 1
        addPlace(stage.gathered.ring()[(i + 1) % size].get());
      addRing(stage.sweeps.ring().size());
      for (std::size_t i = 0, size = stage.sweeps.ring().size(); i < size; ++i) // sweeps, too
        addPlace(stage.sweeps.ring()[(i + 1) % size].get());
    }
  }

  void post(Work& work) override {
    if (auto place = placeOf_.find(&work); place != placeOf_.end()) {
      Ring& ring = rings_[place->second.ring];
      if (ring.posted++ % ring.size != place->second.index) breaks("a buffer out of turn");
    }
    Copy& copy = copies_[&work];
    if (copy.underWay) return breaks("a transfer that was started again before it was awaited");
    copy.underWay = true;
    const Action& action = list[executed];
    copy.index = action.index;
    if (auto* transfers = dynamic_cast<TransferGroup*>(&work)) {
      copy.parts.resize(transfers->used);
      for (std::size_t i = 0; i < transfers->used; ++i) {
        Transfer& transfer = transfers->parts[i];
        copy.parts[i].original = transfer.data;
        copy.parts[i].bytes.assign(transfer.data, transfer.data + transfer.bytes);
        copy.parts[i].outgoing = transfer.outgoing;
        if (!transfer.outgoing) std::memset(transfer.data, static_cast<int>(rubbish), transfer.bytes);
        const auto* tag = reinterpret_cast<const std::byte*>(&copy.index);
        copy.parts[i].bytes.insert(copy.parts[i].bytes.end(), tag, tag + sizeof copy.index);
        transfer.data = copy.parts[i].bytes.data();
        transfer.bytes += sizeof copy.index;
      }
    } else if (auto* reduction = dynamic_cast<AllReduce*>(&work)) {
      if (!isVersioned(action.kind)) copy.index = action.index / schedule_->minibatchesOfUpdate(action.stage) + 1;
      if (!reductions_.agree(action.stage, reduced_[action.stage]++, 16 * copy.index + bucketOf_[&work]))
        breaks("an all-reduce of different updates");
      copy.original = reduction->block();
      moveAway(reduction->segments(), copy);
      reduction->moveTo(copy.reduced.data());
    } else if (auto* gather = dynamic_cast<AllGather*>(&work)) {
      if (!reductions_.agree(gathersOf(action.stage), gathered_[action.stage]++, action.index))
        breaks("an all-gather of different versions");
      copy.original = gather->block();
      moveAway(gather->parts().all(), copy);
      // What is sent stays where it is: the next update reads it.
      for (const Segment& segment : gather->parts().own())
        std::memcpy(copy.original + segment.offset, copy.reduced.data() + segment.offset,
                    segment.count * sizeof(float));
      gather->moveTo(copy.reduced.data());
    } else if (dynamic_cast<GradientNorm*>(&work)) {
      if (!reductions_.agree(everyStage, norms_[action.stage]++, action.index)) breaks("a norm of different updates");
    }
    Communicator::post(work);
  }

  bool wait(const Work& work) override {
    if (executed == list.size()) return breaks("a transfer that nothing awaits"), false; // the drain
    auto found = copies_.find(&work);
    if (found == copies_.end() || !found->second.underWay) return breaks("a wait for what is not started"), false;
    Copy& copy = found->second;
    if (copy.index != list[executed].index) return breaks("a wait for what is not started"), false;
    if (auto place = placeOf_.find(&work); place != placeOf_.end()) {
      Ring& ring = rings_[place->second.ring];
      if (ring.awaited++ % ring.size != place->second.index) breaks("a wait out of turn");
    }
    if (dynamic_cast<const GradientNorm*>(&work) && !reductions_.waitForNorm(copy.index)) return false;
    if (!Communicator::wait(work)) return false;
    copy.underWay = false;
    for (const Part& part : copy.parts) arrive(part, copy.index);
    if (const auto* reduction = dynamic_cast<const AllReduce*>(&work)) moveBack(reduction->segments(), copy);
    if (const auto* gather = dynamic_cast<const AllGather*>(&work)) {
      for (const Segment& segment : gather->parts().own())
        if (std::memcmp(copy.original + segment.offset, copy.reduced.data() + segment.offset,
                        segment.count * sizeof(float)) != 0)
          breaks("a shard that changed while it was sent");
      moveBack(gather->parts().all(), copy);
    }
    return broken_.empty();
  }

  /// An action of the list has been executed.
  void acted(const Action& action) {
    const bool send = action.kind == ActionKind::sendVersion || action.kind == ActionKind::sendPart;
    if (!send && action.kind != ActionKind::receiveVersion && action.kind != ActionKind::receivePart) return;
    Order& order = shared_[{action.stage, action.kind, action.peer}];
    if (action.wait) {
      if (order.underWay.empty() || order.underWay.front() != action.index) return breaks("a wait out of turn");
      order.underWay.pop_front();
    } else {
      if (action.index <= order.newest) return breaks("a buffer out of turn");
      order.newest = action.index;
      order.underWay.push_back(action.index);
    }
  }

  /// The list has ended.
  void drained() {
    for (const auto& [where, order] : shared_)
      if (!order.underWay.empty()) breaks("a transfer that nothing awaits");
    for (const auto& [work, copy] : copies_)
      if (copy.underWay) breaks("a transfer that nothing awaits");
  }

  /// The first breach of the contract; empty if there was none.
  const std::string& broken() const { return broken_; }

private:
  struct Part {
    std::byte* original = nullptr;
    std::vector<std::byte> bytes;
    bool outgoing = false;
  };
  struct Copy {
    bool underWay = false;
    std::int64_t index = 0; ///< minibatch, or update
    std::vector<Part> parts;
    std::byte* original = nullptr;  ///< of an all-reduce or all-gather: the block,
    std::vector<std::byte> reduced; ///< and where it is reduced, or gathered
  };
  struct Ring {
    std::int64_t size, posted = 0, awaited = 0;
  };
  struct Order { ///< of versions, or of gradients of updates
    std::int64_t newest = 0;
    std::deque<std::int64_t> underWay;
  };
  struct Place {
    std::size_t ring;
    std::int64_t index;
  };
  void addRing(std::size_t size) {
    rings_.push_back({static_cast<std::int64_t>(size)});
    places_ = 0;
  }
  void addPlace(const Work* work) { placeOf_[work] = {rings_.size() - 1, places_++}; }
  /// What an awaited transfer leaves.
  void arrive(const Part& part, std::int64_t index) {
    const std::size_t bytes = part.bytes.size() - sizeof index;
    if (part.outgoing) {
      if (std::memcmp(part.original, part.bytes.data(), bytes) != 0) breaks("a send buffer that changed");
      return;
    }
    std::memcpy(part.original, part.bytes.data(), bytes);
    if (std::memcmp(part.bytes.data() + bytes, &index, sizeof index) != 0) breaks("a message of another minibatch");
  }
  /// Moves the segments of a block to a copy, and leaves rubbish.
  void moveAway(const std::vector<Segment>& segments, Copy& copy) const {
    copy.reduced.assign(std::max(gradientBytes_, weightBytes_), rubbish);
    for (const Segment& segment : segments) {
      const std::size_t bytes = segment.count * sizeof(float);
      std::memcpy(copy.reduced.data() + segment.offset, copy.original + segment.offset, bytes);
      std::memset(copy.original + segment.offset, static_cast<int>(rubbish), bytes);
    }
  }
  static void moveBack(const std::vector<Segment>& segments, const Copy& copy) {
    for (const Segment& segment : segments)
      std::memcpy(copy.original + segment.offset, copy.reduced.data() + segment.offset, segment.count * sizeof(float));
  }
  /// Where all-gathers of a stage are counted.
  static int gathersOf(int stage) { return -2 - stage; }
  void breaks(const char* what) {
    if (broken_.empty()) broken_ = what;
  }

  Reductions& reductions_;
  std::map<int, std::size_t> reduced_, norms_, gathered_;    ///< all-reduces, norms and gathers started, by stage
  std::map<std::tuple<int, ActionKind, int>, Order> shared_; ///< by stage, kind, peer
  std::map<const Work*, Copy> copies_;
  std::vector<Ring> rings_;
  std::map<const Work*, Place> placeOf_;
  std::map<const Work*, int> bucketOf_; ///< of all-reduces
  std::int64_t places_ = 0;             ///< in the last ring
  std::size_t gradientBytes_ = 0, weightBytes_ = 0;
  const Schedule* schedule_ = nullptr;
  std::string broken_;
};

/// How a run ended.
enum class End { finished, refused, stuck };

struct Outcome {
  End end = End::finished;
  std::string why;               ///< what refused or broke the contract
  std::vector<std::byte> result; ///< newest weights and digests of all stage replicas
};

class StrictRun {
public:
  StrictRun(const Schedule& schedule, std::span<const Stage* const> stages, const Training& training,
            Executor::ReadTensor readWeights)
      : schedule_(schedule), stages_(stages), training_(training), readWeights_(std::move(readWeights)),
        reductions_(replicasOf(schedule)) {}

  /// Trains on so many minibatches.
  Outcome run(std::int64_t minibatches) {
    const int ranks = static_cast<int>(schedule_.ranks.size());
    transports_ = makeThreadTransports(ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      ranks_.push_back(std::make_unique<Rank>(*this, *transports_[static_cast<std::size_t>(rank)]));
      Rank& r = *ranks_.back();
      r.communicator.list = expand(schedule_, rank, minibatches);
      r.executor = std::make_unique<Executor>(ExecutorSetup{.schedule = &schedule_,
                                                            .rank = rank,
                                                            .stages = stages_,
                                                            .training = &training_,
                                                            .communicator = &r.communicator,
                                                            .data = nullptr,
                                                            .observer = &r});
    }
    running_ = ranks;
    for (const auto& rank : ranks_) rank->thread = std::thread([&, r = rank.get()] { r->work(minibatches); });
    bool stuck = !finishes();
    if (stuck) abort(*transports_[0]);
    for (const auto& rank : ranks_) rank->thread.join();
    for (const auto& rank : ranks_) rank->communicator.stop();
    return outcome(stuck);
  }

private:
  struct Rank : RunObserver {
    Rank(StrictRun& run, Transport& transport) : owner(run), communicator(transport, run.reductions_) {}

    void work(std::int64_t minibatches) {
      status = executor->prepare();
      if (status) status = executor->setWeights(owner.readWeights_);
      if (status) {
        communicator.watch(owner.schedule_, executor->hosted(), executor->hosted()[0].stage->bytes.gradients);
        if (communicator.list.empty()) communicator.drained();
        status = executor->train(0, minibatches);
      }
      if (!status || !communicator.broken().empty()) owner.abort(communicator.transport());
      {
        std::lock_guard lock(owner.mutex_);
        --owner.running_;
      }
      owner.ended_.notify_all();
    }
    std::int64_t minibatches(std::int64_t planned) override {
      communicator.acted(communicator.list[communicator.executed]);
      if (++communicator.executed == communicator.list.size()) communicator.drained();
      return planned;
    }

    StrictRun& owner;
    StrictCommunicator communicator;
    std::unique_ptr<Executor> executor;
    Status status;
    std::thread thread;
  };

  static int replicasOf(const Schedule& schedule) {
    int replicas = 0;
    for (const ScheduleStage& stage : schedule.stages) replicas += stage.replicas;
    return replicas;
  }

  void abort(Transport& transport) {
    transport.abort(1);
    reductions_.abort();
  }

  std::size_t progress() const {
    std::size_t sum = 0;
    for (const auto& rank : ranks_) sum += rank->communicator.executed;
    return sum;
  }

  /// Whether all ranks end; false when nothing can move any more.
  bool finishes() {
    std::unique_lock lock(mutex_);
    for (std::size_t before = 0, quiet = 0; quiet < 2;) {
      if (ended_.wait_for(lock, std::chrono::milliseconds(2), [&] { return running_ == 0; })) return true;
      lock.unlock(); // else a rank that ends might sleep because of it
      const std::size_t now = progress();
      quiet = now == before && allOthersSleep() ? quiet + 1 : 0;
      before = now;
      lock.lock();
    }
    return false;
  }

  /// Whether every thread of this process but the calling one waits for something.
  static bool allOthersSleep() {
    const std::string self = std::to_string(::gettid());
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
      if (entry.path().filename() == self) continue;
      std::FILE* file = std::fopen((entry.path() / "stat").c_str(), "r");
      if (!file) continue; // it has just ended
      char state = 'R';
      if (std::fscanf(file, "%*d (%*[^)]) %c", &state) != 1) state = 'R';
      std::fclose(file);
      if (state != 'S') return false;
    }
    return true;
  }

  Outcome outcome(bool stuck) const {
    Outcome outcome;
    for (const auto& rank : ranks_) {
      if (!rank->communicator.broken().empty()) outcome = {End::refused, rank->communicator.broken(), {}};
      // A rank that was stopped because of others says so; the others say why.
      const bool itself = !rank->status && rank->status.code() != Exit::again;
      if (outcome.end == End::finished && itself) outcome = {End::refused, rank->status.message(), {}};
    }
    if (outcome.end == End::finished && stuck) outcome.end = End::stuck;
    if (outcome.end != End::finished) return outcome;
    for (const auto& rank : ranks_)
      for (const HostedStage& hosted : rank->executor->hosted()) {
        const std::span<const std::byte> weights = newestOf(hosted);
        outcome.result.insert(outcome.result.end(), weights.begin(), weights.end());
        outcome.result.insert(outcome.result.end(), hosted.state, hosted.state + hosted.stage->bytes.state);
      }
    return outcome;
  }

  const Schedule& schedule_;
  std::span<const Stage* const> stages_;
  const Training& training_;
  Executor::ReadTensor readWeights_;
  Reductions reductions_;
  std::vector<std::unique_ptr<Transport>> transports_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::mutex mutex_;
  std::condition_variable ended_;
  int running_ = 0;
};

} // namespace strict
