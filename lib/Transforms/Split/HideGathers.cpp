#include "Split/HideGathers.h"

#include "pdc/Transforms/GraphUtilities.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

using namespace pdc;
using Operations = std::unordered_set<const Operation*>;

static bool readsAnyOf(const Operation& operation, const Operations& makers) {
  return std::any_of(operation.operands().begin(), operation.operands().end(), [&](const Value* operand) {
    return operand && operand->definer() && makers.contains(operand->definer());
  });
}

static Operations startGathersFirst(Graph& graph) {
  Operations gathers;
  std::unordered_map<int, std::vector<Operation*>> ofGroup;
  for (const auto& operation : graph.operations()) {
    if (operation->phase != Phase::weightGradient || !isStart(*operation)) continue;
    const Operation* maker = operation->operand(0)->definer();
    if (maker && !isForward(*maker)) continue;
    gathers.insert(operation.get());
    ofGroup[operation->group].push_back(operation.get());
  }
  std::vector<Operation*> order;
  for (const auto& operation : graph.operations()) {
    if (gathers.contains(operation.get())) continue;
    if (const auto first = ofGroup.find(operation->group); !isForward(*operation) && first != ofGroup.end()) {
      order.insert(order.end(), first->second.begin(), first->second.end());
      ofGroup.erase(first);
    }
    order.push_back(operation.get());
  }
  graph.reorder(order);
  return gathers;
}

static void putGradientsBehindOwnStarts(Graph& graph, const Operations& first) {
  std::vector<Operation*> order;
  std::unordered_map<int, std::size_t> behindStart; // by group: where its last start ends, and what follows that start
  std::unordered_map<int, Operations> later;
  for (const auto& operation : graph.operations()) {
    const int group = operation->group;
    const auto behind = behindStart.find(group);
    if (behind != behindStart.end() && operation->phase == Phase::weightGradient && !isStart(*operation) &&
        !readsAnyOf(*operation, later[group])) {
      order.insert(order.begin() + static_cast<std::ptrdiff_t>(behind->second), operation.get());
      const std::size_t at = behind->second;
      for (auto& [other, end] : behindStart)
        if (end >= at) ++end;
      continue;
    }
    order.push_back(operation.get());
    if (operation->phase == Phase::inputGradient && isStart(*operation)) {
      behindStart[group] = order.size();
      later[group].clear();
    } else if (!first.contains(operation.get())) {
      later[group].insert(operation.get());
    }
  }
  graph.reorder(order);
}

Operations pdc::hideGathers(Graph& graph) {
  const Operations first = startGathersFirst(graph);
  if (!first.empty()) putGradientsBehindOwnStarts(graph, first);
  return first;
}
