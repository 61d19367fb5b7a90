#include "pdc/Planner/Verifier.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

using namespace pdc;

namespace {

/// One pass of a tensor's value or gradient from stage to stage, for every minibatch.
struct Trip {
  int from, to;
  std::int64_t bytes;
};

/// The evaluation of one plan.
class Definition {
public:
  Definition(const CostGraph& graph, const Plan& plan, const PlannerOptions& options)
      : graph_(graph), plan_(plan), options_(options) {
    for (std::size_t s = 0; s < plan.stages.size(); ++s)
      for (std::int64_t node : plan.stages[s].nodes) stageOf_[node] = static_cast<int>(s);
    for (const CostTensor& tensor : graph.tensors) {
      std::set<int> users;
      for (std::int64_t node : tensor.to) users.insert(stageOf_.at(node));
      users.erase(stageOf_.at(tensor.from));
      for (int user : users) values_.push_back({stageOf_.at(tensor.from), user, tensor.bytes});
      if (!tensor.hasGradient) continue;
      int before = stageOf_.at(tensor.from);
      for (int user : users) {
        gradients_.push_back({user, before, tensor.bytes});
        before = user;
      }
    }
  }

  PlanCost evaluate() {
    followMinibatches();
    PlanCost cost;
    for (const auto& [resource, ms] : busyMs_) cost.loadMs = std::max(cost.loadMs, ms / static_cast<double>(period_));
    cost.loadMs = std::max(cost.loadMs, slowestLoop());
    cost.timeMs = cost.loadMs;
    if (plan_.cluster.device.cores > 0)
      cost.timeMs = std::max(cost.timeMs, computeMs_ / static_cast<double>(plan_.cluster.device.cores * period_));
    for (std::size_t s = 0; s < plan_.stages.size(); ++s)
      cost.peakMemoryBytes = std::max(cost.peakMemoryBytes, memory(static_cast<int>(s)));
    cost.feasible = cost.peakMemoryBytes <= plan_.cluster.device.memoryBytes - plan_.cluster.device.reservedBytes &&
                    std::isfinite(cost.timeMs);
    return cost;
  }

  std::int64_t memory(int s) const {
    const PlanStage& stage = plan_.stages[s];
    std::int64_t parameters = 0, gradients = 0, saved = 0, scratch = 0, workspace = 0;
    for (std::int64_t v : stage.nodes) {
      const CostNode& node = graph_.nodes[v];
      parameters += node.parameterBytes;
      gradients += node.gradientBytes;
      saved += node.savedBytes;
      scratch = std::max(scratch, node.scratchBytes);
      workspace = std::max(workspace, node.workspaceBytes);
    }
    for (const CostTensor& tensor : graph_.tensors)
      if (stageOf_.at(tensor.from) == s &&
          std::any_of(tensor.to.begin(), tensor.to.end(), [&](std::int64_t v) { return stageOf_.at(v) != s; }))
        saved += tensor.bytes;
    std::int64_t bytes =
        parameters * versions(s) + gradients * (delay(s) + 1) + saved * (stage.warmup + 1) + scratch + workspace +
        static_cast<std::int64_t>(options_.optimizerStatePerParameterByte * static_cast<double>(parameters));
    for (const Trip& value : values_)
      if (value.to == s) bytes += value.bytes * (stage.warmup + 2);
    for (const Trip& gradient : gradients_) {
      if (gradient.from == s) bytes += gradient.bytes * 2;
      if (gradient.to == s) bytes += gradient.bytes * (gradient.from > s + 1 ? std::max(2, stage.warmup + 1) : 2);
    }
    return bytes;
  }

private:
  int delay(int s) const {
    return plan_.schedule == "1f1b" && plan_.sync == "overlap" && plan_.stages.size() > 1 &&
           plan_.stages[s].replicas > 1;
  }

