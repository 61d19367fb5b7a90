// The exact decision over all down-sets: is there a plan of at most τ?
//
// row(k, q, I) = the down-sets J for which A^k(I → J, m_k) <= q·τ. It comes from sets of component counts: bits(J)
// holds m if chains of stages from I to J use exactly m components of level k-1 within the threshold,
//
//   bits(I) = {0};   bits(J) ∪= bits(K) + m   for K ⊂ J with an affordable cut, J in row(k-1, q·m, K), and m replicas
//   of
//                                             K → J that synchronise in time,
//
// and row(k, q, I) is where bits holds m_k. J ∈ row(k-1, q·m, K) is monotone in m and so is the synchronisation (but
// for one replica in the model of 2018): the counts of a stage are an interval, and a step shifts a bit set by an
// interval. Rows are made when asked for. A pair (K, J) is only looked at if its computation fits the components left,
// so down-sets are sorted by computation and looked up in a window. With D down-sets a row costs O(D²·m_k/64·log m_k),
// and there are at most D rows per (k, q).
#pragma once

#include "PipeDream/Sosp19Counts.h"
#include "PipeDream/Sosp19Problem.h"
#include "pdc/Planner/Order/DownSets.h"
#include "pdc/Planner/Order/Threshold.h"

#include <optional>
#include <unordered_map>

namespace pdc::sosp19 {

class RowSearch {
public:
  RowSearch(const Problem& problem, const DownSets& downSets);

  struct Result {
    ThresholdRun::Answer answer = ThresholdRun::Answer::unknown;
    Placement placement; ///< if feasible
  };
  /// `unknown` after so many pairs, or when `isOver` says so (it is asked now and then).
  Result run(double tau, std::int64_t pairs, const std::function<bool()>& isOver);

  /// Pairs that the last run looked at.
  std::int64_t pairs() const { return pairs_; }

private:
  struct Interval {
    std::int64_t first = 1, last = 0;
  };
  struct Row {
    std::vector<char> holds; ///< from the start on
  };

  std::vector<Counts> counts(std::size_t k, std::int64_t q, int from, int last);
  bool inRow(std::size_t k, std::int64_t q, int from, int to);
  Interval allowed(std::size_t k, std::int64_t q, int from, int to, std::int64_t most);
  bool allowsOne(std::size_t k, std::int64_t q, int from, int to);
  bool cutFits(std::size_t k, std::int64_t q, int at) const;
  bool mayGoOn();
  int windowEnd(int from, double computeMs) const;
  void emit(std::size_t k, std::int64_t q, int from, int to, std::vector<Share>& shares, Placement& placement);

  const Problem& problem_;
  std::vector<NodeSet> sets_; ///< by computation
  std::vector<double> computeMs_, parameterBytes_, cutBytes_;
  double limit_ = 0, slack_ = 0;
  std::int64_t pairsLeft_ = 0, pairs_ = 0;
  const std::function<bool()>* isOver_ = nullptr;
  std::vector<std::unordered_map<std::uint64_t, Row>> rows_; ///< of each level
};

} // namespace pdc::sosp19
