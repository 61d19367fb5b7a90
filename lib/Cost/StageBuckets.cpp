#include "pdc/Cost/StageBuckets.h"

#include <algorithm>
#include <map>
#include <set>

using namespace pdc;

StageBuckets::StageBuckets(const CostGraph& graph, const PlannerOptions& options)
    : graph_(graph), splits_(options.schedule->splitsBackward) {
  std::vector<std::int64_t> bytes;
  for (const CostNode& node : graph.nodes) bytes.push_back(node.parameterBytes);
  for (const CostSharedParameter& parameter : graph.sharedParameters)
    if (!parameter.nodes.empty()) bytes[parameter.nodes.front()] += parameter.bytes;
  ofNode_ = gradientBuckets(bytes, options.bucketBytes);
}

double StageBuckets::gradientMs(std::int64_t node) const {
  const CostNode& costs = graph_.nodes[node];
  return costs.weightGradientMs + (splits_ ? 0 : costs.inputGradientMs);
}

std::vector<GradientBucket> StageBuckets::of(const PartitionStage& part, int stage,
                                             const std::vector<int>& stageOf) const {
  std::map<std::int64_t, std::int64_t> sharedBytes; // by the first node that uses them
  std::set<std::int64_t> waiting;
  for (const CostSharedParameter& parameter : graph_.sharedParameters) {
    std::int64_t first = -1;
    int owner = stage;
    bool all = true;
    for (std::int64_t node : parameter.nodes) {
      owner = std::min(owner, stageOf[node]);
      all &= stageOf[node] == stage;
      if (first < 0 && stageOf[node] == stage) first = node;
    }
    if (owner != stage || first < 0) continue;
    sharedBytes[first] += parameter.bytes;
    if (!all) waiting.insert(first);
  }
  double doneMs = 0;
  if (part.recompute && !splits_)
    for (std::int64_t v : part.nodes) doneMs += graph_.nodes[v].forwardMs;
  double wholeMs = doneMs; // added up as below: the last is final at exactly 1
  for (auto v = part.nodes.rbegin(); v != part.nodes.rend(); ++v) wholeMs += gradientMs(*v);
  std::vector<GradientBucket> buckets;
  int last = -1;
  bool waits = false;
  for (auto v = part.nodes.rbegin(); v != part.nodes.rend(); ++v) {
    doneMs += gradientMs(*v);
    const auto shared = sharedBytes.find(*v);
    const std::int64_t bytes = graph_.nodes[*v].parameterBytes + (shared == sharedBytes.end() ? 0 : shared->second);
    if (bytes == 0) continue;
    if (buckets.empty() || ofNode_[*v] != last) buckets.emplace_back();
    last = ofNode_[*v];
    waits |= waiting.contains(*v);
    buckets.back().bytes += bytes;
    buckets.back().final = waits || wholeMs <= 0 ? 1 : doneMs / wholeMs;
  }
  if (buckets.size() == 1 && buckets[0].final >= 1) buckets.clear();
  return buckets;
}