  int versions(int s) const {
    if (plan_.schedule == "1f1b-flush" || plan_.weights == "latest") return 1;
    const PlanStage &stage = plan_.stages[s], &input = plan_.stages[0];
    if (plan_.weights == "stash") return stage.warmup + 1;
    double ahead =
        input.replicas * (input.warmup + delay(0)) + input.replicas - std::gcd(input.replicas, stage.replicas);
    return static_cast<int>(std::ceil(ahead / stage.replicas)) - delay(s) + 1;
  }

  double bandwidth() const {
    for (const ClusterLevel& level : plan_.cluster.levels)
      if (level.count > 1) return level.bandwidthBytesPerS / 1e3;
    return INFINITY;
  }
  double latencyMs() const {
    for (const ClusterLevel& level : plan_.cluster.levels)
      if (level.count > 1) return level.latencyS * 1e3;
    return 0;
  }

  std::string rankName(int stage, std::int64_t minibatch) const {
    return std::to_string(stage) + "." + std::to_string(minibatch % plan_.stages[stage].replicas);
  }

  void followMinibatches() {
    period_ = 1;
    for (const PlanStage& stage : plan_.stages) period_ = std::lcm(period_, stage.replicas);
    for (std::int64_t b = 0; b < period_; ++b) {
      for (const auto& [v, s] : stageOf_) {
        const CostNode& node = graph_.nodes[v];
        double ms = (node.forwardMs + node.inputGradientMs + node.weightGradientMs) / plan_.cluster.device.speed;
        busyMs_["device " + rankName(s, b)] += ms;
        computeMs_ += ms;
      }
      for (const std::vector<Trip>* trips : {&values_, &gradients_})
        for (const Trip& trip : *trips) {
          busyMs_["out " + rankName(trip.from, b)] += static_cast<double>(trip.bytes) / bandwidth();
          busyMs_["in " + rankName(trip.to, b)] += static_cast<double>(trip.bytes) / bandwidth();
        }
    }
    for (std::size_t s = 0; s < plan_.stages.size(); ++s)
      for (std::int64_t u = 0; u < period_ / plan_.stages[s].replicas; ++u) update(static_cast<int>(s));
  }

  void update(int s) {
    double r = plan_.stages[s].replicas, parameters = 0, updateMs = 0;
    for (std::int64_t v : plan_.stages[s].nodes) {
      parameters += static_cast<double>(graph_.nodes[v].parameterBytes);
      updateMs += graph_.nodes[v].updateMs / plan_.cluster.device.speed;
    }
    double sync = r > 1 ? 2 * (r - 1) * (parameters / (r * bandwidth()) + latencyMs()) : 0;
    for (int q = 0; q < r; ++q) {
      busyMs_["device " + rankName(s, q)] += updateMs + (delay(s) == 0 ? sync : 0);
      busyMs_["all-reduce " + rankName(s, q)] += sync;
      busyMs_["out " + rankName(s, q)] += 2 * (r - 1) / r * parameters / bandwidth();
      busyMs_["in " + rankName(s, q)] += 2 * (r - 1) / r * parameters / bandwidth();
      computeMs_ += updateMs;
    }
  }

  /// Between the forward of a minibatch in stage s and its backward there lie all stages up to u and the transfers
  /// between them; meanwhile s can be ahead of u by a limited number of minibatches.
  double slowestLoop() const {
    std::vector<double> stageMs(plan_.stages.size(), 0), tripMs(plan_.stages.size(), 0);
    for (const auto& [v, s] : stageOf_) {
      const CostNode& node = graph_.nodes[v];
      stageMs[s] += (node.forwardMs + node.inputGradientMs + node.weightGradientMs) / plan_.cluster.device.speed;
    }
    std::set<std::pair<int, int>> used;
    for (const std::vector<Trip>* trips : {&values_, &gradients_})
      for (const Trip& trip : *trips) {
        if (std::abs(trip.from - trip.to) != 1) continue;
        tripMs[std::min(trip.from, trip.to)] += static_cast<double>(trip.bytes) / bandwidth();
        if (used.insert({trip.from, trip.to}).second) tripMs[std::min(trip.from, trip.to)] += latencyMs();
      }
    double slowest = 0;
    for (std::size_t s = 0; s < stageMs.size(); ++s)
      for (std::size_t u = s + 1; u < stageMs.size(); ++u) {
        double ms = std::accumulate(stageMs.begin() + s, stageMs.begin() + u + 1, 0.0) +
                    std::accumulate(tripMs.begin() + s, tripMs.begin() + u, 0.0);
        const PlanStage &ahead = plan_.stages[s], &behind = plan_.stages[u];
        double room = (ahead.warmup + 1) * ahead.replicas - behind.warmup * behind.replicas;
        slowest = std::max(slowest, room > 0 ? ms / room : INFINITY);
      }
    return slowest;
  }

