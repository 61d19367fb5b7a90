#include "Search/States.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

using namespace pdc;

/// Reverse postorder of a depth-first search: keeps a branch together.
static std::vector<int> depthFirstOrder(const Dag& dag) {
  std::vector<int> postorder;
  std::vector<char> seen(dag.size(), 0);
  for (auto root = dag.order().rbegin(); root != dag.order().rend(); ++root) {
    if (seen[*root]) continue;
    std::vector<std::pair<int, std::size_t>> path = {{*root, 0}};
    seen[*root] = 1;
    while (!path.empty()) {
      auto& [v, next] = path.back();
      if (next == dag.successors(v).size()) {
        postorder.push_back(v);
        path.pop_back();
      } else if (int to = dag.successors(v)[next++]; !seen[to]) {
        seen[to] = 1;
        path.push_back({to, 0});
      }
    }
  }
  return {postorder.rbegin(), postorder.rend()};
}

/// Always the block after which the fewest bytes cross to what is left.
static std::vector<int> smallestCutOrder(const SolverProblem& problem) {
  std::size_t n = problem.blocks.size();
  std::vector<std::vector<int>> made(n), used(n);
  std::vector<std::size_t> usersLeft;
  for (std::size_t t = 0; t < problem.tensors.size(); ++t) {
    made[problem.tensors[t].from].push_back(static_cast<int>(t));
    for (int to : problem.tensors[t].to) used[to].push_back(static_cast<int>(t));
    usersLeft.push_back(problem.tensors[t].to.size());
  }
  auto growth = [&](int v) {
    std::int64_t bytes = 0;
    for (int t : made[v]) bytes += problem.tensors[t].bytes;
    for (int t : used[v])
      if (usersLeft[t] == 1) bytes -= problem.tensors[t].bytes;
    return bytes;
  };
  std::vector<std::size_t> missing(n);
  std::vector<int> ready, order;
  for (std::size_t v = 0; v < n; ++v) {
    missing[v] = problem.dag.predecessors(static_cast<int>(v)).size();
    if (missing[v] == 0) ready.push_back(static_cast<int>(v));
  }
  while (!ready.empty()) {
    auto best = std::min_element(ready.begin(), ready.end(),
                                 [&](int a, int b) { return std::pair(growth(a), a) < std::pair(growth(b), b); });
    int v = *best;
    ready.erase(best);
    order.push_back(v);
    for (int t : used[v]) --usersLeft[t];
    for (int to : problem.dag.successors(v))
      if (--missing[to] == 0) ready.push_back(to);
  }
  return order;
}

std::vector<std::vector<int>> States::ordersOf(const SolverProblem& problem) {
  std::vector<std::vector<int>> orders;
  for (std::vector<int> order : {problem.dag.order(), depthFirstOrder(problem.dag), smallestCutOrder(problem)})
    if (std::find(orders.begin(), orders.end(), order) == orders.end()) orders.push_back(std::move(order));
  return orders;
}

void States::prepare() {
  const SolverProblem& problem = *problem_;
  const Dag& dag = problem.dag;
  afterMs_.assign(dag.size(), 0);
  std::vector<std::vector<int>> made(dag.size());
  for (std::size_t t = 0; t < problem.tensors.size(); ++t) made[problem.tensors[t].from].push_back(static_cast<int>(t));
  for (auto v = dag.order().rbegin(); v != dag.order().rend(); ++v) {
    for (int t : made[*v])
      for (int to : problem.tensors[t].gradientFrom) afterMs_[*v] = std::max(afterMs_[*v], afterMs_[to]);
    afterMs_[*v] += problem.leastMs.empty() ? problem.blocks[*v].forwardMs + problem.blocks[*v].backwardMs
                                            : problem.leastMs[static_cast<std::size_t>(*v)];
  }
  for (const ProblemBlock& block : problem.blocks) hasScratch_ |= block.scratchBytes > 0 || block.workspaceBytes > 0;
}

std::optional<std::vector<NodeSet>> States::worthwhile(const SolverProblem& problem, const DownSets& all,
                                                       double limitMs, int devices, double speed, double bytesPerMs,
                                                       std::size_t most) {
  std::vector<double> workMs;
  double totalMs = 0;
  for (std::size_t v = 0; v < problem.blocks.size(); ++v) {
    const ProblemBlock& block = problem.blocks[v];
    const double ms = problem.leastWorkMs.empty() ? block.forwardMs + block.backwardMs : problem.leastWorkMs[v];
    workMs.push_back(ms / speed);
    totalMs += workMs.back();
  }
  std::vector<NodeSet> kept;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const NodeSet& set = all[i];
    double before = 0;
    set.forEach([&](std::size_t v) { before += workMs[v]; });
    double slack = 1e-12 * totalMs;
    int least = static_cast<int>(std::ceil((before - slack) / limitMs)),
        largest = devices - static_cast<int>(std::ceil((totalMs - before - slack) / limitMs));
    bool isEnd = i == 0 || i + 1 == all.size();
    if (!isEnd) {
      least = std::max(least, 1);
      largest = std::min(largest, devices - 1);
      if (least > largest) continue;
      std::int64_t bytes = 0;
      for (const BlockTensor& tensor : problem.tensors)
        if (set.contains(static_cast<std::size_t>(tensor.from)) &&
            !std::all_of(tensor.to.begin(), tensor.to.end(),
                         [&](int to) { return set.contains(static_cast<std::size_t>(to)); }))
          bytes += tensor.crossingBytes;
      // The number of devices between the two that is nearest to half of them leaves the most bandwidth.
      int narrow = 0;
      for (int a : {least, largest, std::clamp(devices / 2, least, largest)})
        narrow = std::max(narrow, std::min(a, devices - a));
      if (static_cast<double>(bytes) > narrow * limitMs * bytesPerMs * (1 + 1e-12)) continue;
    }
    if (kept.size() == most) return std::nullopt;
    kept.push_back(set);
  }
  return kept;
}

