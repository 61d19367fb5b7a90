// LINK: pdcPlanner
// Labels of chains that know minibatches in flight, against trying every plan: the best plan has a label at its time.
#include "Chain/ChainLabels.h"
#include "PlannerPdcChecks.h"
#include "PlannerPdcSplits.h"
#include "Rounds.h"

#include <gtest/gtest.h>

using namespace pdc;

namespace {

/// The same nodes in a row, all gradients of which come back; some tensors have a further user.
void makeChain(CostGraph& graph, RandomInstances& random) {
  const auto nodes = static_cast<std::int64_t>(graph.nodes.size());
  graph.tensors.clear();
  for (std::int64_t v = 0; v + 1 < nodes; ++v) {
    CostTensor tensor{.name = "t" + std::to_string(v), .from = v, .to = {v + 1}, .bytes = random.between(0, 8) * 100};
    if (v + 2 < nodes && random.between(0, 3) == 0) tensor.to.push_back(random.between(v + 2, nodes - 1));
    graph.tensors.push_back(tensor);
  }
}

/// The labels of one instance, with what they refer to.
struct Labelled {
  explicit Labelled(const PlannerInstance& instance)
      : machine(instance.cluster, instance.options), problems(SolverProblem::ofSplits(instance.graph)),
        states(problems[0], 1500), loads(instance.graph, problems, states, machine, instance.options),
        relaxation(states, loads, instance.options, static_cast<int>(machine.components(0))),
        apply(ChainLabels::apply(problems, states, instance.options, machine)) {
    if (apply) labels.emplace(instance.graph, problems, states, loads, instance.options, machine, relaxation);
  }

  Machine machine;
  std::vector<SolverProblem> problems;
  States states;
  SplitLoads loads;
  Relaxation relaxation;
  bool apply = false;
  std::optional<ChainLabels> labels;
};

struct Counts {
  int bounded = 0, close = 0, solved = 0;
};

/// `instance` is a chain with splits. Tries it with memory in which its best plan without a limit does not fit, too.
void compare(PlannerInstance& instance, RandomInstances& random, Counts& counts) {
  std::optional<PlanCost> best = bruteForce(instance.graph, instance.cluster, instance.options);
  if (best && random.between(0, 3) > 0) {
    setMemory(instance.cluster, best->peakMemoryBytes * random.between(40, 99) / 100);
    best = bruteForce(instance.graph, instance.cluster, instance.options);
  }
  const std::string where = toLine(instance, std::nullopt) + "\n" + toJson(instance.graph);
  Labelled labelled(instance);
  if (!best || !labelled.apply) return;
  ++counts.bounded;
  ASSERT_TRUE(labelled.labels->label(best->timeMs * (1 + 1e-9), ChainLabels::Of::allPlans)) << where;
  counts.close += !labelled.labels->label(best->timeMs * 0.97, ChainLabels::Of::allPlans);
  const std::optional<Solution> found = solve(instance.graph, instance.cluster, instance.options);
  ASSERT_TRUE(found) << where;
  EXPECT_LE(found->lowerBoundMs, best->timeMs * (1 + 2e-9)) << where;
  counts.solved += found->cost.timeMs <= best->timeMs * (1 + 2e-9);
}

} // namespace

TEST(PlannerPdcLabels, NoPlanIsFasterThanTheLabelsSay) {
  RandomInstances random(23);
  RandomSplits splits(23);
  Counts counts;
  const int count = rounds(150);
  for (int round = 0; round < count;) {
    PlannerInstance instance = random.next();
    if (instance.graph.nodes.size() > 6 || instance.graph.nodes.size() < 2 || !instance.cluster.devices.empty())
      continue;
    ++round;
    makeChain(instance.graph, random);
    instance.options.warmupPolicy = WarmupPolicy::hide;
    splits.divide(instance.graph, 2);
    compare(instance, random, counts);
    if (HasFailure()) return;
  }
  EXPECT_GT(counts.bounded, count / 2);
  EXPECT_GT(counts.close, counts.bounded / 2);
  EXPECT_EQ(counts.solved, counts.bounded);
}

