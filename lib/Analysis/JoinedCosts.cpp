#include "pdc/Analysis/JoinedCosts.h"

#include "pdc/IR/Graph.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

using namespace pdc;

/// The name of the whole value, and the group that makes it.
using Key = std::pair<std::string, std::int64_t>;

static Key keyOf(const CostTensor& tensor) {
  const bool isNamedSo = tensor.isPart && tensor.name.ends_with(partSuffix);
  return {isNamedSo ? tensor.name.substr(0, tensor.name.size() - partSuffix.size()) : tensor.name, tensor.from};
}

/// What all splits have in common, in the order of the first graph that has a tensor. Its users are those of any split.
static std::vector<CostTensor> tensorsOfAll(const std::vector<const CostGraph*>& graphs) {
  std::vector<CostTensor> all;
  std::map<Key, std::size_t> places;
  for (const CostGraph* graph : graphs)
    for (const CostTensor& tensor : graph->tensors) {
      const auto [place, isNew] = places.try_emplace(keyOf(tensor), all.size());
      if (isNew) {
        CostTensor& common = all.emplace_back(tensor);
        common.name = place->first.first;
        common.bytes = 0;
        common.isPart = common.hasTerms = common.isOwn = false;
        continue;
      }
      CostTensor& common = all[place->second];
      for (std::int64_t user : tensor.to)
        if (std::ranges::find(common.to, user) == common.to.end()) common.to.push_back(user);
      std::ranges::sort(common.to);
    }
  return all;
}

static void take(CostGraph& graph, const std::vector<CostTensor>& all, const std::map<Key, int>& counts, int splits) {
  std::map<Key, CostTensor> own;
  for (const CostTensor& tensor : graph.tensors) own.emplace(keyOf(tensor), tensor);
  graph.tensors = all;
  for (CostTensor& tensor : graph.tensors) {
    const auto found = own.find({tensor.name, tensor.from});
    const bool isEverywhere = counts.at({tensor.name, tensor.from}) == splits;
    if (found == own.end()) {
      tensor.isOwn = true;
      continue;
    }
    tensor.bytes = found->second.bytes;
    tensor.isPart = found->second.isPart;
    tensor.hasTerms = found->second.hasTerms;
    tensor.isOwn = found->second.isOwn || !isEverywhere;
  }
}

CostGraph pdc::joinedCosts(CostGraph whole, std::vector<CostGraph> divided) {
  std::vector<const CostGraph*> graphs = {&whole};
  for (const CostGraph& graph : divided) graphs.push_back(&graph);
  const std::vector<CostTensor> all = tensorsOfAll(graphs);
  std::map<Key, int> counts;
  for (const CostGraph* graph : graphs)
    for (const CostTensor& tensor : graph->tensors) ++counts[keyOf(tensor)];
  const int splits = static_cast<int>(graphs.size());
  take(whole, all, counts, splits);
  for (CostGraph& graph : divided) {
    take(graph, all, counts, splits);
    whole.divided.push_back(std::move(graph));
  }
  return whole;
}