States::States(const SolverProblem& problem, std::vector<NodeSet> sets, bool complete)
    : problem_(&problem), complete_(complete) {
  prepare();
  std::stable_sort(sets.begin(), sets.end(), [](const NodeSet& a, const NodeSet& b) { return a.size() < b.size(); });
  for (NodeSet& set : sets) add(std::move(set));
}

States::States(const SolverProblem& problem, std::size_t limit) : problem_(&problem) {
  prepare();
  const Dag& dag = problem.dag;
  if (std::optional<DownSets> all = DownSets::all(dag, limit)) {
    complete_ = true;
    for (std::size_t i = 0; i < all->size(); ++i) add((*all)[i]);
  } else {
    addOrders(limit);
  }
}

void States::add(NodeSet set) {
  State state;
  state.set = std::move(set);
  describe(state);
  nested_ = nested_ && (states_.empty() || state.set.includes(states_.back().set));
  states_.push_back(std::move(state));
}

void States::describe(State& state) const {
  state.count = static_cast<int>(state.set.size());
  state.set.forEach([&](std::size_t v) {
    const ProblemBlock& block = problem_->blocks[v];
    state.forwardMs += block.forwardMs;
    state.backwardMs += block.backwardMs;
    state.updateMs += block.updateMs;
    state.lateUpdateMs += block.lateUpdateMs;
    state.parameterBytes += block.parameterBytes;
    state.frozenBytes += block.frozenBytes;
    state.gradientBytes += block.gradientBytes;
    state.savedBytes += block.savedBytes;
    state.handoverBytes += block.handoverBytes;
    if (problem_->leastMs.empty()) return;
    state.leastMs += problem_->leastMs[v];
    state.workMs += problem_->leastWorkMs[v];
    state.updateWorkMs += problem_->leastUpdateMs[v];
  });
  for (std::size_t t = 0; t < problem_->tensors.size(); ++t) {
    const BlockTensor& tensor = problem_->tensors[t];
    if (!state.set.contains(tensor.from)) continue;
    const auto isInside = [&](int to) { return state.set.contains(to); };
    if (std::all_of(tensor.to.begin(), tensor.to.end(), isInside)) continue;
    state.cut.push_back(static_cast<int>(t));
    state.cutBytes += tensor.bytes;
    const std::vector<int>& parts = tensor.gradientFrom;
    if (!std::all_of(parts.begin(), parts.end(), isInside)) state.cutGradientBytes += tensor.bytes;
  }
}

/// Prefixes of the orders: of each stretch of work, those that few bytes leave. The stretches are equal, and their
/// number is such that about `limit` sets remain.
void States::addOrders(std::size_t limit) {
  std::size_t n = problem_->blocks.size();
  std::vector<std::vector<int>> orders = ordersOf(*problem_);
  double totalMs = 0;
  for (const ProblemBlock& block : problem_->blocks) totalMs += block.forwardMs + block.backwardMs;

  std::set<NodeSet> kept = {NodeSet(n)};
  std::size_t perOrder = std::max<std::size_t>(limit / orders.size(), 8);
  for (const std::vector<int>& order : orders) {
    // The cut of each prefix, followed block by block.
    std::vector<std::vector<int>> made(n), used(n);
    std::vector<std::size_t> usersLeft;
    for (std::size_t t = 0; t < problem_->tensors.size(); ++t) {
      made[problem_->tensors[t].from].push_back(static_cast<int>(t));
      for (int to : problem_->tensors[t].to) used[to].push_back(static_cast<int>(t));
      usersLeft.push_back(problem_->tensors[t].to.size());
    }
    struct Prefix {
      std::int64_t cutBytes;
      std::size_t length;
    };
    std::int64_t cut = 0;
    double doneMs = 0;
    std::size_t stretches = std::min(perOrder, n);
    std::vector<Prefix> chosen(stretches + 1, Prefix{-1, 0});
    for (std::size_t i = 0; i < n; ++i) {
      int v = order[i];
      for (int t : made[v]) cut += problem_->tensors[t].bytes;
      for (int t : used[v])
        if (--usersLeft[t] == 0) cut -= problem_->tensors[t].bytes;
      doneMs += problem_->blocks[v].forwardMs + problem_->blocks[v].backwardMs;
      // Half by work, half by number, so that neither long blocks nor many free ones leave a gap.
      double share =
          0.5 * static_cast<double>(i + 1) / static_cast<double>(n) + (totalMs > 0 ? 0.5 * doneMs / totalMs : 0);
      auto stretch = std::min(stretches, static_cast<std::size_t>(share * static_cast<double>(stretches)));
      Prefix& entry = chosen[stretch];
      if (entry.cutBytes < 0 || cut < entry.cutBytes) entry = {cut, i + 1};
    }
    std::vector<char> keep(n + 1, 0);
    for (const Prefix& prefix : chosen)
      if (prefix.cutBytes >= 0) keep[prefix.length] = 1;
    keep[n] = 1;
    NodeSet set(n);
    for (std::size_t i = 0; i < n; ++i) {
      set.insert(static_cast<std::size_t>(order[i]));
      if (keep[i + 1]) kept.insert(set);
    }
  }
  std::vector<NodeSet> sets(kept.begin(), kept.end());
  std::stable_sort(sets.begin(), sets.end(), [](const NodeSet& a, const NodeSet& b) { return a.size() < b.size(); });
  for (NodeSet& set : sets) add(std::move(set));
}

