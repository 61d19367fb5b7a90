// The parts that all generators of 1F1B kind share: what surrounds one forward and one backward, and the sizes of
// rings.
#pragma once

#include "pdc/Schedule/PipelineShape.h"

#include <array>

namespace pdc {

/// Appends the actions of one stage replica. Minibatches are local: k stands for k · replicas + replica. Waits for
/// minibatches before the first are left out.
class ListBuilder {
public:
  ListBuilder(const pdcrt::Schedule& schedule, pdcrt::Host host);

  /// The receives that fill the empty rings.
  void firstReceives(std::vector<pdcrt::Action>& list) const;
  void forward(std::vector<pdcrt::Action>& list, std::int64_t k) const;
  void backward(std::vector<pdcrt::Action>& list, std::int64_t j) const;
  /// Starts the all-reduce for version `reduced`, then waits for that of `updated` and makes it. Versions below 1 do
  /// not exist.
  void update(std::vector<pdcrt::Action>& list, std::int64_t reduced, std::int64_t updated) const;

  /// From this local backward on nothing that `backward` waits for is before the first minibatch, and from this local
  /// forward on nothing that `forward` waits for.
  std::int64_t steadyBackward() const;
  std::int64_t steadyForward() const;
  /// From this local minibatch on the same holds for what is shared between stages.
  std::int64_t steadySharing() const;

  /// After so many minibatches the actions of a replica repeat, where every stage updates on its own.
  std::int64_t stepMinibatches() const;

private:
  template <class Visit>
  void forEachPort(pdcrt::ActionKind kind, Visit visit) const;
  std::int64_t minibatch(std::int64_t local) const;
  void share(std::vector<pdcrt::Action>& list, pdcrt::ActionKind kind, bool wait, int peer, std::int64_t version) const;
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
};

} // namespace pdc
