// How far a component of a cluster gets on a chain within a threshold, when it may leave components inside it unused.
//
// Let θ = q·τ, where q is the product of the replica counts outside. Without "all components are used" whatever
// computes a part of the work can compute a part of that part, so of two positions reached with as many components the
// further one is as good. Hence
//
//   reach(0, q, p) = the last position with computation p → · at most θ
//   far(k, q, i)[d] = max over m ≤ d of the furthest e such that, from p = the last position ≤ far[d-m] whose cut takes
//                     at most θ in level k,   e ≤ reach(k-1, q·m, p)  and the weights p → e synchronise within θ
//   reach(k, q, i) = far(k, q, i)[m_k]
//
// and the recurrence's optimum is at least τ unless reach(L, 1, 0) is the end: a lower bound, and the guide of the
// exact search (Sosp19Chain.h). Costs O(m_k²) steps per (k, q, i), of which few are met; no table over nodes and
// devices. Positions by sums come from bucket tables. Comparisons forgive rounding (`slack`), on the safe side.
#pragma once

#include "PipeDream/Sosp19Problem.h"

namespace pdc::sosp19 {

/// The last position of a non-decreasing sequence at a value.
class PositionTable {
public:
  explicit PositionTable(const std::vector<double>& values);
  /// The largest p with values[p] <= value; values[0] must be.
  int last(double value) const;

private:
  const std::vector<double>& values_;
  std::vector<int> buckets_;
  double perValue_ = 0;
};

class Reach {
public:
  Reach(const Problem& problem, const Chain& chain);
  Reach(const Reach&) = delete;

  void setThreshold(double tau);
  double limit(std::int64_t q) const { return static_cast<double>(q) * limit_; }

  /// The last position that one component of level k (0: a device) reaches from p at threshold q·τ.
  int reach(std::size_t k, std::int64_t q, int p);

  /// far(k, q, i)[d] for d = 0 … m_k.
  std::vector<int> far(std::size_t k, std::int64_t q, int i);

  /// The last position that a stage on m components of level k-1 reaches from p.
  int stageReach(std::size_t k, std::int64_t q, int p, std::int64_t m);

  /// The last position up to p whose cut takes at most q·τ in level k; 0 always does.
  int lastCut(std::size_t k, std::int64_t q, int p) const;

  bool syncs(std::size_t k, std::int64_t q, int from, int to, std::int64_t m) const;

  /// Steps taken since construction, as a measure of work that does not depend on the machine.
  std::uint64_t steps() const { return steps_; }

private:
  int computeReach(double q, int p) const;
  int syncReach(std::size_t k, double q, int p, double m) const;
  std::int64_t nextCount(std::size_t k, std::int64_t q, int p, int reached, std::int64_t m) const;
  bool replicationReaches(std::size_t k, std::int64_t q, int p, int end);

  const Problem& problem_;
  const Chain& chain_;
  PositionTable byCompute_, byParameters_;
  std::vector<int> lowerCut_; ///< the last position before with a smaller cut
  double slack_ = 0, limit_ = 0;
  std::uint64_t steps_ = 0;

  struct Known {
    std::uint64_t key = 0;
    int epoch = 0, reach = 0;
  };
  std::vector<Known> known_; ///< direct mapped
  int epoch_ = 0;
};

} // namespace pdc::sosp19
