#include "PipeDream/Sosp19BruteForce.h"

#include <algorithm>

using namespace pdc;

namespace {

using Mask = std::uint32_t;

class Recurrence {
public:
  Recurrence(const CostGraph& graph, const Cluster& cluster, const std::string& costModel)
      : graph_(graph), cluster_(cluster), isOf2018_(costModel == "pipedream-2018"),
        all_((Mask{1} << graph.nodes.size()) - 1) {
    for (Mask set = 0; set <= all_; ++set)
      if (isDownSet(set)) downSets_.push_back(set);
    for (const ClusterLevel& level : cluster.levels) most_ = std::max(most_, level.count);
    known_.assign((cluster.levels.size() + 1) * downSets_.size() * downSets_.size() * (most_ + 1), -1);
    for (Mask set : downSets_) crossing_.push_back(crossing(set));
  }

  double answer() { return optimum(0, downSets_.size() - 1, cluster_.levels.size(), count(cluster_.levels.size())); }

private:
  static bool holds(Mask set, std::int64_t node) { return set >> node & 1; }
  std::int64_t count(std::size_t k) const { return k == 0 ? 1 : cluster_.levels[k - 1].count; }

  bool isDownSet(Mask set) const {
    for (const CostTensor& tensor : graph_.tensors)
      for (std::int64_t user : tensor.to)
        if (holds(set, user) && !holds(set, tensor.from)) return false;
    for (std::size_t a = 0; a < graph_.nodes.size(); ++a)
      for (std::size_t b = 0; b < a; ++b)
        if (graph_.nodes[a].colour >= 0 && graph_.nodes[a].colour == graph_.nodes[b].colour &&
            holds(set, static_cast<std::int64_t>(a)) != holds(set, static_cast<std::int64_t>(b)))
          return false;
    return true;
  }

  /// T^k of the nodes in down-set `to` and not in down-set `from`.
  double stage(std::size_t from, std::size_t to, std::size_t k, std::int64_t m) {
    double inner = optimum(from, to, k - 1, count(k - 1));
    if (m == 1) return inner;
    auto replicas = static_cast<double>(m);
    double factor = isOf2018_ ? 4 * (replicas - 1) / replicas : 2 * (replicas - 1);
    return std::max(inner, factor * parameters(from, to) / bandwidthPerMs(k)) / replicas;
  }

  /// A^k
  double optimum(std::size_t from, std::size_t to, std::size_t k, std::int64_t m) {
    if (k == 0) return compute(from, to);
    double& known = known_[((k * downSets_.size() + from) * downSets_.size() + to) * (most_ + 1) + m];
    if (known >= 0) return known;
    double best = stage(from, to, k, m);
    for (std::size_t cut = from + 1; cut < to; ++cut) {
      if ((downSets_[cut] & downSets_[from]) != downSets_[from] || (downSets_[cut] & downSets_[to]) != downSets_[cut])
        continue;
      double transfer = 2 * crossing_[cut] / bandwidthPerMs(k);
      for (std::int64_t last = 1; last < m; ++last)
        best = std::min(best, std::max({optimum(from, cut, k, m - last), transfer, stage(cut, to, k, last)}));
    }
    return known = best;
  }

  double compute(std::size_t from, std::size_t to) const {
    double sum = 0;
    for (std::size_t v = 0; v < graph_.nodes.size(); ++v)
      if (holds(downSets_[to] & ~downSets_[from], static_cast<std::int64_t>(v)))
        sum += graph_.nodes[v].forwardMs + graph_.nodes[v].inputGradientMs + graph_.nodes[v].weightGradientMs;
    return sum / cluster_.device.speed;
  }

  double parameters(std::size_t from, std::size_t to) const {
    Mask set = downSets_[to] & ~downSets_[from];
    std::int64_t sum = 0;
    for (std::size_t v = 0; v < graph_.nodes.size(); ++v)
      if (holds(set, static_cast<std::int64_t>(v))) sum += graph_.nodes[v].parameterBytes;
    for (const CostSharedParameter& shared : graph_.sharedParameters)
      if (holds(set, shared.nodes.front())) sum += shared.bytes;
    return static_cast<double>(sum);
  }

  double crossing(Mask cut) const {
    std::int64_t sum = 0;
    for (const CostTensor& tensor : graph_.tensors) {
      bool isUsedLater = std::any_of(tensor.to.begin(), tensor.to.end(), [&](auto user) { return !holds(cut, user); });
      if (holds(cut, tensor.from) && isUsedLater) sum += tensor.bytes;
    }
    return static_cast<double>(sum);
  }

  double bandwidthPerMs(std::size_t k) const { return cluster_.levels[k - 1].bandwidthBytesPerS / 1e3; }

  const CostGraph& graph_;
  const Cluster& cluster_;
  bool isOf2018_;
  Mask all_;
  std::int64_t most_ = 1;
  std::vector<Mask> downSets_;   ///< as numbers ascending: each after its subsets
  std::vector<double> crossing_; ///< of each down-set
  std::vector<double> known_;    ///< A^k(from, to, m), negative if not known yet
};

} // namespace

double pdc::sosp19BruteForce(const CostGraph& graph, const Cluster& cluster, const std::string& costModel) {
  return Recurrence(graph, cluster, costModel).answer();
}
