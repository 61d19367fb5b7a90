// The parts that all generators share: what surrounds one forward and one backward, and the sizes of rings.
#pragma once

#include "pdc/Schedule/PipelineShape.h"

#include <array>
#include <functional>

namespace pdc {

/// A schedule with everything but its lists, and one rank per stage replica, stage by stage.
pdcrt::Schedule emptySchedule(const PipelineShape& shape, const ScheduleDef& kind);

/// A kind whose ranks host one stage replica each.
class FlatKind : public ScheduleDef {
public:
  using ScheduleDef::ScheduleDef;
  pdcrt::Schedule frame(const PipelineShape& shape) const override { return emptySchedule(shape, *this); }
};

/// Appends the actions of one stage replica. Minibatches are local (pdcrt/Routing.h). Waits for
/// minibatches before the first are left out.
class ListBuilder {
public:
  ListBuilder(const pdcrt::Schedule& schedule, pdcrt::Host host);

  /// The receives that fill the empty rings.
  void firstReceives(std::vector<pdcrt::Action>& list) const;
  void forward(std::vector<pdcrt::Action>& list, std::int64_t k) const;
  void backward(std::vector<pdcrt::Action>& list, std::int64_t j) const;
  /// The two parts of backward(): input gradients, which are sent; weight gradients, after which buffers are free.
  void backwardInput(std::vector<pdcrt::Action>& list, std::int64_t j) const;
  void backwardWeight(std::vector<pdcrt::Action>& list, std::int64_t j) const;
  /// Starts to gather the sharded weights of a stage for another sweep, which the next computation awaits; gives
  /// the weights up.
  void unshard(std::vector<pdcrt::Action>& list) const;
  void reshard(std::vector<pdcrt::Action>& list) const;
  /// Gives up what is gathered.
  void reshardAll(std::vector<pdcrt::Action>& list) const {
    while (reshards_ < unshards_) reshard(list);
  }
  /// Starts the sum over the replicas for a version, if the stage is replicated and has not done so, when the gradients
  /// of all its uses are here.
  void reduce(std::vector<pdcrt::Action>& list, std::int64_t version) const;
  /// Waits for the sums that have been started, up to that of a version.
  void awaitReduced(std::vector<pdcrt::Action>& list, std::int64_t version) const;
  /// Starts the norm of the gradients of all stages for a version, if updates await it. The stages of a rank all start
  /// it before one awaits it.
  void norm(std::vector<pdcrt::Action>& list, std::int64_t version) const;
  /// Waits for the sum, or the norm, and makes the version; where the optimizer is sharded, starts to gather it, which
  /// the first forward that uses it awaits. Versions below 1 do not exist.
  void update(std::vector<pdcrt::Action>& list, std::int64_t version) const;

  /// From this local backward on nothing that `backward` waits for is before the first minibatch, and from this local
  /// forward on nothing that `forward` waits for.
  std::int64_t steadyBackward() const;
  std::int64_t steadyForward() const;
  /// From this local minibatch on the same holds for what is shared between stages.
  std::int64_t steadySharing() const;
  /// And for versions that are gathered.
  std::int64_t steadyGathering() const;
  /// The largest of the four.
  std::int64_t steady() const;

  /// After so many minibatches the actions of a replica repeat, where every stage updates on its own.
  std::int64_t stepMinibatches() const;

private:
  template <class Visit>
  void forEachPort(pdcrt::ActionKind kind, Visit visit) const;
  std::int64_t minibatch(std::int64_t local) const;
  const pdcrt::ScheduleStage& stage() const { return schedule_.stages[static_cast<std::size_t>(host_.stage)]; }
  void awaitGathered(std::vector<pdcrt::Action>& list, std::int64_t version) const;
  void awaitUnsharded(std::vector<pdcrt::Action>& list) const;
  void share(std::vector<pdcrt::Action>& list, pdcrt::ActionKind kind, bool wait, int peer, std::int64_t version) const;
  void awaitGradients(std::vector<pdcrt::Action>& list, std::int64_t j) const;
  void awaitParts(std::vector<pdcrt::Action>& list, std::int64_t j) const;
  void sendGradients(std::vector<pdcrt::Action>& list, std::int64_t j) const;
  void freeBuffers(std::vector<pdcrt::Action>& list, std::int64_t j) const;
  void receiveVersions(std::vector<pdcrt::Action>& list, std::int64_t before, std::int64_t oldest) const;
  void transfer(std::vector<pdcrt::Action>& list, pdcrt::ActionKind kind, bool wait, int peer,
                std::int64_t local) const;

  struct Port {
    int peer, ring;
  };

  const pdcrt::Schedule& schedule_;
  pdcrt::Host host_;
  std::array<std::vector<Port>, 4> ports_; ///< of SF, RF, SB, RB
  std::vector<const pdcrt::SharedEdge*> owned_, used_;
  // What the list has so far: the newest version that it awaits, whose gradients it sums, and of which it awaits the
  // sum; sweeps that it starts, awaits and gives up.
  mutable std::int64_t gathered_ = 0, reduced_ = 0, sums_ = 0, unshards_ = 0, unsharded_ = 0, reshards_ = 0;
};

/// Rings for the schedule's edges that suffice for the slots and handovers of its stages.
void sizeRings(pdcrt::Schedule& schedule);

/// The local minibatches [first, last) of one replica in a batch, and the version that is made of them.
struct BatchSpan {
  std::int64_t first, last, version;
};

/// Fills in the lists of a rank of a flushing schedule, batch after batch. For each, `append` adds the forwards and
/// backwards of one replica to `list`; then the hosted stages, whose builders these are, are updated.
void fillBatches(const pdcrt::Schedule& schedule, pdcrt::RankList& rank, const std::vector<ListBuilder>& builders,
                 const std::function<void(std::vector<pdcrt::Action>& list, const BatchSpan& batch)>& append);

} // namespace pdc