  const CostGraph& graph_;
  const Plan& plan_;
  const PlannerOptions& options_;
  std::map<std::int64_t, int> stageOf_;
  std::vector<Trip> values_, gradients_;
  std::int64_t period_ = 1;
  std::map<std::string, double> busyMs_; ///< of each resource, during one period
  double computeMs_ = 0;
};

} // namespace

PlanCost pdc::evaluateByDefinition(const CostGraph& graph, const Plan& plan, const PlannerOptions& options) {
  return Definition(graph, plan, options).evaluate();
}

std::string pdc::verifyPlan(const CostGraph& graph, const Plan& plan, const PlannerOptions& options) {
  std::map<std::int64_t, int> stageOf;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    if (plan.stages[s].nodes.empty()) return "stage " + std::to_string(s) + " is empty";
    for (std::int64_t node : plan.stages[s].nodes)
      if (!stageOf.insert({node, static_cast<int>(s)}).second)
        return "node " + std::to_string(node) + " is in two stages";
  }
  std::map<std::int64_t, int> colours;
  for (std::int64_t v = 0; v < static_cast<std::int64_t>(graph.nodes.size()); ++v) {
    if (!stageOf.count(v)) return "node " + std::to_string(v) + " is in no stage";
    std::int64_t colour = graph.nodes[v].colour;
    if (colour >= 0 && colours.insert({colour, stageOf[v]}).first->second != stageOf[v])
      return "colour " + std::to_string(colour) + " is in two stages";
  }
  if (stageOf.size() != graph.nodes.size()) return "a stage holds a node that the graph does not have";
  for (const CostTensor& tensor : graph.tensors)
    for (std::int64_t to : tensor.to)
      if (stageOf[to] < stageOf[tensor.from]) return "tensor '" + tensor.name + "' goes to an earlier stage";

  std::set<std::int64_t> devices;
  std::set<std::pair<int, int>> hosted;
  for (const PlanRank& rank : plan.ranks) {
    for (std::int64_t device : rank.devices)
      if (device < 0 || device >= plan.cluster.deviceCount() || !devices.insert(device).second)
        return "device " + std::to_string(device) + " does not exist or is used twice";
    for (const PlanRank::Host& host : rank.hosts) hosted.insert({host.stage, host.replica});
  }
  std::size_t replicas = 0;
  for (const PlanStage& stage : plan.stages) replicas += static_cast<std::size_t>(stage.replicas);
  if (hosted.size() != replicas)
    return "the ranks host " + std::to_string(hosted.size()) + " replicas, not " + std::to_string(replicas);

  Definition definition(graph, plan, options);
  for (std::size_t s = 0; s < plan.stages.size(); ++s)
    if (std::int64_t bytes = definition.memory(static_cast<int>(s)); bytes != plan.stages[s].memoryBytes)
      return "stage " + std::to_string(s) + " takes " + std::to_string(bytes) + " bytes, the plan says " +
             std::to_string(plan.stages[s].memoryBytes);
  if (plan.schedule != "1f1b") return {};
  PlanCost cost = definition.evaluate();
  if (!cost.feasible)
    return "a stage takes " + std::to_string(cost.peakMemoryBytes) + " bytes, more than its device has";
  // The plan may state a time that the simulator corrected upwards, but never a better one than the definition's.
  if (plan.timeMs < cost.timeMs * (1 - 1e-9))
    return "the time is " + std::to_string(cost.timeMs) + " ms, the plan says " + std::to_string(plan.timeMs);
  return {};
}
