#include "PipeDream/Sosp19Problem.h"

#include <algorithm>
#include <map>

using namespace pdc;
using namespace pdc::sosp19;

/// Nodes of one colour share a stage, and so does what lies on a path between them: strongly connected parts once each
/// colour class is closed to a cycle.
static std::vector<int> unitOfNodes(const CostGraph& graph) {
  std::vector<std::pair<int, int>> edges;
  for (const CostTensor& tensor : graph.tensors)
    for (std::int64_t to : tensor.to) edges.emplace_back(static_cast<int>(tensor.from), static_cast<int>(to));
  std::map<std::int64_t, int> firstOfColour;
  for (std::size_t v = 0; v < graph.nodes.size(); ++v) {
    if (graph.nodes[v].colour < 0) continue;
    int node = static_cast<int>(v), first = firstOfColour.emplace(graph.nodes[v].colour, node).first->second;
    if (first == node) continue;
    edges.emplace_back(first, node);
    edges.emplace_back(node, first);
  }
  return strongComponents(graph.nodes.size(), edges);
}

static std::vector<Level> levelsOf(const Cluster& cluster, bool isOf2018) {
  std::vector<Level> levels;
  std::int64_t inside = 1;
  for (std::size_t i = 0; i < cluster.levels.size(); ++i) {
    const ClusterLevel& level = cluster.levels[i];
    if (level.count == 1) continue;
    double msPerByte = 1e3 / level.bandwidthBytesPerS;
    levels.push_back({level.count, inside, 2 * msPerByte, (isOf2018 ? 4 : 2) * msPerByte, i});
    inside *= level.count;
  }
  return levels;
}

Problem::Problem(const CostGraph& graph, const Cluster& cluster, const std::string& costModel)
    : isOf2018(costModel == "pipedream-2018"), levels(levelsOf(cluster, isOf2018)), devices(cluster.deviceCount()) {
  std::vector<int> unitOf = unitOfNodes(graph);
  std::size_t count = 0;
  for (int unit : unitOf) count = std::max(count, static_cast<std::size_t>(unit) + 1);
  units.resize(count);
  computeMs.assign(count, 0);
  parameterBytes.assign(count, 0);
  for (std::size_t v = 0; v < graph.nodes.size(); ++v) {
    const CostNode& node = graph.nodes[v];
    auto unit = static_cast<std::size_t>(unitOf[v]);
    units[unit].push_back(static_cast<std::int64_t>(v));
    computeMs[unit] += (node.forwardMs + node.inputGradientMs + node.weightGradientMs) / cluster.deviceAt(0).speed;
    parameterBytes[unit] += static_cast<double>(node.parameterBytes);
  }
  for (const CostSharedParameter& shared : graph.sharedParameters)
    if (!shared.nodes.empty()) parameterBytes[unitOf[shared.nodes.front()]] += static_cast<double>(shared.bytes);

  std::vector<std::pair<int, int>> edges;
  for (const CostTensor& tensor : graph.tensors) {
    UnitTensor unitTensor{unitOf[tensor.from], {}, static_cast<double>(tensor.bytes)};
    for (std::int64_t to : tensor.to)
      if (unitOf[to] != unitTensor.from) unitTensor.to.push_back(unitOf[to]);
    std::sort(unitTensor.to.begin(), unitTensor.to.end());
    unitTensor.to.erase(std::unique(unitTensor.to.begin(), unitTensor.to.end()), unitTensor.to.end());
    for (int to : unitTensor.to) edges.emplace_back(unitTensor.from, to);
    if (!unitTensor.to.empty()) tensors.push_back(std::move(unitTensor));
  }
  dag = *Dag::make(count, std::move(edges));
}

Chain::Chain(const Problem& problem, std::vector<int> order_) : order(std::move(order_)) {
  std::size_t n = order.size();
  std::vector<std::size_t> place(n);
  computeMs.assign(n + 1, 0);
  parameterBytes.assign(n + 1, 0);
  cutBytes.assign(n + 1, 0);
  for (std::size_t p = 0; p < n; ++p) {
    auto unit = static_cast<std::size_t>(order[p]);
    place[unit] = p;
    computeMs[p + 1] = computeMs[p] + problem.computeMs[unit];
    parameterBytes[p + 1] = parameterBytes[p] + problem.parameterBytes[unit];
  }
  // A tensor crosses the positions from after its producer to before its last user.
  for (const UnitTensor& tensor : problem.tensors) {
    std::size_t last = 0;
    for (int to : tensor.to) last = std::max(last, place[static_cast<std::size_t>(to)]);
    cutBytes[place[static_cast<std::size_t>(tensor.from)] + 1] += tensor.bytes;
    cutBytes[last + 1] -= tensor.bytes;
  }
  for (std::size_t p = 0; p < n; ++p) cutBytes[p + 1] += cutBytes[p];
}

Chain Chain::reversed() const {
  Chain mirror = *this;
  std::size_t n = order.size();
  std::reverse(mirror.order.begin(), mirror.order.end());
  std::reverse(mirror.cutBytes.begin(), mirror.cutBytes.end());
  for (std::size_t p = 0; p <= n; ++p) {
    mirror.computeMs[p] = computeMs[n] - computeMs[n - p];
    mirror.parameterBytes[p] = parameterBytes[n] - parameterBytes[n - p];
  }
  return mirror;
}
