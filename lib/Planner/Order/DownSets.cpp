#include "pdc/Planner/Order/DownSets.h"

#include <algorithm>

using namespace pdc;

std::optional<DownSets> DownSets::all(const Dag& dag, std::size_t limit) {
  // Listed in topological order, every prefix of a down-set is a down-set too. So each is reached exactly once by
  // adding nodes in that order only.
  DownSets result;
  struct Partial {
    NodeSet set;
    std::size_t next; ///< place in the order from which nodes may be added
  };
  std::vector<Partial> open = {{NodeSet(dag.size()), 0}};
  while (!open.empty()) {
    Partial partial = std::move(open.back());
    open.pop_back();
    if (result.sets_.size() == limit) return std::nullopt;
    for (std::size_t i = partial.next; i < dag.size(); ++i) {
      int v = dag.order()[i];
      bool isComplete = std::all_of(dag.predecessors(v).begin(), dag.predecessors(v).end(),
                                    [&](int p) { return partial.set.contains(static_cast<std::size_t>(p)); });
      if (!isComplete) continue;
      open.push_back({partial.set, i + 1});
      open.back().set.insert(static_cast<std::size_t>(v));
    }
    result.sets_.push_back(std::move(partial.set));
  }
  std::sort(result.sets_.begin(), result.sets_.end(), [](const NodeSet& a, const NodeSet& b) {
    std::size_t sizeA = a.size(), sizeB = b.size();
    return sizeA != sizeB ? sizeA < sizeB : a < b;
  });
  for (std::size_t i = 0; i < result.sets_.size(); ++i) result.index_.emplace(result.sets_[i], i);
  return result;
}

std::size_t DownSets::find(const NodeSet& set) const {
  auto found = index_.find(set);
  return found == index_.end() ? size() : found->second;
}
