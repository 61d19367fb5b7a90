#include "DnnPartitioning/Solver.h"

#include "Order/Dag.h"

#include <algorithm>

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

namespace {

class Bisection {
public:
  Bisection(const Instance& instance, const States& states, const Limits& limits, Solution& solution)
      : instance_(instance), search_(instance, states, limits.deadline), solution_(solution) {}

  /// Until the bounds meet or time is up.
  void run() {
    Amount below = 1;
    while (solution_.proven < solution_.value) {
      Amount gap = solution_.value - solution_.proven;
      // Just below the best plan, then ever further below as long as that is feasible, at most half way.
      Amount bound = solution_.value - std::min(below, std::max<Amount>(1, gap / 2));
      if (solution_.value == never) bound = never - 1;
      Search::Answer answer = search_.run(bound);
      ++solution_.runs;
      solution_.grown = search_.grown();
      if (answer == Search::Answer::outOfTime) return;
      if (answer == Search::Answer::infeasible) {
        solution_.proven = std::max(solution_.proven, search_.proven());
        below = 1;
      } else {
        accept();
        below = std::max(below, gap / 16);
      }
    }
    solution_.proven = solution_.value;
  }

private:
  void accept() {
    solution_.value = search_.value();
    solution_.devices.clear();
    for (const Stage& stage : search_.stages()) {
      Solution::Device device;
      device.isCpu = stage.isCpu;
      for (int c : stage.classes) {
        const std::vector<std::int64_t>& nodes = instance_.classes[at(c)].nodes;
        device.nodes.insert(device.nodes.end(), nodes.begin(), nodes.end());
      }
      std::sort(device.nodes.begin(), device.nodes.end());
      solution_.devices.push_back(std::move(device));
    }
  }

  const Instance& instance_;
  Search search_;
  Solution& solution_;
};

} // namespace

/// A topological order that takes, of what it may take, what became possible first or last.
static std::vector<int> topologicalOrder(const Instance& instance, bool lastFirst) {
  std::vector<std::vector<int>> after(instance.classes.size());
  std::vector<int> missing(instance.classes.size(), 0), ready, order;
  for (auto [from, to] : instance.edges) {
    after[at(from)].push_back(to);
    ++missing[at(to)];
  }
  for (std::size_t c = 0; c < missing.size(); ++c)
    if (missing[c] == 0) ready.push_back(static_cast<int>(c));
  while (!ready.empty()) {
    auto place = lastFirst ? ready.end() - 1 : ready.begin();
    int c = *place;
    ready.erase(place);
    order.push_back(c);
    for (int next : after[at(c)])
      if (--missing[at(next)] == 0) ready.push_back(next);
  }
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

static void tryOrders(const Instance& instance, const Limits& limits, Solution& best) {
  for (bool lastFirst : {false, true}) {
    bool first = !lastFirst; // in any case, so that there is a plan if time is short
    Instance chain = asChain(instance, topologicalOrder(instance, lastFirst));
    std::optional<States> states = States::all(chain, first ? Limits{} : limits);
    if (!states) return;
    Solution solution;
    solution.proven = simpleBound(chain);
    Bisection(chain, *states, first ? Limits{} : limits, solution).run();
    if (solution.value >= best.value) continue;
    best.value = solution.value;
    best.devices = std::move(solution.devices);
  }
}

Solution pdc::placement::solve(const Instance& instance, const Limits& limits) {
  Solution solution;
  solution.proven = simpleBound(instance);
  tryOrders(instance, limits, solution);
  Instance coarse = contract(instance, solution.value);
  std::optional<States> states = States::all(coarse, limits);
  if (!states) return solution;
  solution.states = states->size();
  Bisection(coarse, *states, limits, solution).run();
  return solution;
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