// The oracle executes every plan of a schedule with batches.
TEST(PlannerPdcLabels, NoBatchIsFasterThanTheLabelsSay) {
  RandomInstances random(29);
  RandomSplits splits(29);
  Counts counts;
  const int count = rounds(60);
  for (int round = 0; round < count;) {
    PlannerInstance instance = random.next();
    if (instance.graph.nodes.size() > 4 || instance.graph.nodes.size() < 2 || !instance.cluster.devices.empty() ||
        instance.cluster.deviceCount() > 4)
      continue;
    makeChain(instance.graph, random);
    splits.divide(instance.graph, 2);
    instance.cluster.device.cores = 0; // ranks that share some wait in an order that only the simulator knows
    const ShardPolicy shard = instance.options.shard;
    instance.options = {};
    instance.options.shard = shard;
    instance.options.schedule = round % 3 > 0 ? "1f1b-flush" : "gpipe";
    instance.options.microbatches = random.between(1, 6);
    ++round;
    compare(instance, random, counts);
    if (HasFailure()) return;
  }
  EXPECT_GT(counts.bounded, count / 4);
  EXPECT_GT(counts.close, counts.bounded / 4);
}

/// Two nodes in a row, in two splits: alone, and on teams of two that take as long, so that nothing is gained by them.
static PlannerInstance twoNodes(double firstMs, double secondMs, int microbatches) {
  PlannerInstance instance;
  for (const double ms : {firstMs, secondMs}) {
    CostNode node;
    node.name = "n" + std::to_string(instance.graph.nodes.size());
    node.forwardMs = node.inputGradientMs = node.weightGradientMs = ms;
    instance.graph.nodes.push_back(node);
  }
  instance.graph.tensors.push_back({.name = "t", .from = 0, .to = {1}, .bytes = 0});
  CostGraph pair = instance.graph;
  pair.split = {.members = 2};
  instance.graph.divided = {pair};
  instance.cluster.levels = {{"device", 4, 1e9, 0}};
  setMemory(instance.cluster, 1'000'000);
  instance.options.schedule = "1f1b-flush";
  instance.options.microbatches = microbatches;
  return instance;
}

// Replicas of the second stage are not done at once: the first stage computes their gradients one after the other.
TEST(PlannerPdcLabels, ABatchEndsWithWhatReplicasStagger) {
  int exact = 0, all = 0;
  for (const double secondMs : {2, 3, 4, 5, 6})
    for (const int microbatches : {4, 6, 8, 9}) {
      PlannerInstance instance = twoNodes(1, secondMs, microbatches);
      const std::optional<PlanCost> best = bruteForce(instance.graph, instance.cluster, instance.options);
      ASSERT_TRUE(best);
      Labelled labelled(instance);
      ASSERT_TRUE(labelled.apply);
      EXPECT_TRUE(labelled.labels->label(best->timeMs * (1 + 1e-9), ChainLabels::Of::allPlans));
      exact += !labelled.labels->label(best->timeMs * (1 - 1e-6), ChainLabels::Of::allPlans);
      ++all;
    }
  EXPECT_EQ(exact, all);
}

// The second node gains nothing by teams, so splits mix; what members of the first have parts of is gathered.
TEST(PlannerPdcLabels, SplitsDoNotMixForFree) {
  PlannerInstance instance = twoNodes(1, 0.6, 1);
  instance.options.schedule = "1f1b";
  instance.options.straight = true;
  instance.cluster.levels[0].count = 3;
  instance.cluster.levels[0].bandwidthBytesPerS = 1e6;
  instance.graph.tensors[0].bytes = 800;
  CostGraph& pair = instance.graph.divided[0];
  for (double CostNode::*time : {&CostNode::forwardMs, &CostNode::inputGradientMs, &CostNode::weightGradientMs})
    pair.nodes[0].*time /= 2;
  pair.tensors[0].bytes = 400;
  pair.tensors[0].isPart = true;
  const std::optional<PlanCost> best = bruteForce(instance.graph, instance.cluster, instance.options);
  ASSERT_TRUE(best);
  EXPECT_NEAR(best->timeMs, 1.9, 1e-9); // 1.5 of a member of the first stage, and 0.4
  Labelled labelled(instance);
  ASSERT_TRUE(labelled.apply);
  EXPECT_TRUE(labelled.labels->label(best->timeMs * (1 + 1e-9), ChainLabels::Of::allPlans));
  EXPECT_FALSE(labelled.labels->label(best->timeMs * (1 - 1e-6), ChainLabels::Of::allPlans));
}
