// From a problem to classes of nodes that must share a device.
#include "DnnPartitioning/Instance.h"

#include "pdc/Planner/Order/Dag.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <map>

using namespace pdc;
using namespace pdc::placement;

Scale::Scale(double total) {
  int exponent = 0;
  std::frexp(total, &exponent); // total < 2^exponent
  shift_ = 60 - exponent;
}

Amount Scale::amount(double value) const {
  return std::llround(std::ldexp(value, shift_));
}
double Scale::value(Amount amount) const {
  return std::ldexp(static_cast<double>(amount), -shift_);
}

static std::size_t at(std::int64_t index) {
  return static_cast<std::size_t>(index);
}

Amount pdc::placement::loadOf(const Instance& instance, const Stage& stage) {
  Amount load = 0;
  for (int c : stage.classes) load += stage.isCpu ? instance.classes[at(c)].cpuTime : instance.classes[at(c)].time;
  if (stage.isCpu) return load;
  for (const Tensor& tensor : instance.tensors) {
    std::size_t inside = 0;
    for (int c : tensor.classes) inside += std::binary_search(stage.classes.begin(), stage.classes.end(), c);
    if (inside > 0 && inside < tensor.classes.size()) load += tensor.cost;
  }
  return load;
}

/// The class of each node when backward edges are read one way or the other, and the edges of order between nodes.
static std::vector<int> classesOf(const DnnPartitioningProblem& problem, bool backwardForward,
                                  std::vector<std::pair<int, int>>& edges) {
  edges.clear();
  for (const DnnPartitioningEdge& edge : problem.edges) {
    bool backward = problem.nodes[at(edge.from)].isBackward;
    if (backward != problem.nodes[at(edge.to)].isBackward) continue;
    auto from = static_cast<int>(edge.from), to = static_cast<int>(edge.to);
    edges.push_back(backward && !backwardForward ? std::pair{to, from} : std::pair{from, to});
  }
  std::vector<std::pair<int, int>> forced = edges;
  std::map<std::int64_t, int> firstOfColour;
  for (std::size_t v = 0; v < problem.nodes.size(); ++v) {
    if (problem.nodes[v].colour < 0) continue;
    int node = static_cast<int>(v), first = firstOfColour.emplace(problem.nodes[v].colour, node).first->second;
    if (first == node) continue;
    forced.emplace_back(first, node);
    forced.emplace_back(node, first);
  }
  return strongComponents(problem.nodes.size(), forced);
}

static Scale timeScaleOf(const DnnPartitioningProblem& problem) {
  double total = 0;
  for (const DnnPartitioningNode& node : problem.nodes) total += node.acceleratorTime + node.cpuTime;
  for (const DnnPartitioningEdge& edge : problem.edges) total += edge.cost;
  return Scale(total);
}

/// Of all nodes.
static double totalSize(const DnnPartitioningProblem& problem) {
  double total = 0;
  for (const DnnPartitioningNode& node : problem.nodes) total += node.size;
  return total;
}

static std::vector<Tensor> tensorsOf(const DnnPartitioningProblem& problem, const std::vector<int>& classOf,
                                     const Scale& scale) {
  std::vector<Tensor> ofNode(problem.nodes.size());
  for (const DnnPartitioningEdge& edge : problem.edges) {
    Tensor& tensor = ofNode[at(edge.from)];
    tensor.cost = scale.amount(edge.cost);
    tensor.classes.push_back(classOf[at(edge.to)]);
  }
  std::vector<Tensor> tensors;
  for (std::size_t v = 0; v < ofNode.size(); ++v) {
    ofNode[v].classes.push_back(classOf[v]);
    tensors.push_back(std::move(ofNode[v]));
  }
  return tensors;
}

