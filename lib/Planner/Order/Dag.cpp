#include "pdc/Planner/Order/Dag.h"

#include "pdc/Plan/CostGraph.h"

#include <algorithm>
#include <functional>
#include <queue>

using namespace pdc;

std::optional<Dag> Dag::make(std::size_t nodes, std::vector<std::pair<int, int>> edges) {
  std::sort(edges.begin(), edges.end());
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  Dag dag;
  dag.successors_.resize(nodes);
  dag.predecessors_.resize(nodes);
  for (auto [from, to] : edges) {
    dag.successors_[static_cast<std::size_t>(from)].push_back(to);
    dag.predecessors_[static_cast<std::size_t>(to)].push_back(from);
  }
  std::vector<std::size_t> missing(nodes);
  std::priority_queue<int, std::vector<int>, std::greater<>> ready;
  for (std::size_t v = 0; v < nodes; ++v) {
    missing[v] = dag.predecessors_[v].size();
    if (missing[v] == 0) ready.push(static_cast<int>(v));
  }
  while (!ready.empty()) {
    int v = ready.top();
    ready.pop();
    dag.order_.push_back(v);
    for (int next : dag.successors(v))
      if (--missing[static_cast<std::size_t>(next)] == 0) ready.push(next);
  }
  if (dag.order_.size() < nodes) return std::nullopt;
  return dag;
}

Dag Dag::of(const CostGraph& graph) {
  std::vector<std::pair<int, int>> edges;
  for (const CostTensor& tensor : graph.tensors)
    for (std::int64_t to : tensor.to) edges.emplace_back(static_cast<int>(tensor.from), static_cast<int>(to));
  return *make(graph.nodes.size(), std::move(edges));
}

std::vector<NodeSet> Dag::ancestors() const {
  std::vector<NodeSet> sets(size(), NodeSet(size()));
  for (int v : order_)
    for (int p : predecessors(v)) {
      sets[static_cast<std::size_t>(v)] |= sets[static_cast<std::size_t>(p)];
      sets[static_cast<std::size_t>(v)].insert(static_cast<std::size_t>(p));
    }
  return sets;
}

std::vector<NodeSet> Dag::descendants() const {
  std::vector<NodeSet> sets(size(), NodeSet(size()));
  for (auto v = order_.rbegin(); v != order_.rend(); ++v)
    for (int s : successors(*v)) {
      sets[static_cast<std::size_t>(*v)] |= sets[static_cast<std::size_t>(s)];
      sets[static_cast<std::size_t>(*v)].insert(static_cast<std::size_t>(s));
    }
  return sets;
}

std::vector<int> pdc::strongComponents(std::size_t nodes, const std::vector<std::pair<int, int>>& edges) {
  std::vector<std::vector<int>> out(nodes), in(nodes);
  for (auto [from, to] : edges) {
    out[static_cast<std::size_t>(from)].push_back(to);
    in[static_cast<std::size_t>(to)].push_back(from);
  }
  // Kosaraju, without recursion because chains are long.
  std::vector<int> finished;
  std::vector<std::size_t> next(nodes, 0);
  std::vector<char> seen(nodes, 0);
  for (std::size_t root = 0; root < nodes; ++root) {
    if (seen[root]) continue;
    std::vector<int> path = {static_cast<int>(root)};
    seen[root] = 1;
    while (!path.empty()) {
      auto v = static_cast<std::size_t>(path.back());
      if (next[v] == out[v].size()) {
        finished.push_back(path.back());
        path.pop_back();
      } else if (int to = out[v][next[v]++]; !seen[static_cast<std::size_t>(to)]) {
        seen[static_cast<std::size_t>(to)] = 1;
        path.push_back(to);
      }
    }
  }
  std::vector<int> component(nodes, -1);
  for (auto root = finished.rbegin(); root != finished.rend(); ++root) {
    if (component[static_cast<std::size_t>(*root)] >= 0) continue;
    std::vector<int> members = {*root};
    component[static_cast<std::size_t>(*root)] = *root;
    for (std::size_t i = 0; i < members.size(); ++i)
      for (int from : in[static_cast<std::size_t>(members[i])])
        if (component[static_cast<std::size_t>(from)] < 0) {
          component[static_cast<std::size_t>(from)] = *root;
          members.push_back(from);
        }
  }
  std::vector<int> number(nodes, -1);
  int count = 0;
  for (int& c : component) {
    int& given = number[static_cast<std::size_t>(c)];
    if (given < 0) given = count++;
    c = given;
  }
  return component;
}
