// Writes checkpoints while a rank trains.
//
// A checkpoint after b minibatches holds, for every stage, what a run of exactly b minibatches leaves behind: weights,
// optimizer and loss scale after the update that ends with minibatch b - 1, state after the forward of minibatch b - 1.
// A stage comes to these moments by itself, later stages later than earlier ones; nobody waits for anybody. At each it
// copies what is about to change, and a thread writes the copy to disk. So b is a multiple of the minibatches after
// which all stages have made whole updates.
//
// Replica 0 of a stage copies weights and optimizer. Where replicas divide the updates, each copies its shard of both,
// which it has before the version is gathered: nobody waits for that, either.
//
// When every stage replica's files are there, rank 0 writes the manifest. A copy that cannot be written is told, and
// its checkpoint given up; training goes on.
#pragma once

#include "exec/Executor.h"
#include "pdcrt/Checkpoint.h"
#include "pdcrt/Places.h"
#include "transport/Control.h"

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace pdcrt {

class MemberRecords;

struct CheckpointOptions {
  std::string directory;  ///< empty: no checkpoints
  std::int64_t every = 0; ///< minibatches between two, at least; 0: only the last one
  int keep = 2;
  std::string adapters = {}; ///< metadata (pdcrt/Checkpoint.h)
};

/// Minibatches between the checkpoints of a run: a multiple of periodMinibatches(), at least `every`, and, where
/// minibatches of both sides of a checkpoint are in flight, at least as many as are. 0 if `every` is.
std::int64_t checkpointInterval(const Schedule& schedule, std::int64_t every);

/// Of one rank. All but the writing happens in the thread that runs the executor.
class Checkpointer {
public:
  Checkpointer(const CheckpointOptions& options, const Schedule& schedule, const Places& places,
               const Training& training);
  /// Waits until what is being written is written.
  ~Checkpointer();
  Checkpointer(const Checkpointer&) = delete;
  Checkpointer& operator=(const Checkpointer&) = delete;

  bool enabled() const { return !options_.directory.empty(); }

  /// Before the training, which goes on after `first` minibatches: takes memory for the copies. `executor` outlives the
  /// checkpointer's use. `frozen`: the sums of the frozen parameters, which checkpoints have instead of their values.
  void begin(Executor& executor, std::int64_t first, std::map<std::string, FileSum> frozen);
  /// After a drain, so many minibatches since `begin`, a multiple of periodMinibatches(): actions count from there on.
  void goOn(std::int64_t minibatches) { drainedAt_ = minibatches; }
  /// After a forward or an update of a hosted stage: copies what is due. Fails where members of a team have become
  /// different (EqualMembers.h).
  Status computed(const Action& action);
  /// After the drain: the checkpoint after all `minibatches` (since `begin`) of the run, unless it has been taken.
  /// Returns when it has been written.
  void finish(std::int64_t minibatches);

  /// What rank 0 is to be told (Topic::shard), of copies that have been written, or could not be; nothing: at present.
  std::optional<Message> report();

  /// Rank 0: takes a report; of any rank. `manifest` gives what is the same for all checkpoints of the run.
  void collect(const Message& report, const Manifest& manifest);
  /// Rank 0: the newest checkpoint of which all ranks have reported.
  std::int64_t collected() const { return collectedUpTo_; }
  /// Rank 0: waits until nothing is being written. Whether the checkpoint after all minibatches is whole.
  Status flush();

private:
  /// The copy of a stage replica.
  struct Copy {
    const HostedStage* hosted = nullptr;
    /// Weights and optimizer where hasWeights(); of a shard, with its elements one after the other.
    std::vector<std::byte> weights, optimizer, state;
    std::int64_t target = 0;                   ///< minibatches since `begin` of the next one; 0: none
    bool stateTaken = false;                   ///< for the target
    std::int64_t minibatches = 0, counted = 0; ///< what it holds: since the beginning; the optimizer's updates
    std::vector<std::int64_t> counts;          ///< updates by trained parameter
    DynamicLossScale lossScale;
    bool busy = false; ///< being written
  };
  struct Job {
    Copy* copy = nullptr; ///< or a manifest
    Manifest manifest;
    bool givenUp = false; ///< the manifest's checkpoint is to be removed
  };
  struct Collected {
    std::size_t reports = 0;
    bool failed = false;
    std::vector<Shard> shards;
    double lossScale = 1;
    std::int64_t finiteSteps = 0;
  };

  static bool hasWeights(const Copy& copy);
  void takeState(Copy& copy);
  void copyOut(std::vector<std::byte>& to, const std::byte* block);
  void take(Copy& copy, std::int64_t minibatches);
  void push(Job job);
  void run();
  void write(Copy& copy);
  Status writeShards(Copy& copy, Message& message) const;
  Status store(Copy& copy, MemberRecords& weights, MemberRecords& optimizer) const;
  void complete(const Job& job);

  CheckpointOptions options_;
  Executor* executor_ = nullptr;
  Stream stream_; ///< that of the stages
  const Schedule& schedule_;
  const Places& places_;
  const Training& training_;
  std::int64_t interval_ = 0, first_ = 0, drainedAt_ = 0, lastTaken_ = 0, collectedUpTo_ = 0;
  std::vector<Copy> copies_;
  std::map<std::string, FileSum> frozen_;       ///< by name
  std::map<std::int64_t, Collected> collected_; ///< rank 0's, by minibatches

  std::mutex mutex_; ///< guards what follows, and Copy::busy
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  std::deque<Message> reports_;
  bool working_ = false, stopping_ = false;
  Status lastStatus_; ///< rank 0's: of the newest checkpoint
  std::thread thread_;
};

} // namespace pdcrt
