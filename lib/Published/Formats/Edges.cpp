#include "Formats/Edges.h"

#include <algorithm>
#include <queue>

using namespace pdc;

std::vector<std::int64_t> pdc::topologicalOrder(std::int64_t nodes, const Edges& edges) {
  const auto count = static_cast<std::size_t>(nodes);
  std::vector<std::vector<std::int64_t>> successors(count);
  std::vector<std::int64_t> waitsFor(count, 0);
  for (auto [from, to] : edges) {
    successors[static_cast<std::size_t>(from)].push_back(to);
    ++waitsFor[static_cast<std::size_t>(to)];
  }
  std::priority_queue<std::int64_t, std::vector<std::int64_t>, std::greater<>> ready;
  for (std::int64_t v = 0; v < nodes; ++v)
    if (waitsFor[static_cast<std::size_t>(v)] == 0) ready.push(v);
  std::vector<std::int64_t> order;
  while (!ready.empty()) {
    order.push_back(ready.top());
    ready.pop();
    for (std::int64_t v : successors[static_cast<std::size_t>(order.back())])
      if (--waitsFor[static_cast<std::size_t>(v)] == 0) ready.push(v);
  }
  return order;
}

std::vector<std::int64_t> pdc::findCycle(std::int64_t nodes, const Edges& edges) {
  const std::vector<std::int64_t> order = topologicalOrder(nodes, edges);
  if (static_cast<std::int64_t>(order.size()) == nodes) return {};
  // Every node that is left over has a predecessor that is left over, so walking backwards closes a cycle.
  std::vector<bool> left(static_cast<std::size_t>(nodes), true);
  for (std::int64_t v : order) left[static_cast<std::size_t>(v)] = false;
  std::vector<std::int64_t> predecessor(static_cast<std::size_t>(nodes), -1);
  for (auto [from, to] : edges)
    if (left[static_cast<std::size_t>(from)]) predecessor[static_cast<std::size_t>(to)] = from;
  std::int64_t v = std::find(left.begin(), left.end(), true) - left.begin();
  std::vector<bool> seen(static_cast<std::size_t>(nodes), false);
  for (; !seen[static_cast<std::size_t>(v)]; v = predecessor[static_cast<std::size_t>(v)])
    seen[static_cast<std::size_t>(v)] = true;
  std::vector<std::int64_t> cycle{v};
  for (std::int64_t u = predecessor[static_cast<std::size_t>(v)]; u != v; u = predecessor[static_cast<std::size_t>(u)])
    cycle.push_back(u);
  std::reverse(cycle.begin(), cycle.end());
  std::rotate(cycle.begin(), std::min_element(cycle.begin(), cycle.end()), cycle.end());
  return cycle;
}

Status pdc::refuseCycles(std::int64_t nodes, const Edges& edges, const std::function<std::string(std::int64_t)>& nameOf,
                         const std::string& file, Diagnostics& diags) {
  const std::vector<std::int64_t> cycle = findCycle(nodes, edges);
  if (cycle.empty()) return success;
  constexpr std::size_t shown = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(shown, cycle.size()); ++i) text += nameOf(cycle[i]) + " -> ";
  if (cycle.size() > shown) text += "… -> ";
  return diags.error({file}).help("remove the edge that goes back; a stage cannot wait for a later one")
         << "expected a graph without cycles, got one of " << cycle.size()
         << (cycle.size() == 1 ? " node: " : " nodes: ") << text << nameOf(cycle.front());
}
