// Times and faults of plans under cost model `pipedream-code`, straight from the definition in Code.h.
#include "PipeDream/Code.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <vector>

using namespace pdc;

static constexpr double infinity = std::numeric_limits<double>::infinity();

namespace {

/// Components of one level.
struct Level {
  int components = 1;
  double bytesPerMs = 0;
  int inside = 1; ///< components of the next level inside that has several
};

/// What the definition calls a stage of some level: consecutive stages of the plan.
struct Interval {
  std::size_t begin = 0, end = 0;
};

} // namespace

/// Outermost first, without those of one component.
static std::vector<Level> levelsOf(const Cluster& cluster) {
  std::vector<Level> levels;
  for (const ClusterLevel& level : cluster.levels) {
    if (level.count == 1) continue;
    int inside = levels.empty() ? 1 : levels.front().components;
    levels.insert(levels.begin(), {static_cast<int>(level.count), level.bandwidthBytesPerS / 1000, inside});
  }
  return levels;
}

namespace {

class Definition {
public:
  Definition(const CostGraph& graph, const Cluster& cluster)
      : graph_(graph), speed_(cluster.device.speed), levels_(levelsOf(cluster)), consumers_(graph.nodes.size()),
        ancestors_(graph.nodes.size()), activation_(graph.nodes.size(), -1) {
    for (const CostTensor& tensor : graph.tensors) {
      auto from = static_cast<std::size_t>(tensor.from);
      activation_[from] = std::max(activation_[from], 0.0) + static_cast<double>(tensor.bytes);
      for (std::int64_t to : tensor.to) consumers_[from].insert(static_cast<std::size_t>(to));
    }
    for (std::size_t v = 0; v < graph.nodes.size(); ++v) {
      if (activation_[v] < 0) activation_[v] = static_cast<double>(graph.nodes[v].savedBytes);
      for (std::size_t c : consumers_[v]) { // nodes are in topological order
        ancestors_[c].insert(ancestors_[v].begin(), ancestors_[v].end());
        ancestors_[c].insert(v);
      }
    }
  }

  const std::vector<Level>& levels() const { return levels_; }

  /// A shared parameter counts with the first of its nodes.
  double parameterBytes(std::int64_t v) const {
    auto bytes = static_cast<double>(graph_.nodes[static_cast<std::size_t>(v)].parameterBytes);
    for (const CostSharedParameter& shared : graph_.sharedParameters)
      if (!shared.nodes.empty() && shared.nodes.front() == v) bytes += static_cast<double>(shared.bytes);
    return bytes;
  }

  double computeMs(const std::vector<std::int64_t>& nodes) const {
    double ms = 0;
    for (std::int64_t v : nodes) {
      const CostNode& node = graph_.nodes[static_cast<std::size_t>(v)];
      ms += (node.forwardMs + node.inputGradientMs + node.weightGradientMs) / speed_;
    }
    return ms;
  }

  /// Down-set that steps lead to from the first node's.
  bool isState(const std::set<std::size_t>& set) const {
    if (!set.contains(0)) return false;
    std::set<std::size_t> reached = {0};
    for (bool grows = true; grows;) {
      grows = false;
      for (std::size_t v : set) {
        bool next =
            std::any_of(reached.begin(), reached.end(), [&](std::size_t p) { return consumers_[p].contains(v); });
        if (reached.contains(v) || !next) continue;
        reached.insert(v);
        reached.insert(ancestors_[v].begin(), ancestors_[v].end());
        grows = true;
      }
    }
    return reached == set;
  }

  double cutBytes(const std::set<std::size_t>& state) const {
    std::set<std::size_t> charged;
    for (std::size_t a : state) {
      bool maximal =
          std::none_of(consumers_[a].begin(), consumers_[a].end(), [&](std::size_t c) { return state.contains(c); });
      if (!maximal) continue;
      charged.insert(a);
      for (std::size_t p : ancestors_[a])
        for (std::size_t c : consumers_[p])
          if (c != a && !ancestors_[a].contains(c)) charged.insert(p);
    }
    double bytes = 0;
    for (std::size_t v : charged) bytes += activation_[v];
    return bytes;
  }

private:
  const CostGraph& graph_;
  double speed_;
  std::vector<Level> levels_;
  std::vector<std::set<std::size_t>> consumers_, ancestors_;
  std::vector<double> activation_;
};

/// A plan seen through the definition.
class Evaluation {
public:
  Evaluation(const CostGraph& graph, const Cluster& cluster, const Plan& plan, const PlannerOptions& options)
      : definition_(graph, cluster), graph_(graph), plan_(plan), options_(options) {}

