#include "PipeDream/Sosp19BruteForce.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

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
  }

  double answer() { return optimum(0, all_, cluster_.levels.size(), count(cluster_.levels.size())); }

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

  /// T^k of the nodes in `to` and not in `from`.
  double stage(Mask from, Mask to, std::size_t k, std::int64_t m) {
    double inner = optimum(from, to, k - 1, count(k - 1));
    if (m == 1) return inner;
    std::int64_t weights = 0;
    for (std::size_t v = 0; v < graph_.nodes.size(); ++v)
      if (holds(to & ~from, static_cast<std::int64_t>(v))) weights += graph_.nodes[v].parameterBytes;
    for (const CostSharedParameter& shared : graph_.sharedParameters)
      if (holds(to & ~from, shared.nodes.front())) weights += shared.bytes;
    auto replicas = static_cast<double>(m);
    double factor = isOf2018_ ? 4 * (replicas - 1) / replicas : 2 * (replicas - 1);
    return std::max(inner, factor * static_cast<double>(weights) / bandwidthPerMs(k)) / replicas;
  }

  /// A^k
  double optimum(Mask from, Mask to, std::size_t k, std::int64_t m) {
    if (k == 0) return compute(from, to);
    auto [known, isNew] = known_.try_emplace({from, to, k, m}, 0.0);
    if (!isNew) return known->second;
    double best = stage(from, to, k, m);
    for (Mask cut : downSets_) {
      if (cut == from || cut == to || (cut & from) != from || (cut & to) != cut) continue;
      double transfer = 2 * crossing(cut) / bandwidthPerMs(k);
      for (std::int64_t last = 1; last < m; ++last)
        best = std::min(best, std::max({optimum(from, cut, k, m - last), transfer, stage(cut, to, k, last)}));
    }
    return known_[{from, to, k, m}] = best;
  }

  double compute(Mask from, Mask to) const {
    double sum = 0;
    for (std::size_t v = 0; v < graph_.nodes.size(); ++v)
      if (holds(to & ~from, static_cast<std::int64_t>(v)))
        sum += graph_.nodes[v].forwardMs + graph_.nodes[v].inputGradientMs + graph_.nodes[v].weightGradientMs;
    return sum / cluster_.device.speed;
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
  std::vector<Mask> downSets_;
  std::map<std::tuple<Mask, Mask, std::size_t, std::int64_t>, double> known_;
};

} // namespace

double pdc::sosp19BruteForce(const CostGraph& graph, const Cluster& cluster, const std::string& costModel) {
  return Recurrence(graph, cluster, costModel).answer();
}
