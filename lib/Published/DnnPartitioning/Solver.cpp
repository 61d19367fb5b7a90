#include "DnnPartitioning/Solver.h"

#include "DnnPartitioning/Contract.h"

#include <algorithm>
#include <deque>

using namespace pdc;
using namespace pdc::placement;

static std::size_t at(std::int64_t index) {
  return static_cast<std::size_t>(index);
}

/// A load that some device has in any plan.
static Amount simpleBound(const Instance& instance) {
  Amount bound = 0, total = 0;
  for (const Class& c : instance.classes) {
    Amount best = never;
    if (instance.accelerators > 0 && c.onAccelerator && c.size <= instance.memory) best = c.time;
    if (instance.cpus > 0) best = std::min(best, c.cpuTime);
    bound = std::max(bound, best);
    total += c.time;
  }
  if (instance.cpus == 0 && instance.accelerators > 0)
    bound = std::max(bound, (total + instance.accelerators - 1) / instance.accelerators);
  return bound;
}

/// Tries bounds until those of the solution meet; false when time is up.
static bool bisect(const Instance& instance, const States& states, const Limits& limits, Solution& solution) {
  Search search(instance, states, limits.deadline);
  Amount below = 1;
  while (solution.proven < solution.value) {
    Amount gap = solution.value - solution.proven;
    // Just below the best plan, then ever further below as long as that is feasible, at most half way.
    Amount bound = solution.value - std::min(below, std::max<Amount>(1, gap / 2));
    if (solution.value == never) bound = never - 1;
    Search::Answer answer = search.run(bound);
    ++solution.runs;
    solution.grown = search.grown();
    if (answer == Search::Answer::outOfTime) return false;
    if (answer == Search::Answer::infeasible) {
      solution.proven = std::max(solution.proven, search.proven());
      below = 1;
    } else {
      solution.value = search.value();
      solution.stages = search.stages();
      below = std::max(below, gap / 16);
    }
  }
  solution.proven = solution.value;
  return true;
}

/// A topological order, built from the front or from the back, that takes of what it may take what became possible
/// first or last.
static std::vector<int> topologicalOrder(const Instance& instance, bool fromBack, bool lastFirst) {
  std::vector<std::vector<int>> after(instance.classes.size());
  std::vector<int> missing(instance.classes.size(), 0), order;
  for (auto [from, to] : instance.edges) {
    if (fromBack) std::swap(from, to);
    after[at(from)].push_back(to);
    ++missing[at(to)];
  }
  std::deque<int> ready;
  for (std::size_t c = 0; c < missing.size(); ++c)
    if (missing[c] == 0) ready.push_back(static_cast<int>(c));
  while (!ready.empty()) {
    int c = lastFirst ? ready.back() : ready.front();
    lastFirst ? ready.pop_back() : ready.pop_front();
    order.push_back(c);
    for (int next : after[at(c)])
      if (--missing[at(next)] == 0) ready.push_back(next);
  }
  if (fromBack) std::reverse(order.begin(), order.end());
  return order;
}

/// The instance with its classes in one given order, so that only prefixes are down-sets.
static Instance asChain(const Instance& instance, const std::vector<int>& order) {
  std::vector<int> rank(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) rank[at(order[i])] = static_cast<int>(i);
  Instance chain = instance;
  chain.edges.clear();
  for (std::size_t i = 0; i < order.size(); ++i) {
    chain.classes[i] = instance.classes[at(order[i])];
    if (i > 0) chain.edges.emplace_back(static_cast<int>(i) - 1, static_cast<int>(i));
  }
  for (Tensor& tensor : chain.tensors) {
    for (int& c : tensor.classes) c = rank[at(c)];
    std::sort(tensor.classes.begin(), tensor.classes.end());
  }
  return chain;
}

/// The best splits of four topological orders; of the first in any case, so that there is a plan if time is short.
static void tryOrders(const Instance& instance, const Limits& limits, Solution& best) {
  for (int kind = 0; kind < 4; ++kind) {
    std::vector<int> order = topologicalOrder(instance, kind / 2 == 1, kind % 2 == 1);
    Instance chain = asChain(instance, order);
    const Limits& spend = kind > 0 ? limits : Limits{};
    std::optional<States> states = States::all(chain, spend);
    if (!states) return;
    Solution solution;
    solution.value = best.value; // only what is better is of interest
    solution.proven = best.proven;
    bisect(chain, *states, spend, solution);
    if (solution.stages.empty()) continue;
    best.value = solution.value;
    best.stages = std::move(solution.stages);
    for (Stage& stage : best.stages) {
      for (int& c : stage.classes) c = order[at(c)];
      std::sort(stage.classes.begin(), stage.classes.end());
    }
  }
}

/// The stages in terms of the classes that were contracted.
static std::vector<Stage> inParts(const Instance& coarse, const std::vector<Stage>& stages) {
  std::vector<Stage> result;
  for (const Stage& stage : stages) {
    Stage whole{{}, stage.isCpu};
    for (int c : stage.classes) {
      const std::vector<int>& parts = coarse.classes[at(c)].parts;
      whole.classes.insert(whole.classes.end(), parts.begin(), parts.end());
    }
    std::sort(whole.classes.begin(), whole.classes.end());
    result.push_back(std::move(whole));
  }
  return result;
}

Solution pdc::placement::solve(const Instance& instance, const Limits& limits) {
  Solution best;
  best.proven = simpleBound(instance);
  tryOrders(instance, limits, best);
  std::vector<char> strict(instance.classes.size(), 0);
  for (bool inTime = true; inTime && best.proven < best.value;) {
    Instance coarse = contract(instance, best.value, strict);
    std::optional<States> states = States::all(coarse, limits);
    if (!states) break;
    Solution found;
    found.value = best.value;
    found.proven = best.proven;
    inTime = bisect(coarse, *states, limits, found);
    best.states = states->size();
    best.runs += found.runs;
    best.grown += found.grown;
    best.proven = std::max(best.proven, found.proven);
    if (found.stages.empty()) break; // the best plan known is best, or there is none, or time is up
    std::vector<Stage> stages = inParts(coarse, found.stages);
    Amount value = 0;
    for (const Stage& stage : stages) {
      value = std::max(value, loadOf(instance, stage));
      for (int c : stage.classes) strict[at(c)] = strict[at(c)] || stage.isCpu;
    }
    if (value >= best.value) continue;
    best.value = value;
    best.stages = std::move(stages);
  }
  return best;
}

int pdc::placement::fewestAccelerators(Instance instance, const Limits& limits) {
  instance.accelerators = static_cast<int>(instance.classes.size());
  instance.tensors.clear();
  std::optional<States> states = States::all(instance, limits);
  if (!states) return 0;
  Search search(instance, *states, limits.deadline);
  if (search.run(never - 1) != Search::Answer::feasible) return 0;
  return static_cast<int>(search.stages().size()); // levels are tried from few to many
}
