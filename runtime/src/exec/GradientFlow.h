// Gradients of one hosted stage on their way from its backwards to its update: sums over minibatches, over the uses of
// a parameter, over the replicas, and their norm over all stages. Where members of a team have terms of the gradients
// (ScheduleStage::teamSums), they are summed with the replicas: replica by replica, member by member; but for
// parameters of which members have parts.
//
// A ring of sets holds the gradients of updates that are not made yet. The first minibatch of an update writes its set;
// kernels overwrite, so later minibatches write a spare set, which is added, first to last.
//
// Parameters whose gradients are reduced together are a bucket. In the last minibatch that a replica contributes to an
// update, the backward says of one bucket after the other that its gradients are final (Stream::bucket), and its
// all-reduce begins at once, beside what is left of the backward. The schedule's all-reduce begins those that are left.
// Each replica of a stage begins them in the order of the buckets, which is that of the messages, whether it has a
// minibatch or not.
#pragma once

#include "DataIn.h"
#include "Posting.h"
#include "TiedParameters.h"
#include "collectives/AllReduce.h"
#include "collectives/GradientNorm.h"
#include "machine/StartOrder.h"
#include "pdcrt/Arena.h"
#include "pdcrt/Optimizer.h"
#include "pdcrt/Places.h"
#include "pdcrt/Training.h"

#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace pdcrt {

/// A place for the gradients of stages with sharded weights, which they have in turn (Schedule::sumPlace).
struct SumPlace {
  int stage = -1; ///< that has gradients there which are not summed over the replicas
};

/// What a flow works with; all of it outlives the flow.
struct GradientFlowSetup {
  const Schedule* schedule = nullptr;
  const Places* places = nullptr;
  const Training* training = nullptr;
  Host host;
  int member = 0, members = 1; ///< of the team that computes the replica
  const Stage* stage = nullptr;
  const Optimizer* optimizer = nullptr;
  TiedParameters* tied = nullptr;
  Posting* posting = nullptr;
  const RunSpan* run = nullptr;
  SumPlace* sumPlace = nullptr; ///< where weights lie in shards
  /// Gradients that are reduced at a time, at most.
  std::size_t floatsOfReduction = 1 << 20;
};

class GradientFlow {
public:
  /// Trained parameters whose gradients are reduced together.
  struct Bucket {
    int id = 0; ///< ParameterRow::bucket
    std::vector<const TrainedParameter*> parameters;
    std::vector<const GradientRow*> gradients; ///< of their uses here
    bool early = false; ///< its all-reduce begins during the backward, when that says that it is final
    std::size_t firstReduction = 0, reductions = 0; ///< of its pieces, among those of a set
  };
  struct Set {
    std::byte* memory = nullptr;
    std::int64_t update = 0;      ///< that they are for, or its all-reduce
    bool reduced = false;         ///< the all-reduce has been awaited
    std::int64_t inputs = 0;      ///< minibatches of this replica whose backward_input is summed so far
    std::int64_t minibatches = 0; ///< the same of their backward_weight
    bool usesAdded = false;
    /// Of all buckets, one after the other; none without other replicas.
    std::vector<std::unique_ptr<AllReduce>> allReduces;
    std::size_t posted = 0; ///< buckets whose all-reduce has begun for this update
  };

  void prepare(const GradientFlowSetup& setup, const ArenaHost& place, std::byte* memory);
  /// Before a run: versions count from 0 again.
  void restart() { reduced_ = 0; }

  /// Makes the set of `update` that of `action`, a backward. Fails where it holds another update's gradients.
  Status claim(const Action& action, std::int64_t update);

  /// One half of the backward of the next minibatch: writes memory(), then its sums are made by finish().
  class Half : BucketTaker {
  public:
    Half(GradientFlow& flow, std::int64_t update, bool withInput);
    ~Half() override;
    Half(const Half&) = delete;
    Half& operator=(const Half&) = delete;
    /// The gradients block of the phase.
    std::byte* memory() const { return addsSpare_ ? flow_.spare_ : set_.memory; }
    /// After the phase.
    void finish();

  private:
    void take(int bucket) override;

    GradientFlow& flow_;
    Set& set_;
    bool withInput_, addsSpare_;
    bool takes_ = false; ///< what is final now stays so
  };

