#include "Codecs.h"

#include "pdc/Cost/Crossings.h"
#include "pdc/Plan/GradientTrips.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

using namespace pdc;

static std::vector<int> stagesOf(const CostGraph& graph, const Partition& partition) {
  std::vector<int> stageOf(graph.nodes.size(), -1);
  for (std::size_t s = 0; s < partition.stages.size(); ++s)
    for (std::int64_t v : partition.stages[s].nodes) stageOf[static_cast<std::size_t>(v)] = static_cast<int>(s);
  return stageOf;
}

static bool crosses(const CostTensor& tensor, const std::vector<int>& stageOf) {
  const int from = stageOf[static_cast<std::size_t>(tensor.from)];
  return std::any_of(tensor.to.begin(), tensor.to.end(),
                     [&](std::int64_t node) { return stageOf[static_cast<std::size_t>(node)] != from; });
}

/// Codes one tensor: its bytes, and the times at a node of each stage that sends or receives it.
static void code(CostGraph& graph, CostTensor& tensor, const std::vector<int>& stageOf) {
  const CostCodec& codec = *tensor.codec;
  const auto stageAt = [&](std::int64_t node) { return stageOf[static_cast<std::size_t>(node)]; };
  const int from = stageAt(tensor.from);
  std::map<int, std::int64_t> nodes = {{from, tensor.from}}; // one in each stage that has to do with it
  for (const std::int64_t node : tensor.to) nodes.emplace(stageAt(node), node);
  const auto nodeIn = [&](int stage) -> CostNode& { return graph.nodes[static_cast<std::size_t>(nodes.at(stage))]; };
  tensor.bytes = codec.bytes;
  nodeIn(from).forwardMs += codec.encodeMs;
  for (const auto& [stage, _] : nodes)
    if (stage != from) nodeIn(stage).forwardMs += codec.decodeMs;
  forEachGradientTrip(from, tensor.gradientUsers(), stageAt, [&](int later, int earlier) {
    nodeIn(later).inputGradientMs += codec.encodeMs;
    nodeIn(earlier).inputGradientMs += codec.decodeMs;
  });
}

CostGraph pdc::withFreeCodecs(const CostGraph& graph) {
  CostGraph result = graph;
  for (CostTensor& tensor : result.tensors)
    if (tensor.codec) tensor.bytes = std::min(tensor.bytes, tensor.codec->bytes);
  return result;
}

CostGraph pdc::withCodecs(const CostGraph& graph, const Partition& partition, const std::vector<bool>& coded) {
  const std::vector<int> stageOf = stagesOf(graph, partition);
  CostGraph result = graph;
  for (std::size_t i = 0; i < coded.size(); ++i)
    if (coded[i] && result.tensors[i].codec && crosses(result.tensors[i], stageOf))
      code(result, result.tensors[i], stageOf);
  return result;
}

std::vector<bool> pdc::allCodecs(const CostGraph& graph) {
  std::vector<bool> all;
  for (const CostTensor& tensor : graph.tensors) all.push_back(tensor.codec.has_value());
  return all;
}

std::vector<bool> pdc::codecsBetweenRanks(const CostGraph& graph, const Plan& plan) {
  std::map<int, std::set<std::size_t>> ranksOf; // by stage
  for (std::size_t rank = 0; rank < plan.ranks.size(); ++rank)
    for (const PlanRank::Host& host : plan.ranks[rank].hosts) ranksOf[host.stage].insert(rank);
  std::set<std::string> sent;
  for (const PlanTensor& tensor : plan.tensors)
    if (ranksOf[tensor.from] != ranksOf[tensor.to]) sent.insert(tensor.name);
  std::vector<bool> coded = allCodecs(graph);
  for (std::size_t i = 0; i < coded.size(); ++i) coded[i] = coded[i] && sent.contains(nameOfTensor(graph, i));
  return coded;
}

void pdc::markCodecs(Plan& plan, const CostGraph& graph, const std::vector<bool>& coded, const EdgeCodec& codec) {
  std::set<std::string> names;
  for (std::size_t i = 0; i < coded.size(); ++i)
    if (coded[i]) names.insert(nameOfTensor(graph, i));
  for (PlanTensor& tensor : plan.tensors)
    if (names.contains(tensor.name)) tensor.codec = codec;
}

namespace {

/// Branches over the tensors that cross, the one that saves the most bytes first: without a codec, then with it.
class CodecSearch {
public:
  CodecSearch(const CostGraph& graph, const Cluster& cluster, const PlannerOptions& options, const Partition& partition,
              int mostCosts)
      : graph_(graph), cluster_(cluster), options_(options), partition_(partition),
        stageOf_(stagesOf(graph, partition)), left_(mostCosts), coded_(graph.tensors.size(), false), best_(coded_) {
    for (std::size_t i = 0; i < graph.tensors.size(); ++i)
      if (graph.tensors[i].codec && crosses(graph.tensors[i], stageOf_)) order_.push_back(i);
    std::stable_sort(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) { return saved(a) > saved(b); });
  }

  std::vector<bool> run() {
    bestMs_ = timeMs(order_.size());
    choose(0);
    return best_;
  }

private:
  std::int64_t saved(std::size_t tensor) const {
    return graph_.tensors[tensor].bytes - graph_.tensors[tensor].codec->bytes;
  }

  /// With the choices for the first `chosen` tensors, and free codecs for the others: no choice for them is faster.
  double timeMs(std::size_t chosen) {
    --left_;
    CostGraph graph = withCodecs(graph_, partition_, coded_);
    for (std::size_t i = chosen; i < order_.size(); ++i) {
      CostTensor& tensor = graph.tensors[order_[i]];
      tensor.bytes = std::min(tensor.bytes, tensor.codec->bytes);
    }
    const PlanCost cost = costOf(describePartition(graph, cluster_, options_, partition_, false), options_);
    return cost.feasible ? cost.timeMs : std::numeric_limits<double>::infinity();
  }

  bool isFaster(double ms) const { return ms < bestMs_ * (1 - 1e-9); }

  void choose(std::size_t next) {
    if (left_ <= 0) return;
    const double ms = timeMs(next);
    if (!isFaster(ms)) return;
    if (next == order_.size()) {
      bestMs_ = ms;
      best_ = coded_;
      return;
    }
    for (const bool coded : {false, true}) {
      coded_[order_[next]] = coded;
      choose(next + 1);
    }
    coded_[order_[next]] = false;
  }

  const CostGraph& graph_;
  const Cluster& cluster_;
  const PlannerOptions& options_;
  const Partition& partition_;
  const std::vector<int> stageOf_;
  int left_;
  std::vector<bool> coded_, best_;
  std::vector<std::size_t> order_;
  double bestMs_ = 0;
};

} // namespace

std::vector<bool> pdc::chooseCodecs(const CostGraph& graph, const Cluster& cluster, const PlannerOptions& options,
                                    const Partition& partition, int mostCosts) {
  return CodecSearch(graph, cluster, options, partition, mostCosts).run();
}
