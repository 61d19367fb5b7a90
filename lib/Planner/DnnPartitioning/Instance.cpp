// From a problem to classes of nodes that must share a device.
#include "DnnPartitioning/Instance.h"

#include "Order/Dag.h"

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

static Scale sizeScaleOf(const DnnPartitioningProblem& problem) {
  double total = problem.acceleratorMemory;
  for (const DnnPartitioningNode& node : problem.nodes) total += node.size;
  return Scale(total);
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

/// The instance in which the classes c with one groupOf[c] are one. Groups must not form cycles.
static Instance merged(const Instance& fine, const std::vector<int>& groupOf, std::size_t groups) {
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
  nodes.sizeScale = sizeScaleOf(problem);
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
  nodes.memory = nodes.sizeScale.amount(problem.acceleratorMemory);
  nodes.accelerators = static_cast<int>(problem.accelerators);
  nodes.cpus = static_cast<int>(problem.cpus);
  return merged(nodes, classOf, static_cast<std::size_t>(count(classOf)));
}

namespace {

/// Applies the rule until it applies nowhere. Merging only touches the neighbourhood of the two, so classes are
/// looked at again when their neighbourhood has changed.
class Contraction {
public:
  Contraction(const Instance& instance, Amount bound, const std::vector<char>& strict)
      : instance_(instance), bound_(bound), strict_(strict), tensors_(instance.tensors), parts_(instance.classes),
        groupOf_(instance.classes.size()), before_(instance.classes.size()), after_(instance.classes.size()),
        touching_(instance.classes.size()) {
    for (std::size_t c = 0; c < groupOf_.size(); ++c) groupOf_[c] = static_cast<int>(c);
    strict_.resize(groupOf_.size(), 0);
    for (auto [from, to] : instance.edges) {
      after_[at(from)].push_back(to);
      before_[at(to)].push_back(from);
    }
    for (std::size_t t = 0; t < tensors_.size(); ++t)
      for (int c : tensors_[t].classes) touching_[at(c)].push_back(static_cast<int>(t));
    memoryNeverBinds_ = mostSizeWithin(bound) <= instance.memory;
  }

  Instance run() {
    std::vector<int> open(groupOf_.size());
    for (std::size_t c = 0; c < open.size(); ++c) open[c] = static_cast<int>(c);
    while (!open.empty()) {
      std::vector<int> again;
      for (int v : open) {
        int into = target(v);
        if (into < 0) continue;
        merge(v, into);
        again.push_back(into);
        for (const auto& side : {before_[at(into)], after_[at(into)]})
          again.insert(again.end(), side.begin(), side.end());
        for (int t : touching_[at(into)])
          again.insert(again.end(), tensors_[at(t)].classes.begin(), tensors_[at(t)].classes.end());
      }
      std::sort(again.begin(), again.end());
      again.erase(std::unique(again.begin(), again.end()), again.end());
      open = std::move(again);
    }
    return result();
  }

private:
  /// No less than any set of classes of at most this much time has in size: classes by size per time, the last one in
  /// whole. The margin is for the rounding of the quotients.
  Amount mostSizeWithin(Amount time) const {
    std::vector<std::pair<double, const Class*>> order;
    for (const Class& c : parts_)
      if (c.size > 0) order.emplace_back(static_cast<double>(c.size) / static_cast<double>(c.time), &c);
    std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    Amount size = 0;
    for (auto [sizePerTime, c] : order) {
      size += c->size;
      time -= c->time;
      if (time < 0) break;
    }
    return size + (size >> 40);
  }

  /// The class into which v may be merged, or -1.
  int target(int v) const {
    if (groupOf_[at(v)] != v) return -1;
    for (const auto& side : {before_[at(v)], after_[at(v)]})
      if (side.size() == 1 && mayMerge(v, side.front())) return side.front();
    return -1;
  }

  bool mayMerge(int v, int p) const {
    const Class& moved = parts_[at(v)];
    const Class& anchor = parts_[at(p)];
    if (!moved.onAccelerator && anchor.onAccelerator) return false;
    if (moved.size > 0 && !memoryNeverBinds_) return false;
    if (isForFree(v, p) && strict_[at(p)]) return false;
    Amount change = moved.time; // + cut({p, v}) - cut({p})
    for (int t : touching_[at(v)]) {
      const Tensor& tensor = tensors_[at(t)];
      bool touchesAnchor = std::binary_search(tensor.classes.begin(), tensor.classes.end(), p);
      if (!touchesAnchor)
        change += tensor.cost;
      else if (tensor.classes.size() == 2)
        change -= tensor.cost;
    }
    return change <= 0;
  }

  /// Whether v takes time on a CPU that p may be on.
  bool isForFree(int v, int p) const {
    return instance_.cpus > 0 && parts_[at(v)].cpuTime > 0 && parts_[at(p)].cpuTime <= bound_;
  }

  static void replace(std::vector<int>& sorted, int from, int to) {
    for (int& c : sorted)
      if (c == from) c = to;
    std::sort(sorted.begin(), sorted.end());
    sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  }

  void merge(int v, int into) {
    groupOf_[at(v)] = into;
    Class& whole = parts_[at(into)];
    const Class& part = parts_[at(v)];
    if (!isForFree(v, into)) whole.cpuTime += part.cpuTime;
    whole.time += part.time;
    whole.size += part.size;
    whole.onAccelerator = whole.onAccelerator && part.onAccelerator;
    strict_[at(into)] = strict_[at(into)] || strict_[at(v)];
    relink(before_, after_, v, into);
    relink(after_, before_, v, into);
    for (int t : touching_[at(v)]) {
      replace(tensors_[at(t)].classes, v, into);
      if (tensors_[at(t)].classes.size() == 1) tensors_[at(t)].cost = 0;
      touching_[at(into)].push_back(t);
    }
    replace(touching_[at(into)], -1, -1);
    touching_[at(v)].clear();
  }

  /// Gives v's neighbours on one side to `into`.
  static void relink(std::vector<std::vector<int>>& here, std::vector<std::vector<int>>& there, int v, int into) {
    for (int neighbour : here[at(v)]) {
      std::erase(there[at(neighbour)], v);
      if (neighbour == into) continue;
      there[at(neighbour)].push_back(into);
      replace(there[at(neighbour)], -1, -1);
      here[at(into)].push_back(neighbour);
    }
    here[at(v)].clear();
    replace(here[at(into)], -1, -1);
  }

  int rootOf(int c) const {
    while (groupOf_[at(c)] != c) c = groupOf_[at(c)];
    return c;
  }

  Instance result() {
    std::vector<int> number(groupOf_.size(), -1);
    int groups = 0;
    for (std::size_t c = 0; c < groupOf_.size(); ++c)
      if (groupOf_[c] == static_cast<int>(c)) number[c] = groups++;
    std::vector<int> result(groupOf_.size());
    for (std::size_t c = 0; c < groupOf_.size(); ++c) result[c] = number[at(rootOf(static_cast<int>(c)))];
    Instance coarse = merged(instance_, result, static_cast<std::size_t>(groups));
    for (Class& c : coarse.classes) c.cpuTime = parts_[at(rootOf(c.parts.front()))].cpuTime;
    return coarse;
  }

  const Instance& instance_;
  Amount bound_;
  std::vector<char> strict_; ///< of a merged class: whether it holds a strict one
  std::vector<Tensor> tensors_;
  std::vector<Class> parts_; ///< sums only
  std::vector<int> groupOf_; ///< itself, or what it was merged into
  std::vector<std::vector<int>> before_, after_, touching_;
  bool memoryNeverBinds_;
};

} // namespace

Instance pdc::placement::contract(const Instance& instance, Amount bound, const std::vector<char>& strict) {
  return Contraction(instance, bound, strict).run();
}