  /// An action AR or RS. `order`: of the transfers, if there is one.
  Status allReduce(const Action& action, const StartOrder* order);
  /// An action GN.
  Status norm(const Action& action);
  /// What an update needs: sums over uses, replicas and, if the schedule has it, the norm.
  Status finishFor(const Action& update);
  /// The factor of the mean gradient of an update of `minibatches`: the loss scale is divided out, then it is clipped
  /// as PyTorch's clip_grad_norm_ does. Nothing where a gradient is not finite: of any stage, where the schedule has
  /// the norm of all.
  Status scale(std::int64_t update, std::int64_t minibatches, double lossScale, std::optional<double>& scale);
  /// The update has been made: its set is free.
  void updated(std::int64_t update);

  /// The sums for an update: all of them, or those of the shard where weights lie in shards.
  std::byte* memory(std::int64_t update) { return sum_ ? sum_ : setOf(update).memory; }
  /// Calls visit(work) for all works that may be under way, until it fails.
  template <class Visit>
  Status forEachWork(Visit visit) {
    for (Set& set : sets_)
      for (const std::unique_ptr<AllReduce>& reduction : set.allReduces)
        if (Status status = visit(*reduction); !status) return status;
    return norm_ ? visit(*norm_) : Status(); // a team's own is awaited at once
  }
  const std::vector<Bucket>& buckets() const { return buckets_; } ///< in the order in which they are reduced
  const std::vector<Set>& sets() const { return sets_; }          ///< a ring over updates

private:
  void prepareBuckets();
  void prepareNorms();
  const ScheduleStage& shape() const { return setup_.schedule->stages[static_cast<std::size_t>(setup_.host.stage)]; }
  /// What is reduced at a time, and whom the sum of a part is then sent; null: nobody.
  struct Piece {
    std::shared_ptr<const ReduceGroup> replicas, sharers;
    bool ofMembers = false; ///< each member of a replica has a term
  };
  std::vector<Piece> pieces(std::byte* staging);
  ReduceGroup everyone(bool ofMembers) const;
  void addPieces(std::vector<Piece>& pieces, ReduceGroup& all, const std::vector<Segment>& segments,
                 bool ofMembers) const;
  std::vector<Piece> shardedPieces(std::byte* staging);
  void addShardedPieces(std::vector<Piece>& pieces, std::byte*& staging,
                        std::span<const TrainedParameter* const> parameters, bool ofMembers) const;
  std::shared_ptr<const ReduceGroup> sharersOf(const ReduceGroup& group, bool ofMembers) const;
  bool isSharded() const { return setup_.optimizer->shards() != nullptr; }
  Set& setOf(std::int64_t update) { return sets_[static_cast<std::size_t>(update - 1) % sets_.size()]; }
  std::int64_t firstOf(std::int64_t update) const;
  std::int64_t endOf(std::int64_t update) const;
  std::int64_t minibatchesOf(std::int64_t update) const;
  Status takePlace(const Action& action);
  void addSpare(const Set& set, const Bucket& bucket, bool withInput);
  Status addUses(Set& set, const Action& action);
  void postBucket(Set& set, std::int64_t turn);
  Status squaresOf(const Set& set, ExactSum& sum);
  Status squaresOfTeam(const Set& set, ExactSum& sum);

  GradientFlowSetup setup_;
  Routing routing_;
  std::vector<Bucket> buckets_; ///< the early ones come first
  std::vector<Set> sets_;
  std::byte* spare_ = nullptr;
  std::byte* sum_ = nullptr;    ///< where weights lie in shards: the sums of the shard
  std::int64_t reduced_ = 0;    ///< the newest update for which the schedule has begun the all-reduce, in this run
  std::vector<bool> ofMembers_; ///< by reduction of a set: Piece::ofMembers
  std::unique_ptr<GradientNorm> norm_;     ///< where the schedule has one
  std::unique_ptr<GradientNorm> teamNorm_; ///< of this stage's gradients alone, where the members have parts of them
  std::int64_t normOf_ = 0;                ///< the update for which it has been awaited

  // Kept for their capacity.
  std::vector<bool> replicas_, terms_;  ///< who contributes to an update: a replica has a term of each member
  std::vector<device::Floats> squared_; ///< parts of gradients that begin at a multiple of squaresBlock
  std::vector<double> squares_;
};

} // namespace pdcrt
