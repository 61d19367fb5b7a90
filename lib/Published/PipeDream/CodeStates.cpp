#include "PipeDream/CodeStates.h"

#include "pdc/Plan/CostGraph.h"

#include <algorithm>
#include <bit>
#include <map>

using namespace pdc;

std::size_t CodeStates::nodesIn(std::size_t state) const {
  std::size_t count = 0;
  for (std::uint64_t word : set(state)) count += static_cast<std::size_t>(std::popcount(word));
  return count;
}

CodeStates CodeStates::select(std::vector<std::size_t> states) const {
  std::vector<std::pair<std::size_t, std::size_t>> bySize;
  for (std::size_t i = 0; i < states.size(); ++i) bySize.emplace_back(nodesIn(states[i]), i);
  std::sort(bySize.begin(), bySize.end());
  CodeStates selected;
  selected.words = words;
  for (auto [nodes, i] : bySize) {
    std::size_t s = states[i];
    selected.bits.insert(selected.bits.end(), set(s).begin(), set(s).end());
    selected.timeMs.push_back(timeMs[s]);
    selected.weights.push_back(weights[s]);
    selected.stash.push_back(stash[s]);
    selected.cut.push_back(cut[s]);
  }
  return selected;
}

CodeStates CodeStates::interval(int begin, std::size_t end) const {
  std::vector<std::size_t> inside;
  auto from = static_cast<std::size_t>(begin);
  for (auto s = static_cast<std::size_t>(begin + 1); s <= end; ++s)
    if (includes(end, s) && (begin < 0 || includes(s, from))) inside.push_back(s);
  CodeStates states = select(inside);
  if (begin >= 0)
    for (std::size_t s = 0; s < states.size(); ++s) {
      states.timeMs[s] = std::max(0.0, states.timeMs[s] - timeMs[from]);
      states.weights[s] -= weights[from];
      states.stash[s] -= stash[from];
    }
  return states;
}

CodeNodes CodeNodes::of(const CostGraph& graph, double speed) {
  CodeNodes nodes{.dag = Dag::of(graph), .timeMs = {}, .weights = {}, .stash = {}, .activation = {}, .colours = {}};
  std::map<std::int64_t, std::vector<std::size_t>> colours;
  for (std::size_t v = 0; v < graph.nodes.size(); ++v)
    if (graph.nodes[v].colour >= 0) colours[graph.nodes[v].colour].push_back(v);
  for (auto& [colour, members] : colours)
    if (members.size() > 1) nodes.colours.push_back(std::move(members));
  std::vector<double> sent(graph.nodes.size(), 0);
  std::vector<char> sends(graph.nodes.size(), 0);
  for (const CostTensor& tensor : graph.tensors) {
    sent[static_cast<std::size_t>(tensor.from)] += static_cast<double>(tensor.bytes);
    sends[static_cast<std::size_t>(tensor.from)] = 1;
  }
  for (std::size_t v = 0; v < graph.nodes.size(); ++v) {
    const CostNode& node = graph.nodes[v];
    auto saved = static_cast<double>(node.savedBytes), parameters = static_cast<double>(node.parameterBytes);
    nodes.timeMs.push_back((node.forwardMs + node.inputGradientMs + node.weightGradientMs) / speed);
    nodes.weights.push_back(parameters);
    nodes.stash.push_back(saved + parameters);
    nodes.activation.push_back(sends[v] ? sent[v] : saved);
  }
  for (const CostSharedParameter& shared : graph.sharedParameters)
    if (!shared.nodes.empty()) {
      auto first = static_cast<std::size_t>(shared.nodes.front());
      nodes.weights[first] += static_cast<double>(shared.bytes);
      nodes.stash[first] += static_cast<double>(shared.bytes);
    }
  return nodes;
}

bool CodeNodes::tears(std::span<const std::uint64_t> set) const {
  for (const std::vector<std::size_t>& colour : colours) {
    bool inside = set[colour[0] / 64] >> (colour[0] % 64) & 1;
    for (std::size_t v : colour)
      if ((set[v / 64] >> (v % 64) & 1) != inside) return true;
  }
  return false;
}