bool States::precedes(int i, int j) const {
  return states_[i].count < states_[j].count && (nested_ || states_[j].set.includes(states_[i].set));
}

/// Whether some of `blocks` are between the two states, and whether some come after both.
std::pair<bool, bool> States::placesOf(const std::vector<int>& blocks, const State& before, const State& after) {
  bool here = false, later = false;
  for (int block : blocks) {
    if (!after.set.contains(block))
      later = true;
    else if (!here && !before.set.contains(block))
      here = true;
  }
  return {here, later};
}

/// Whether parts of the gradient from later stages must come to the one after `before` if it has a part itself: unless
/// those of earlier stages are added in between, when parts may go past it.
bool States::sumsUpHere(const BlockTensor& tensor, const State& before) {
  const std::vector<int>& parts = tensor.gradientFrom;
  const auto isBefore = [&](int block) { return before.set.contains(block); };
  return tensor.inOrder ? std::is_partitioned(parts.begin(), parts.end(), isBefore)
                        : std::none_of(parts.begin(), parts.end(), isBefore);
}

StageSums States::stage(int i, int j, double msPerByte) const {
  const State &before = states_[i], &after = states_[j];
  StageSums sums;
  sums.forwardMs = after.forwardMs - before.forwardMs;
  sums.backwardMs = after.backwardMs - before.backwardMs;
  sums.updateMs = after.updateMs - before.updateMs;
  sums.lateUpdateMs = after.lateUpdateMs - before.lateUpdateMs;
  sums.parameterBytes = after.parameterBytes - before.parameterBytes;
  sums.frozenBytes = after.frozenBytes - before.frozenBytes;
  sums.gradientBytes = after.gradientBytes - before.gradientBytes;
  sums.savedBytes = after.savedBytes - before.savedBytes;
  sums.handoverBytes = after.handoverBytes - before.handoverBytes;
  sums.outBytes = after.cutBytes;
  sums.outGradientBytes = after.cutGradientBytes;
  for (int t : before.cut) {
    const BlockTensor& tensor = problem_->tensors[t];
    auto [usedHere, usedLater] = placesOf(tensor.to, before, after);
    if (usedLater) sums.outBytes -= tensor.bytes;
    if (usedHere) sums.inBytes += tensor.bytes;
    if (tensor.gradientFrom.size() != tensor.to.size())
      std::tie(usedHere, usedLater) = placesOf(tensor.gradientFrom, before, after);
    if (usedLater) sums.outGradientBytes -= tensor.bytes;
    if (usedHere) sums.inGradientBytes += tensor.bytes;
    if (usedHere && usedLater && sumsUpHere(tensor, before)) sums.passGradientBytes += tensor.bytes;
  }
  if (sums.outGradientBytes > 0)
    for (int t : after.cut) {
      const BlockTensor& tensor = problem_->tensors[t];
      if (before.set.contains(tensor.from)) continue;
      for (int to : tensor.gradientFrom)
        if (!after.set.contains(to))
          sums.afterMs = std::max(sums.afterMs, afterMs_[to] + 2 * static_cast<double>(tensor.bytes) * msPerByte);
    }
  return sums;
}

std::int64_t States::scratchBytes(int i, int j) const {
  if (!hasScratch_) return 0;
  std::int64_t scratch = 0, workspace = 0;
  (states_[j].set - states_[i].set).forEach([&](std::size_t v) {
    scratch = std::max(scratch, problem_->blocks[v].scratchBytes);
    workspace = std::max(workspace, problem_->blocks[v].workspaceBytes);
  });
  return scratch + workspace;
}
