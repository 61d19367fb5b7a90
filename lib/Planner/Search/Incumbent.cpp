#include "Search/Search.h"

#include "Numbers.h"
#include "pdc/Predict/Simulate.h"

#include <algorithm>
#include <chrono>
#include <utility>

using namespace pdc;

static double secondsNow() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Incumbent::Incumbent(const CostGraph& graph, const Cluster& cluster, const PlannerOptions& options,
                     const SolverProblem& problem, const Machine& machine)
    : graph_(graph), cluster_(cluster), options_(options), problem_(problem), machine_(machine),
      model_(graph, cluster, options) {
  if (options.timeLimitS > 0) deadline_ = secondsNow() + options.timeLimitS;
}

bool Incumbent::isLate() const {
  return deadline_ > 0 && secondsNow() > deadline_;
}

double Incumbent::limitMs() const {
  if (!found_) return std::numeric_limits<double>::infinity();
  return best_.cost.timeMs;
}

Partition Incumbent::partitionOf(const States& states, const std::vector<ChainStage>& chain) const {
  Partition partition;
  for (const ChainStage& stage : chain) {
    PartitionStage own{.nodes = {},
                       .replicas = stage.replicas,
                       .recompute = stage.form.recompute,
                       .split = stage.split,
                       .team = graph_.in(stage.split).split.members,
                       .ofClass = {},
                       .shards = stage.form.shards && stage.replicas > 1};
    if (machine_.classes().size() > 1) own.ofClass = stage.ofClass;
    (states.set(stage.to) - states.set(stage.from)).forEach([&](std::size_t v) {
      const std::vector<std::int64_t>& nodes = problem_.blocks[v].nodes;
      own.nodes.insert(own.nodes.end(), nodes.begin(), nodes.end());
    });
    std::sort(own.nodes.begin(), own.nodes.end());
    partition.stages.push_back(std::move(own));
  }
  return partition;
}

void Incumbent::spendForEvaluation(std::size_t stages) {
  // Loops are between all pairs of stages, which counts where there are hundreds.
  constexpr std::size_t few = 64;
  std::size_t many = std::max(stages, few) - few;
  spend(50 + static_cast<std::int64_t>(graph_.nodes.size() + graph_.tensors.size()) / 10 + machine_.components(0) / 10 +
        static_cast<std::int64_t>(many * many) / 4);
}

/// Whether lists that are given are for a pipeline like this.
bool Incumbent::fits(const Partition& partition) const {
  if (!options_.schedule->isGiven) return true;
  return !buildSchedule(shapeOf(describePartition(graph_, cluster_, options_, partition, false))).ranks.empty();
}