std::vector<int> pdc::nodesOutsideAllStates(const Dag& dag) {
  std::vector<char> seen(dag.size(), 0);
  std::vector<int> open = {0};
  seen[0] = 1;
  auto visit = [&](int v) {
    if (!seen[static_cast<std::size_t>(v)]) open.push_back(v);
    seen[static_cast<std::size_t>(v)] = 1;
  };
  while (!open.empty()) {
    int v = open.back();
    open.pop_back();
    for (int next : dag.successors(v)) visit(next);
    for (int previous : dag.predecessors(v)) visit(previous);
  }
  std::vector<int> outside;
  for (std::size_t v = 0; v < dag.size(); ++v)
    if (!seen[v]) outside.push_back(static_cast<int>(v));
  return outside;
}

namespace {

/// Appends states and finds those that are there already.
class Enumeration {
public:
  explicit Enumeration(const CodeNodes& nodes)
      : nodes_(nodes), words_((nodes.dag.size() + 63) / 64), closure_(nodes.dag.size() * words_, 0),
        consumers_(nodes.dag.size() * words_, 0), open_(nodes.dag.size() * words_, 0), set_(words_), top_(words_),
        charged_(words_), next_(words_), table_(1024, 0) {
    states.words = words_;
    for (int v : nodes.dag.order()) {
      std::uint64_t* closure = row(closure_, v);
      insert(closure, v);
      for (int p : nodes.dag.predecessors(v)) unite(closure, row(closure_, p));
      for (int c : nodes.dag.successors(v)) insert(row(consumers_, v), c);
    }
    for (std::size_t p = 0; p < nodes.dag.size(); ++p) {
      if (nodes.dag.successors(static_cast<int>(p)).size() < 2) continue;
      for (std::size_t v = 0; v < nodes.dag.size(); ++v) {
        const std::uint64_t *closure = row(closure_, v), *consumers = row(consumers_, p);
        if (p == v || !(closure[p / 64] >> (p % 64) & 1)) continue;
        for (std::size_t i = 0; i < words_; ++i)
          if (consumers[i] & ~closure[i]) insert(row(open_, v), p);
      }
    }
  }

  /// From here on, leaves out the states of which another one is as good (CodeStates.h).
  void reduce() {
    lazy_ = lazyNodes();
    for (int v : nodes_.dag.order())
      if (isEager(static_cast<std::size_t>(v))) eager_.push_back(static_cast<std::size_t>(v));
  }
  bool isLazy(std::size_t v) const { return !lazy_.empty() && lazy_[v]; }
  bool isReduced() const { return !eager_.empty() || std::find(lazy_.begin(), lazy_.end(), 1) != lazy_.end(); }

  /// Adds v and its ancestors to state `from` (none: to the empty set). Returns the state that results, new or not.
  std::size_t step(std::optional<std::size_t> from, std::size_t v) {
    const std::uint64_t* closure = row(closure_, v);
    for (std::size_t i = 0; i < words_; ++i) set_[i] = closure[i] | (from ? states.bits[*from * words_ + i] : 0);
    for (std::size_t i = 0; i < words_; ++i) // v replaces those of its ancestors that were maximal
      top_[i] = from ? maximal_[*from * words_ + i] & ~closure[i] : 0;
    insert(top_.data(), v);
    for (std::size_t e : eager_) {
      const std::vector<int>& before = nodes_.dag.predecessors(static_cast<int>(e));
      if (has(set_.data(), e) || !std::all_of(before.begin(), before.end(), [&](int p) { return has(set_.data(), p); }))
        continue;
      insert(set_.data(), e);
      for (std::size_t i = 0; i < words_; ++i) top_[i] &= ~row(closure_, e)[i];
      insert(top_.data(), e);
    }
    std::size_t place = find(set_.data());
    if (table_[place]) return table_[place] - 1;
    std::size_t state = states.size();
    table_[place] = static_cast<std::uint32_t>(state + 1);
    double time = 0, weights = 0, stash = 0;
    if (from) time = states.timeMs[*from], weights = states.weights[*from], stash = states.stash[*from];
    for (std::size_t i = 0; i < words_; ++i) {
      std::uint64_t added = set_[i];
      if (from) added &= ~states.bits[*from * words_ + i];
      forEach(i, added,
              [&](std::size_t u) { time += nodes_.timeMs[u], weights += nodes_.weights[u], stash += nodes_.stash[u]; });
    }
    maximal_.insert(maximal_.end(), top_.begin(), top_.end());
    states.bits.insert(states.bits.end(), set_.begin(), set_.end());
    states.timeMs.push_back(time);
    states.weights.push_back(weights);
    states.stash.push_back(stash);
    states.cut.push_back(0); // by charge()
    if (2 * states.size() > table_.size()) grow();
    return state;
  }

