#include "Piper/Definition.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

using namespace pdc;

static const PiperChoice* findChoice(const PiperNode& node, std::int64_t degree, const std::string& id) {
  auto list = node.choices.find(degree);
  if (list == node.choices.end()) return nullptr;
  for (const PiperChoice& choice : list->second)
    if (choice.id == id) return &choice;
  return nullptr;
}

/// Bytes of a `sync` table; an edge that it does not name adds nothing.
static double bytesOf(const std::map<std::int64_t, double>& sync, std::int64_t id) {
  auto entry = sync.find(id);
  return entry == sync.end() ? 0 : entry->second;
}

static std::vector<int> stageOfNodes(const PiperProblem& problem, const Plan& plan) {
  std::vector<int> stageOf(problem.nodes.size(), -1);
  for (std::size_t s = 0; s < plan.stages.size(); ++s)
    for (std::int64_t v : plan.stages[s].nodes) stageOf[static_cast<std::size_t>(v)] = static_cast<int>(s);
  return stageOf;
}

std::vector<PiperStageCost> pdc::piperStageCosts(const PiperProblem& problem, const Plan& plan) {
  std::vector<int> stageOf = stageOfNodes(problem, plan);
  std::vector<const PiperChoice*> choiceOf(problem.nodes.size());
  std::int64_t replicasFromHere = 0;
  for (const PlanStage& stage : plan.stages) replicasFromHere += stage.replicas;

  std::vector<PiperStageCost> costs(plan.stages.size());
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const PlanStage& stage = plan.stages[s];
    double d = stage.replicas;
    costs[s].inFlight = (replicasFromHere + stage.replicas - 1) / stage.replicas;
    replicasFromHere -= stage.replicas;
    for (std::size_t i = 0; i < stage.nodes.size(); ++i) {
      auto v = static_cast<std::size_t>(stage.nodes[i]);
      const PiperChoice& choice = *findChoice(problem.nodes[v], stage.tensorParallel, stage.choices[i]);
      choiceOf[v] = &choice;
      costs[s].compute += choice.time;
      costs[s].resyncBytes += 4 * (d - 1) * choice.parameterBytes / d / static_cast<double>(problem.microbatches);
      costs[s].memoryBytes += choice.memoryA * static_cast<double>(costs[s].inFlight) + choice.memoryB;
    }
  }
  for (const PiperEdge& edge : problem.edges) {
    auto tail = static_cast<std::size_t>(edge.from), head = static_cast<std::size_t>(edge.to);
    if (stageOf[tail] == stageOf[head]) continue;
    auto stage = [&](std::size_t v) -> PiperStageCost& { return costs[static_cast<std::size_t>(stageOf[v])]; };
    stage(tail).edgeBytes += 2 * (edge.bytes + bytesOf(choiceOf[tail]->syncBackward, problem.nodes[head].id));
    stage(head).edgeBytes += 2 * (edge.bytes + bytesOf(choiceOf[head]->syncForward, problem.nodes[tail].id));
  }
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    double d = plan.stages[s].replicas;
    costs[s].tps = (costs[s].edgeBytes / d + costs[s].resyncBytes) / problem.bandwidth + costs[s].compute / d;
  }
  return costs;
}

/// What is wrong with the plan's form, before anything can be computed.
static std::string formErrors(const PiperProblem& problem, const Plan& plan) {
  std::ostringstream text;
  std::vector<int> seen(problem.nodes.size(), 0);
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const PlanStage& stage = plan.stages[s];
    auto complain = [&]() -> std::ostream& { return text << "stage " << s << ": "; };
    if (stage.nodes.empty()) complain() << "has no nodes\n";
    if (stage.replicas < 1 || stage.tensorParallel < 1)
      complain() << "degrees are at least 1, got d = " << stage.replicas << ", t = " << stage.tensorParallel << "\n";
    if (stage.choices.size() != stage.nodes.size())
      complain() << stage.nodes.size() << " nodes, but choices for " << stage.choices.size() << "\n";
    for (std::size_t i = 0; i < stage.nodes.size(); ++i) {
      std::int64_t v = stage.nodes[i];
      if (v < 0 || v >= static_cast<std::int64_t>(problem.nodes.size())) {
        complain() << "node " << v << " does not exist, there are " << problem.nodes.size() << "\n";
        continue;
      }
      const PiperNode& node = problem.nodes[static_cast<std::size_t>(v)];
      if (seen[static_cast<std::size_t>(v)]++) complain() << "node " << v << " is in two places\n";
      if (i < stage.choices.size() && !findChoice(node, stage.tensorParallel, stage.choices[i]))
        complain() << "node " << v << " has no choice '" << stage.choices[i] << "' for t = " << stage.tensorParallel
                   << "\n";
    }
  }
  for (std::size_t v = 0; v < seen.size(); ++v)
    if (!seen[v]) text << "node " << v << " is in no stage\n";
  return text.str();
}

static std::string limitErrors(const PiperProblem& problem, const Plan& plan) {
  std::ostringstream text;
  std::int64_t devices = 0, replicas = 0;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const PlanStage& stage = plan.stages[s];
    replicas += stage.replicas;
    devices += static_cast<std::int64_t>(stage.replicas) * stage.tensorParallel;
    if (problem.degreesDivideMicrobatches && problem.microbatches % stage.replicas != 0)
      text << "stage " << s << ": d = " << stage.replicas << " does not divide N = " << problem.microbatches << "\n";
  }
  if (devices > problem.devices) text << "uses " << devices << " devices, there are " << problem.devices << "\n";
  if (replicas > problem.microbatches)
    text << "the degrees d add up to " << replicas << ", more than N = " << problem.microbatches << "\n";
  std::vector<int> stageOf = stageOfNodes(problem, plan);
  for (const PiperEdge& edge : problem.edges) {
    int from = stageOf[static_cast<std::size_t>(edge.from)], to = stageOf[static_cast<std::size_t>(edge.to)];
    if (from > to)
      text << "edge " << edge.from << " -> " << edge.to << " goes back from stage " << from << " to " << to << "\n";
  }
  std::vector<PiperStageCost> costs = piperStageCosts(problem, plan);
  for (std::size_t s = 0; s < costs.size(); ++s)
    if (costs[s].memoryBytes > problem.memoryBytes)
      text << "stage " << s << ": takes " << costs[s].memoryBytes << " bytes, the limit is " << problem.memoryBytes
           << "\n";
  return text.str();
}

static double largestTps(const PiperProblem& problem, const Plan& plan) {
  double largest = 0;
  for (const PiperStageCost& cost : piperStageCosts(problem, plan)) largest = std::max(largest, cost.tps);
  return largest;
}

double pdc::piperTimeOf(const PiperProblem& problem, const Plan& plan) {
  if (!formErrors(problem, plan).empty() || !limitErrors(problem, plan).empty())
    return std::numeric_limits<double>::infinity();
  return largestTps(problem, plan);
}

std::string pdc::piperPlanErrors(const PiperProblem& problem, const Plan& plan) {
  std::string errors = formErrors(problem, plan);
  if (!errors.empty()) return errors;
  errors = limitErrors(problem, plan);
  double time = largestTps(problem, plan);
  if (!(std::abs(plan.timeMs - time) <= 1e-12 * time)) {
    std::ostringstream text;
    text.precision(17);
    text << "its time is " << plan.timeMs << ", by definition " << time << "\n";
    errors += text.str();
  }
  return errors;
}