  std::string fault() {
    std::set<std::size_t> inside;
    for (std::size_t s = 0; s < plan_.stages.size(); ++s) {
      const PlanStage& stage = plan_.stages[s];
      if (stage.nodes.empty()) return name(s) + " is empty";
      for (std::int64_t v : stage.nodes)
        if (v < 0 || v >= static_cast<std::int64_t>(graph_.nodes.size()) ||
            !inside.insert(static_cast<std::size_t>(v)).second)
          return name(s) + " holds node " + std::to_string(v) + ", which is in another stage or not in the graph";
      if (!definition_.isState(inside)) return "what " + name(s) + " and those before it hold is not a state";
      cuts_.push_back(s + 1 < plan_.stages.size() ? definition_.cutBytes(inside) : 0);
      if (stage.nest.size() != definition_.levels().size())
        return name(s) + " says its place for " + std::to_string(stage.nest.size()) + " of " +
               std::to_string(definition_.levels().size()) + " levels";
      int replicas = 1;
      for (const PlanNest& nest : stage.nest) replicas *= nest.replicas;
      if (replicas != stage.replicas)
        return name(s) + " has " + std::to_string(stage.replicas) + " replicas, its levels " + std::to_string(replicas);
    }
    if (inside.size() != graph_.nodes.size())
      return "the stages hold " + std::to_string(inside.size()) + " of " + std::to_string(graph_.nodes.size()) +
             " nodes";
    std::map<std::int64_t, std::size_t> stageOfColour;
    for (std::size_t s = 0; s < plan_.stages.size(); ++s)
      for (std::int64_t v : plan_.stages[s].nodes) {
        std::int64_t colour = graph_.nodes[static_cast<std::size_t>(v)].colour;
        if (colour >= 0 && stageOfColour.try_emplace(colour, s).first->second != s)
          return name(s) + " tears colour " + std::to_string(colour) + " apart";
      }
    time_ = timeMs(0, {0, plan_.stages.size()});
    return fault_;
  }

  double time() const { return time_; }

private:
  static std::string name(std::size_t s) { return "stage " + std::to_string(s); }

  double parameters(Interval stages) const {
    double bytes = 0;
    for (std::size_t s = stages.begin; s < stages.end; ++s)
      for (std::int64_t v : plan_.stages[s].nodes) bytes += definition_.parameterBytes(v);
    return bytes;
  }

  double stash(Interval stages) const {
    double bytes = parameters(stages);
    for (std::size_t s = stages.begin; s < stages.end; ++s)
      for (std::int64_t v : plan_.stages[s].nodes)
        bytes += static_cast<double>(graph_.nodes[static_cast<std::size_t>(v)].savedBytes);
    return bytes;
  }

  /// Time of the stages on one component of the level outside of level `depth` (the outermost is 0).
  double timeMs(std::size_t depth, Interval stages) {
    if (depth == definition_.levels().size()) {
      if (stages.end - stages.begin > 1) fault_ = name(stages.begin + 1) + " has no place of its own";
      return definition_.computeMs(plan_.stages[stages.begin].nodes);
    }
    const Level& level = definition_.levels()[depth];
    double slowest = 0;
    int used = 0, number = 0;
    for (Interval at{stages.begin, stages.begin}; at.begin < stages.end; at.begin = at.end, ++number) {
      const PlanNest& nest = plan_.stages[at.begin].nest[depth];
      while (at.end < stages.end && plan_.stages[at.end].nest[depth].stage == nest.stage) ++at.end;
      for (std::size_t s = at.begin; s < at.end; ++s)
        if (plan_.stages[s].nest[depth].replicas != nest.replicas || nest.stage != number || nest.replicas < 1)
          fault_ = name(s) + " does not fit its neighbours at a level";
      used += nest.replicas;
      slowest = std::max(slowest, stageMs(depth, at, at.begin == stages.begin, nest.replicas));
      double needed = std::ceil(static_cast<double>(level.components - used) / nest.replicas) * stash(at);
      if (options_.memoryBytes > 0 && needed > static_cast<double>(options_.memoryBytes))
        fault_ = name(at.begin) + " needs more than the memory limit";
      if (options_.straight && nest.replicas > 1) fault_ = name(at.begin) + " is replicated";
    }
    if (used != level.components)
      fault_ = "the stages take " + std::to_string(used) + " of " + std::to_string(level.components) + " components";
    return slowest;
  }

  double stageMs(std::size_t depth, Interval stages, bool isFirst, int m) {
    const Level& level = definition_.levels()[depth];
    double sync = (4.0 * (m - 1) * parameters(stages)) / (level.bytesPerMs * m);
    if (isFirst) sync /= level.inside;
    double ms = (timeMs(depth + 1, stages) + sync) / m;
    if (isFirst) return ms;
    ms = std::max(ms, 2.0 * cuts_[stages.begin - 1] / (level.bytesPerMs * m));
    return std::max(ms, 2.0 * cuts_[stages.end - 1] / (level.bytesPerMs * m)); // 0 after the last state
  }

  Definition definition_;
  const CostGraph& graph_;
  const Plan& plan_;
  const PlannerOptions& options_;
  std::vector<double> cuts_; ///< after each stage
  std::string fault_;
  double time_ = infinity;
};

} // namespace

std::string pdc::pipedreamCodeFaultOf(const CostGraph& graph, const Cluster& cluster, const PlannerOptions& options,
                                      const Plan& plan) {
  return Evaluation(graph, cluster, plan, options).fault();
}

double pdc::pipedreamCodeTimeOf(const CostGraph& graph, const Cluster& cluster, const Plan& plan) {
  PlannerOptions options;
  Evaluation evaluation(graph, cluster, plan, options);
  return evaluation.fault().empty() ? evaluation.time() : infinity;
}

double pdc::pipedreamCodeDataParallelTimeOf(const CostGraph& graph, const Cluster& cluster) {
  Plan plan;
  PlanStage stage;
  for (std::size_t v = 0; v < graph.nodes.size(); ++v) stage.nodes.push_back(static_cast<std::int64_t>(v));
  for (const Level& level : levelsOf(cluster)) {
    stage.nest.push_back({.stage = 0, .replicas = level.components});
    stage.replicas *= level.components;
  }
  plan.stages.push_back(stage);
  return pipedreamCodeTimeOf(graph, cluster, plan);
}