  /// Fills in the state's cut; returns the nodes outside that have a direct predecessor inside.
  const std::vector<std::uint64_t>& charge(std::size_t state) {
    std::fill(charged_.begin(), charged_.end(), 0);
    std::fill(next_.begin(), next_.end(), 0);
    for (std::size_t i = 0; i < words_; ++i) {
      std::uint64_t maximal = maximal_[state * words_ + i];
      charged_[i] |= maximal;
      forEach(i, maximal, [&](std::size_t a) { unite(charged_.data(), row(open_, a)); });
    }
    // A node with a consumer outside is maximal or charged.
    double bytes = 0;
    for (std::size_t i = 0; i < words_; ++i)
      forEach(i, charged_[i], [&](std::size_t v) {
        bytes += nodes_.activation[v];
        unite(next_.data(), row(consumers_, v));
      });
    bool isLast = true;
    for (std::size_t i = 0; i < words_; ++i) {
      next_[i] &= ~states.bits[state * words_ + i];
      isLast = isLast && !next_[i];
    }
    states.cut[state] = isLast ? 0 : bytes;
    return next_;
  }

  template <class Visit>
  static void forEach(std::size_t word, std::uint64_t bits, Visit&& visit) {
    for (; bits; bits &= bits - 1) visit(word * 64 + static_cast<std::size_t>(std::countr_zero(bits)));
  }

  CodeStates states;

private:
  std::uint64_t* row(std::vector<std::uint64_t>& sets, auto v) const {
    return &sets[static_cast<std::size_t>(v) * words_];
  }
  const std::uint64_t* row(const std::vector<std::uint64_t>& sets, auto v) const {
    return &sets[static_cast<std::size_t>(v) * words_];
  }
  static bool has(const std::uint64_t* set, auto v) { return set[v / 64] >> (v % 64) & 1; }

  bool isFree(std::size_t v) const { return nodes_.timeMs[v] == 0 && nodes_.weights[v] == 0; }

  /// Whether v is best added as soon as its predecessors are inside. One of them, whose only consumer v is, follows all
  /// others: it is maximal until v replaces it, and v opens no fork that it does not.
  bool isEager(std::size_t v) const {
    if (v == 0 || !isFree(v)) return false;
    const std::vector<int>& before = nodes_.dag.predecessors(static_cast<int>(v));
    return std::any_of(before.begin(), before.end(), [&](int p) {
      auto last = static_cast<std::size_t>(p);
      return nodes_.dag.successors(p).size() == 1 && nodes_.activation[v] <= nodes_.activation[last] &&
             std::all_of(before.begin(), before.end(), [&](int other) { return has(row(closure_, last), other); });
    });
  }

  /// The nodes that are best left to those that need them: nothing that they follow takes time or has weights. None if
  /// a step to some other node needs one of them inside.
  std::vector<char> lazyNodes() const {
    std::vector<char> lazy(nodes_.dag.size(), 0);
    for (int i : nodes_.dag.order()) {
      auto v = static_cast<std::size_t>(i);
      const std::vector<int>& before = nodes_.dag.predecessors(i);
      lazy[v] = v != 0 && isFree(v) && std::all_of(before.begin(), before.end(), [&](int p) { return lazy[at(p)]; });
      bool isStep = !before.empty() && !lazy[v];
      if ((lazy[v] && nodes_.dag.successors(i).empty()) || (isStep && !has(row(closure_, v), 0))) return {};
    }
    return lazy;
  }
  static std::size_t at(int v) { return static_cast<std::size_t>(v); }

