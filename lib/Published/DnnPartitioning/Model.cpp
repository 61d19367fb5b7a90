#include "DnnPartitioning/Model.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>

using namespace pdc;

namespace {

constexpr std::size_t nowhere = static_cast<std::size_t>(-1);

std::size_t at(std::int64_t index) {
  return static_cast<std::size_t>(index);
}

/// An edge "`first` is not on a later device than `second`".
struct Order {
  std::size_t first, second;
};

} // namespace

static std::vector<Order> ordersOf(const DnnPartitioningProblem& problem, bool backwardForward) {
  std::vector<Order> orders;
  for (const DnnPartitioningEdge& edge : problem.edges) {
    bool fromBackward = problem.nodes[at(edge.from)].isBackward;
    if (fromBackward != problem.nodes[at(edge.to)].isBackward) continue;
    if (fromBackward && !backwardForward)
      orders.push_back({at(edge.to), at(edge.from)});
    else
      orders.push_back({at(edge.from), at(edge.to)});
  }
  return orders;
}

/// How many groups of nodes remain when nodes are together that have one colour or reach each other.
static std::size_t groupsLeft(const DnnPartitioningProblem& problem, bool backwardForward) {
  std::size_t count = problem.nodes.size();
  std::vector<std::vector<std::size_t>> next(count);
  for (const Order& order : ordersOf(problem, backwardForward)) next[order.first].push_back(order.second);
  std::map<std::int64_t, std::size_t> ofColour;
  for (std::size_t v = 0; v < count; ++v) {
    if (problem.nodes[v].colour < 0) continue;
    auto [same, isNew] = ofColour.emplace(problem.nodes[v].colour, v);
    if (isNew) continue;
    next[v].push_back(same->second);
    next[same->second].push_back(v);
  }
  std::vector<std::vector<char>> reaches(count, std::vector<char>(count, 0));
  for (std::size_t v = 0; v < count; ++v) {
    std::vector<std::size_t> open = {v};
    reaches[v][v] = 1;
    while (!open.empty()) {
      std::size_t here = open.back();
      open.pop_back();
      for (std::size_t to : next[here])
        if (!reaches[v][to]) {
          reaches[v][to] = 1;
          open.push_back(to);
        }
    }
  }
  std::size_t groups = 0;
  for (std::size_t v = 0; v < count; ++v) {
    bool isFirst = true;
    for (std::size_t u = 0; u < v; ++u) isFirst = isFirst && !(reaches[u][v] && reaches[v][u]);
    groups += isFirst;
  }
  return groups;
}

bool pdc::backwardListedForward(const DnnPartitioningProblem& problem) {
  return groupsLeft(problem, true) > groupsLeft(problem, false);
}

double pdc::dnnPartitioningLoad(const DnnPartitioningProblem& problem, const std::vector<std::int64_t>& nodes,
                                bool isCpu) {
  std::vector<char> here(problem.nodes.size(), 0);
  double load = 0;
  for (std::int64_t v : nodes) {
    here[at(v)] = 1;
    load += isCpu ? problem.nodes[at(v)].cpuTime : problem.nodes[at(v)].acceleratorTime;
  }
  if (isCpu) return load;
  std::map<std::int64_t, double> transferred; // by producer, so once
  for (const DnnPartitioningEdge& edge : problem.edges)
    if (here[at(edge.from)] != here[at(edge.to)]) transferred[edge.from] = edge.cost;
  for (auto [producer, cost] : transferred) load += cost;
  return load;
}

double pdc::dnnPartitioningTimeOf(const DnnPartitioningProblem& problem, const Plan& plan) {
  double time = 0;
  for (const PlanStage& stage : plan.stages)
    time = std::max(time, dnnPartitioningLoad(problem, stage.nodes, stage.device == "cpu"));
  return time;
}

namespace {

/// Collects where each node is, then asks each rule; the first that is broken answers.
class Verification {
public:
  Verification(const DnnPartitioningProblem& problem, const Plan& plan)
      : problem_(problem), plan_(plan), stageOf_(problem.nodes.size(), nowhere) {}

  std::string run() {
    if (place() && countDevices() && checkColours() && checkOrder() && checkDevices()) checkTime();
    return wrong_.str();
  }

private:
  const std::string& name(std::size_t v) const { return problem_.nodes[v].name; }

  bool place() {
    for (std::size_t s = 0; s < plan_.stages.size(); ++s)
      for (std::int64_t v : plan_.stages[s].nodes) {
        if (v < 0 || at(v) >= stageOf_.size()) return wrong_ << "stage " << s << " has unknown node " << v, false;
        if (stageOf_[at(v)] != nowhere) return wrong_ << "node '" << name(at(v)) << "' is in two stages", false;
        stageOf_[at(v)] = s;
      }
    for (std::size_t v = 0; v < stageOf_.size(); ++v)
      if (stageOf_[v] == nowhere) return wrong_ << "node '" << name(v) << "' is in no stage", false;
    return true;
  }

  bool countDevices() {
    std::int64_t accelerators = 0, cpus = 0;
    for (const PlanStage& stage : plan_.stages) {
      if (stage.replicas != 1 || stage.tensorParallel != 1) return wrong_ << "a stage has several devices", false;
      if (stage.device == "accelerator")
        ++accelerators;
      else if (stage.device == "cpu")
        ++cpus;
      else
        return wrong_ << "unknown kind of device '" << stage.device << "'", false;
    }
    if (accelerators > problem_.accelerators)
      return wrong_ << accelerators << " accelerators, there are " << problem_.accelerators, false;
    if (cpus > problem_.cpus) return wrong_ << cpus << " CPUs, there are " << problem_.cpus, false;
    return true;
  }

  bool checkColours() {
    std::map<std::int64_t, std::size_t> stageOfColour;
    for (std::size_t v = 0; v < stageOf_.size(); ++v) {
      if (problem_.nodes[v].colour < 0) continue;
      if (stageOfColour.emplace(problem_.nodes[v].colour, stageOf_[v]).first->second != stageOf_[v])
        return wrong_ << "node '" << name(v) << "' is apart from its colour", false;
    }
    return true;
  }

  bool checkOrder() {
    for (const Order& order : ordersOf(problem_, backwardListedForward(problem_)))
      if (stageOf_[order.first] > stageOf_[order.second])
        return wrong_ << "node '" << name(order.first) << "' is in a later stage than '" << name(order.second) << "'",
               false;
    return true;
  }

  bool checkDevices() {
    for (const PlanStage& stage : plan_.stages) {
      if (stage.device == "cpu") continue;
      double size = 0;
      for (std::int64_t v : stage.nodes) {
        if (!problem_.nodes[at(v)].onAccelerator)
          return wrong_ << "node '" << name(at(v)) << "' cannot be on an accelerator", false;
        size += problem_.nodes[at(v)].size;
      }
      if (size > problem_.acceleratorMemory * (1 + 1e-12))
        return wrong_ << "a stage takes " << size << " of memory, an accelerator has " << problem_.acceleratorMemory,
               false;
    }
    return true;
  }

  void checkTime() {
    double time = dnnPartitioningTimeOf(problem_, plan_);
    if (!(std::abs(time - plan_.timeMs) <= 1e-9 * time))
      wrong_ << "the plan says " << plan_.timeMs << ", the largest load is " << time;
  }

  const DnnPartitioningProblem& problem_;
  const Plan& plan_;
  std::vector<std::size_t> stageOf_;
  std::ostringstream wrong_;
};

} // namespace

std::string pdc::verifyDnnPartitioning(const DnnPartitioningProblem& problem, const Plan& plan) {
  return Verification(problem, plan).run();
}
