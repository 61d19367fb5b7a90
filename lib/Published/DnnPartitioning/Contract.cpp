#include "DnnPartitioning/Contract.h"

#include <algorithm>

using namespace pdc;
using namespace pdc::placement;

static std::size_t at(std::int64_t index) {
  return static_cast<std::size_t>(index);
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
        for (const std::vector<int>* side : {&before_[at(into)], &after_[at(into)]})
          again.insert(again.end(), side->begin(), side->end());
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
    for (const std::vector<int>* side : {&before_[at(v)], &after_[at(v)]})
      if (side->size() == 1 && mayMerge(v, side->front())) return side->front();
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

  /// The time on a CPU stays that of `into`: more than that is for free, or too much anyway, or nothing.
  void merge(int v, int into) {
    groupOf_[at(v)] = into;
    Class& whole = parts_[at(into)];
    const Class& part = parts_[at(v)];
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