bool Incumbent::keepIfBetter(Partition partition) {
  spendForEvaluation(partition.stages.size());
  PlanCost cost = model_.costOf(partition);
  if (!cost.feasible || !fits(partition)) return false;
  if (executesBatches(options_)) {
    if (found_ && cost.timeMs > best_.cost.timeMs * (1 + 1e-9)) return false;
    // Beside a step of the search; more where batches have very many actions.
    const std::int64_t actions = 7 * options_.microbatches * static_cast<std::int64_t>(partition.stages.size()) * 6;
    spend(std::max<std::int64_t>(2'000, actions / 16));
    if (!simulateBatches(partition, cost)) return false;
  }
  if (found_ && !isBetter(cost, partition, best_.cost, best_.partition)) return false;
  found_ = true;
  best_.partition = std::move(partition);
  best_.cost = std::move(cost);
  return true;
}

bool Incumbent::offer(const States& states, const std::vector<ChainStage>& chain) {
  if (!keepIfBetter(partitionOf(states, chain))) return false;
  states_ = &states;
  chain_ = chain;
  return true;
}

bool Incumbent::offer(Partition partition) {
  bool better = keepIfBetter(partition);
  if (options_.choosesShards()) {
    // Shards where they help: in all stages, then in fewer.
    const auto attempt = [&] {
      const bool isKept = keepIfBetter(partition);
      better |= isKept;
      return isKept;
    };
    for (PartitionStage& stage : partition.stages) stage.shards = stage.replicas > 1;
    attempt();
    for (PartitionStage& stage : partition.stages) {
      if (isExhausted() || !stage.shards) continue;
      stage.shards = false;
      stage.shards = !attempt();
    }
  }
  if (better) states_ = nullptr;
  return better;
}

bool Incumbent::offer(const States& states, const std::vector<RelaxedStage>& path) {
  if (!options_.stageShards.empty() && path.size() != options_.stageShards.size()) return false;
  std::vector<ChainStage> chain;
  const std::vector<DeviceClass>& classes = machine_.classes();
  std::vector<int> left;
  for (const DeviceClass& deviceClass : classes) left.push_back(static_cast<int>(deviceClass.leaves.size()));
  for (const RelaxedStage& stage : path) {
    ChainStage own{.from = stage.from,
                   .to = stage.to,
                   .replicas = stage.replicas,
                   .form = {.recompute = options_.recompute == RecomputePolicy::all},
                   .ofClass = {},
                   .split = stage.split};
    const int team = graph_.in(stage.split).split.members;
    int missing = stage.replicas;
    for (int& free : left) {
      own.ofClass.push_back(std::min(free / team, missing));
      free -= team * own.ofClass.back();
      missing -= own.ofClass.back();
    }
    if (missing > 0) return false; // teams of one class each have no room
    chain.push_back(std::move(own));
  }
  for (std::size_t s = 0; s < options_.stageShards.size(); ++s) chain[s].form.shards = options_.stageShards[s];
  bool better = offer(states, chain);
  // Shards and recomputation where they help, stage by stage.
  const auto choose = [&](bool StageForm::*choice) {
    for (ChainStage& stage : chain) stage.form.*choice = true;
    better |= offer(states, chain);
    for (ChainStage& stage : chain) {
      stage.form.*choice = false;
      if (offer(states, chain))
        better = true;
      else
        stage.form.*choice = true;
    }
  };
  if (options_.choosesShards()) choose(&StageForm::shards);
  if (options_.recompute == RecomputePolicy::automatic) choose(&StageForm::recompute);
  return better;
}

/// The time of a flushing schedule is what the simulator executes, with and without shared cores. False where that
/// takes too long: replicas that do not divide a batch may repeat themselves after very many minibatches.
bool Incumbent::simulateBatches(const Partition& partition, PlanCost& cost) const {
  Plan plan = describePartition(graph_, cluster_, options_, partition, false);
  const double leastMs = cost.timeMs;
  if (!simulateBatches(plan, cost)) return false;
  constexpr double closeEnough = 1.001;
  if (cost.timeMs <= closeEnough * leastMs) return true;
  PlanCost filled = costWithFilledWarmup(plan, options_);
  if (filled.feasible && simulateBatches(plan, filled) && filled.timeMs * closeEnough < cost.timeMs)
    cost = std::move(filled);
  return true;
}

bool Incumbent::simulateBatches(Plan& plan, PlanCost& cost) const {
  for (std::size_t s = 0; s < plan.stages.size(); ++s) plan.stages[s].warmup = cost.warmup[s];
  pdcrt::Schedule schedule = buildSchedule(shapeOf(plan));
  std::int64_t minibatches = pdcrt::minibatchesInFlight(schedule) + 6 * pdcrt::periodMinibatches(schedule);
  constexpr std::int64_t most = 2'000'000; // of stages; ten seconds
  if (minibatches * static_cast<std::int64_t>(plan.stages.size()) > most) return false;
  cost.timeMs = std::max(cost.timeMs, simulate(plan, schedule, minibatches).timePerMinibatchMs);
  if (plan.cluster.device.cores == 0 && plan.cluster.devices.empty()) { // it is the same
    cost.loadMs = std::max(cost.loadMs, cost.timeMs);
    return true;
  }
  const std::int64_t cores = std::exchange(plan.cluster.device.cores, 0);
  cost.loadMs = std::max(cost.loadMs, simulate(plan, schedule, minibatches).timePerMinibatchMs);
  plan.cluster.device.cores = cores;
  return true;
}
