#include "Piper/States.h"

#include "pdc/Planner/Order/DownSets.h"

#include <algorithm>
#include <limits>

using namespace pdc;

/// A topological order that goes on from the node that became available last; `backwards` builds it from the sinks.
static std::vector<int> depthFirstOrder(const Dag& dag, bool backwards) {
  auto before = [&](int v) -> const std::vector<int>& { return backwards ? dag.successors(v) : dag.predecessors(v); };
  auto behind = [&](int v) -> const std::vector<int>& { return backwards ? dag.predecessors(v) : dag.successors(v); };
  std::vector<std::size_t> missing(dag.size());
  std::vector<int> available, order;
  for (int v = static_cast<int>(dag.size()); v-- > 0;) {
    missing[static_cast<std::size_t>(v)] = before(v).size();
    if (before(v).empty()) available.push_back(v);
  }
  while (!available.empty()) {
    int v = available.back();
    available.pop_back();
    order.push_back(v);
    for (int next : behind(v))
      if (--missing[static_cast<std::size_t>(next)] == 0) available.push_back(next);
  }
  if (backwards) std::reverse(order.begin(), order.end());
  return order;
}

static std::vector<NodeSet> prefixesOfSomeOrders(const Dag& dag, std::size_t most) {
  std::vector<NodeSet> sets;
  for (const std::vector<int>& order : {dag.order(), depthFirstOrder(dag, false), depthFirstOrder(dag, true)}) {
    sets.push_back(NodeSet(dag.size()));
    for (int v : order) {
      sets.push_back(sets.back());
      sets.back().insert(static_cast<std::size_t>(v));
    }
  }
  std::sort(sets.begin(), sets.end(), [](const NodeSet& a, const NodeSet& b) {
    std::size_t sizeA = a.size(), sizeB = b.size();
    return sizeA != sizeB ? sizeA < sizeB : a < b;
  });
  sets.erase(std::unique(sets.begin(), sets.end()), sets.end());
  if (sets.size() <= most) return sets;
  std::vector<NodeSet> some; // evenly, the empty and the full one included
  for (std::size_t i = 0; i < most; ++i) some.push_back(sets[i * (sets.size() - 1) / (most - 1)]);
  return some;
}

static PiperStates::Least leastOf(const PiperInstance& instance, const NodeSet& state, std::size_t degree) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  PiperStates::Least sum;
  state.forEach([&](std::size_t v) {
    double time = infinity, memory = infinity;
    for (const PiperOption& option : instance.nodes[v].options[degree]) {
      time = std::min(time, option.time);
      memory = std::min(memory, option.memoryA + option.memoryB);
    }
    if (time == infinity) {
      ++sum.missing;
    } else {
      sum.time += time;
      sum.memory += memory;
    }
  });
  return sum;
}

PiperStates PiperStates::make(const PiperInstance& instance, std::size_t most) {
  PiperStates states;
  if (std::optional<DownSets> all = DownSets::all(instance.dag, most)) {
    for (std::size_t i = 0; i < all->size(); ++i) states.sets.push_back((*all)[i]);
  } else {
    states.isComplete = false;
    states.sets = prefixesOfSomeOrders(instance.dag, std::max<std::size_t>(most, 2));
  }
  states.supersets.resize(states.sets.size());
  for (std::size_t i = 0; i < states.sets.size(); ++i) {
    states.work.push_back(0);
    states.sets[i].forEach([&](std::size_t v) { states.work.back() += instance.work[v]; });
    states.least.emplace_back();
    for (std::size_t degree = 0; degree < instance.tensorDegrees.size(); ++degree)
      states.least.back().push_back(leastOf(instance, states.sets[i], degree));
    for (std::size_t j = i + 1; j < states.sets.size(); ++j)
      if (states.sets[j].includes(states.sets[i])) states.supersets[i].push_back(j);
  }
  return states;
}