/// Tensors of several classes, each set once, in a fixed order.
static void tidyTensors(std::vector<Tensor>& tensors) {
  std::map<std::vector<int>, Amount> costs;
  for (Tensor& tensor : tensors) {
    std::sort(tensor.classes.begin(), tensor.classes.end());
    tensor.classes.erase(std::unique(tensor.classes.begin(), tensor.classes.end()), tensor.classes.end());
    if (tensor.classes.size() > 1 && tensor.cost > 0) costs[tensor.classes] += tensor.cost;
  }
  tensors.clear();
  for (auto& [classes, cost] : costs) tensors.push_back({cost, classes});
}

Instance pdc::placement::merged(const Instance& fine, const std::vector<int>& groupOf, std::size_t groups) {
  std::vector<std::pair<int, int>> edges;
  for (auto [from, to] : fine.edges)
    if (groupOf[at(from)] != groupOf[at(to)]) edges.emplace_back(groupOf[at(from)], groupOf[at(to)]);
  std::sort(edges.begin(), edges.end());
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  std::optional<Dag> dag = Dag::make(groups, edges);
  assert(dag && "merged classes form no cycle");
  std::vector<int> rank(groups);
  for (std::size_t i = 0; i < groups; ++i) rank[at(dag->order()[i])] = static_cast<int>(i);

  Instance coarse = fine;
  coarse.classes.assign(groups, {});
  for (std::size_t c = 0; c < fine.classes.size(); ++c) {
    const Class& part = fine.classes[c];
    Class& whole = coarse.classes[at(rank[at(groupOf[c])])];
    whole.nodes.insert(whole.nodes.end(), part.nodes.begin(), part.nodes.end());
    whole.parts.push_back(static_cast<int>(c));
    whole.time += part.time;
    whole.cpuTime += part.cpuTime;
    whole.size += part.size;
    whole.onAccelerator = whole.onAccelerator && part.onAccelerator;
  }
  for (Class& whole : coarse.classes) std::sort(whole.nodes.begin(), whole.nodes.end());
  for (auto& [from, to] : edges) from = rank[at(from)], to = rank[at(to)];
  std::sort(edges.begin(), edges.end());
  coarse.edges = std::move(edges);
  for (Tensor& tensor : coarse.tensors)
    for (int& c : tensor.classes) c = rank[at(groupOf[at(c)])];
  tidyTensors(coarse.tensors);
  coarse.accelerators = std::min(coarse.accelerators, static_cast<int>(groups));
  coarse.cpus = std::min(coarse.cpus, static_cast<int>(groups));
  return coarse;
}

Instance pdc::placement::makeInstance(const DnnPartitioningProblem& problem) {
  auto count = [](const std::vector<int>& classOf) { return *std::max_element(classOf.begin(), classOf.end()) + 1; };
  Instance nodes;
  std::vector<int> classOf = classesOf(problem, false, nodes.edges);
  std::vector<std::pair<int, int>> otherEdges;
  std::vector<int> other = classesOf(problem, true, otherEdges);
  if (count(other) > count(classOf)) {
    classOf = std::move(other);
    nodes.edges = std::move(otherEdges);
  }
  nodes.timeScale = timeScaleOf(problem);
  double size = totalSize(problem);
  nodes.sizeScale = Scale(size);
  for (std::size_t v = 0; v < problem.nodes.size(); ++v) {
    const DnnPartitioningNode& node = problem.nodes[v];
    nodes.classes.push_back({{static_cast<std::int64_t>(v)},
                             {},
                             nodes.timeScale.amount(node.onAccelerator ? node.acceleratorTime : 0),
                             nodes.timeScale.amount(node.cpuTime),
                             nodes.sizeScale.amount(node.size),
                             node.onAccelerator});
  }
  std::vector<int> itself(problem.nodes.size());
  for (std::size_t v = 0; v < itself.size(); ++v) itself[v] = static_cast<int>(v);
  nodes.tensors = tensorsOf(problem, itself, nodes.timeScale);
  nodes.memory = problem.acceleratorMemory < size ? nodes.sizeScale.amount(problem.acceleratorMemory) : never;
  nodes.accelerators = static_cast<int>(problem.accelerators);
  nodes.cpus = static_cast<int>(problem.cpus);
  return merged(nodes, classOf, static_cast<std::size_t>(count(classOf)));
}