  static void insert(std::uint64_t* set, auto v) { set[v / 64] |= std::uint64_t{1} << (v % 64); }
  void unite(std::uint64_t* set, const std::uint64_t* other) const {
    for (std::size_t i = 0; i < words_; ++i) set[i] |= other[i];
  }

  std::size_t find(const std::uint64_t* set) const {
    std::uint64_t hash = 0x9e3779b97f4a7c15;
    for (std::size_t i = 0; i < words_; ++i) {
      hash = (hash ^ set[i]) * 0xff51afd7ed558ccd;
      hash ^= hash >> 32;
    }
    std::size_t place = hash & (table_.size() - 1);
    while (table_[place] && !std::equal(set, set + words_, &states.bits[(table_[place] - 1) * words_]))
      place = (place + 1) & (table_.size() - 1);
    return place;
  }

  void grow() {
    table_.assign(2 * table_.size(), 0);
    for (std::size_t s = 0; s < states.size(); ++s)
      table_[find(&states.bits[s * words_])] = static_cast<std::uint32_t>(s + 1);
  }

  const CodeNodes& nodes_;
  std::size_t words_;
  std::vector<std::uint64_t> closure_;   ///< node with its ancestors
  std::vector<std::uint64_t> consumers_; ///< direct
  std::vector<std::uint64_t> open_;      ///< ancestors with a consumer that is neither the node nor one of them
  std::vector<std::uint64_t> maximal_;   ///< of each state
  std::vector<std::uint64_t> set_, top_, charged_, next_;
  std::vector<std::size_t> eager_; ///< in topological order
  std::vector<char> lazy_;
  std::vector<std::uint32_t> table_; ///< state + 1, or 0; a power of two, at most half full
};

} // namespace

std::optional<CodeStates> pdc::allStates(const CodeNodes& nodes, std::size_t limit, bool reduced) {
  Enumeration all(nodes);
  if (reduced) all.reduce();
  all.step(std::nullopt, 0);
  for (std::size_t s = 0; s < all.states.size(); ++s) {
    if (all.states.size() > limit) return std::nullopt;
    std::vector<std::uint64_t> next = all.charge(s);
    for (std::size_t i = 0; i < next.size(); ++i)
      Enumeration::forEach(i, next[i], [&](std::size_t v) {
        if (!all.isLazy(v)) all.step(s, v);
      });
  }
  return std::move(all.states);
}

bool pdc::canReduce(const CodeNodes& nodes) {
  Enumeration none(nodes);
  none.reduce();
  return none.isReduced();
}

std::vector<std::size_t> pdc::wholeStates(const CodeNodes& nodes, const CodeStates& states) {
  std::vector<std::size_t> whole;
  for (std::size_t s = 0; s < states.size(); ++s)
    if (!nodes.tears(states.set(s))) whole.push_back(s);
  return whole;
}

CodeStates pdc::simpleStates(const CodeNodes& nodes) {
  Enumeration some(nodes);
  std::size_t state = some.step(std::nullopt, 0);
  while (true) { // one node after the other, in topological order
    const std::vector<std::uint64_t>& next = some.charge(state);
    auto word = std::find_if(next.begin(), next.end(), [](std::uint64_t bits) { return bits != 0; });
    if (word == next.end()) break;
    state = some.step(state, static_cast<std::size_t>(word - next.begin()) * 64 +
                                 static_cast<std::size_t>(std::countr_zero(*word)));
  }
  std::vector<char> follows(nodes.dag.size(), 0);
  follows[0] = 1;
  for (int v : nodes.dag.order()) {
    for (int p : nodes.dag.predecessors(v))
      follows[static_cast<std::size_t>(v)] |= follows[static_cast<std::size_t>(p)];
    if (follows[static_cast<std::size_t>(v)]) some.charge(some.step(std::nullopt, static_cast<std::size_t>(v)));
  }
  return some.states.select(wholeStates(nodes, some.states));
}
