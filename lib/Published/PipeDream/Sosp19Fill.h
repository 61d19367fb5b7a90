// How much of a chain a component of a cluster needs at least, within a threshold, when it must use all components
// inside it but may leave work to others: the counterpart of Reach (Sosp19Reach.h).
//
// With θ = q·τ,
//
//   fill(0, q, p) = p + 1: a device needs a unit
//   slow(k, q, i)[d] = min over 1 ≤ m ≤ d of the first e such that, from some p' at or after the first position
//                      ≥ slow[d-m] whose cut takes at most θ in level k,   e ≥ fill(k-1, q·m, p')  and the weights p' →
//                      e synchronise on m components within θ
//   fill(k, q, i) = slow(k, q, i)[m_k]
//
// A later start never allows an earlier end, so of two positions reached with exactly as many components the nearer one
// is as good. Whatever uses d components exactly from i ends in slow[d] … far[d]. A stage with light weights takes any
// number of components, hence mostly fill(k, q, p) = p + 1, seen at once; where weights are heavy few counts are
// possible. Positions p' after the first few are not tried, which only weakens the bound.
#pragma once

#include "PipeDream/Sosp19Reach.h"

#include <unordered_map>

namespace pdc::sosp19 {

class Fill {
public:
  Fill(const Problem& problem, const Chain& chain, const Reach& reach);
  Fill(const Fill&) = delete;

  /// Forgets what held at another threshold of the Reach.
  void thresholdChanged() { known_.clear(); }

  /// The first position at which one component of level k (0: a device) can stop when it starts at p; past the end if
  /// there is none.
  int fill(std::size_t k, std::int64_t q, int p);

  /// slow(k, q, i)[d] for d = 0 … m_k.
  std::vector<int> slow(std::size_t k, std::int64_t q, int i);

  /// The first position at which a stage on m components of level k-1 can stop.
  int stageFill(std::size_t k, std::int64_t q, int p, std::int64_t m);

  std::uint64_t steps() const { return steps_; } ///< as Reach::steps

  /// Parameters that m > 1 replicas synchronise within q·τ.
  double mostBytes(std::size_t k, std::int64_t q, std::int64_t m) const;

private:
  int nextCut(std::size_t k, std::int64_t q, int p) const;
  int nextLight(double bytes, int p) const;
  int none() const { return chain_.size() + 1; }

  const Problem& problem_;
  const Chain& chain_;
  const Reach& reach_;
  std::vector<std::vector<double>> lightest_; ///< [b][p]: least parameter bytes of the units p … p + 2^b - 1
  std::vector<int> lowerCut_;                 ///< the first position after with a smaller cut
  std::unordered_map<std::uint64_t, int> known_;
  std::uint64_t steps_ = 0;
};

} // namespace pdc::sosp19
