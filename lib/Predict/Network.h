// A plan's traffic on the links of its cluster, as the simulator needs it.
//
// Leaves are numbered from the inside out: with P_j the product of the counts of the levels below j, leaf l is in
// component l / P_j of level j's parts, whose link leads up to level j with its bandwidth in each direction. A transfer
// between two leaves crosses, at every level below the one at which they meet, one link up and one link down; it takes
// the largest latency, then bytes over bandwidth of the slowest link if nobody else uses it.
#pragma once

#include "pdc/Schedule/PlanSchedule.h"
#include "pdcrt/Simulate.h"

#include <cstdint>
#include <span>
#include <vector>

namespace pdc {

class Network {
public:
  explicit Network(const Plan& plan);

  /// Links of all levels, two directions each.
  int links() const { return links_; }
  std::int64_t leafOf(int rank) const { return leaf_[rank]; }

  /// Bytes of one minibatch over the edge from -> to, or of its gradients.
  double bytes(int from, int to, bool forward) const;
  /// Bytes of shared parameters, or of the gradients of a user's uses.
  double sharedBytes(int owner, int user, bool version) const;

  /// A transfer of so many bytes to each member of the receiver: member j gets them from member j mod t of a sender
  /// with t members. `from`, `to`: stages; `fromLeaf`, `toLeaf`: of the first members.
  void route(int from, int to, std::int64_t fromLeaf, std::int64_t toLeaf, double bytes, pdcrt::Load& load) const;
  /// A transfer of a minibatch over an edge, alone on its links: the mean over the routes of its replicas.
  double meanTransferMs(int from, int to, bool forward) const;

  /// The all-reduce of a stage. On CPUs every replica exchanges parts with every other: a component that holds q of the
  /// r replicas sends and receives 2q(r-q)/r·|w|. Elsewhere it is a ring in the order of the replicas, with
  /// 2(r-1)/r·|w| over every hop. Latency counts 2(r-1) times. Not shorter than the time that the plan states.
  /// A reduce-scatter, and an all-gather, are one half of it each. Of what the backward hides nothing is left.
  /// Where D of the replicas have everything together, a gather is that of one `group` of them, and a sum ends with the
  /// gathers of those who have the same shard (ShardTraffic.h).
  void exchange(pdcrt::ActionKind kind, int stage, int group, pdcrt::Load& load) const;

private:
  struct Level {
    std::int64_t inside; ///< leaves in one of its parts
    int firstLink;
    double bandwidth; ///< bytes per ms; 0: without limit
    double latencyMs;
  };

  struct Exchanges {
    pdcrt::Load sum;                  ///< after the backward
    std::vector<pdcrt::Load> gathers; ///< by group of replicas that have everything together
  };

  pdcrt::Load allReduceOf(const Plan& plan, int stage) const;
  pdcrt::Load allReduceOf(const Plan& plan, int team, std::span<const std::int64_t> leaves, double weights) const;
  Exchanges exchangesOf(const Plan& plan, int stage) const;
  /// Calls visit(level, link) for each link from leaf to leaf.
  template <class Visit>
  void forEachLink(std::int64_t from, std::int64_t to, Visit visit) const;

  double transferMs(const pdcrt::Load& load) const;

  std::vector<Level> levels_;
  int links_ = 0;
  std::vector<int> teams_;                          ///< members, by stage
  std::vector<std::int64_t> leaf_;                  ///< by rank: of the first member
  std::vector<std::vector<std::int64_t>> replicas_; ///< by stage: leaf of each replica
  std::vector<std::vector<EdgeTraffic>> traffic_;   ///< by `from`
  std::vector<PlanSharedParameter> shared_;
  std::vector<Exchanges> exchanges_; ///< by stage
};

} // namespace pdc
