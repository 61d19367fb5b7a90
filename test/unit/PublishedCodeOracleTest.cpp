// LINK: pdcPublished
// Cost model `pipedream-code` on small random graphs: the planner against every chain of states, every number of
// replicas and every nest, tried one after the other from the definition in Code.h.
#include "PipeDream/Code.h"
#include "PipeDream/CodeSolver.h"

#include "pdc/Plan/CostGraph.h"
#include "pdc/Support/Diagnostics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <random>
#include <set>

using namespace pdc;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// More rounds by hand: PDC_TEST_ROUNDS=20 ./PlannerCodeOracleTest
int rounds(int few) {
  const char* factor = std::getenv("PDC_TEST_ROUNDS");
  return factor ? few * std::max(1, std::atoi(factor)) : few;
}

struct Instance {
  CostGraph graph;
  Cluster cluster;
  PlannerOptions options;
};

/// Sets of nodes are bits of a number here.
class Oracle {
public:
  explicit Oracle(const Instance& instance) : in_(instance), n_(static_cast<int>(instance.graph.nodes.size())) {
    consumers_.assign(n_, 0), ancestors_.assign(n_, 0);
    for (const CostTensor& tensor : in_.graph.tensors)
      for (std::int64_t to : tensor.to) consumers_[tensor.from] |= 1u << to;
    for (int v = 0; v < n_; ++v)
      for (int c = 0; c < n_; ++c)
        if (consumers_[v] >> c & 1) ancestors_[c] |= ancestors_[v] | 1u << v;
    for (const ClusterLevel& level : in_.cluster.levels)
      if (level.count > 1) levels_.push_back(level);
    states_ = {1};
    for (std::size_t i = 0; i < states_.size(); ++i)
      for (int p = 0; p < n_; ++p)
        for (int v = 0; v < n_; ++v) {
          if (!(states_[i] >> p & 1) || !(consumers_[p] >> v & 1)) continue;
          unsigned next = states_[i] | ancestors_[v] | 1u << v;
          if (std::find(states_.begin(), states_.end(), next) == states_.end()) states_.push_back(next);
        }
    for (unsigned state : states_) cut_[state] = cutOf(state);
  }

  double best() { return levels_.empty() ? sum(all()) : bestAt(levels_.size() - 1, 0, all()); }

private:
  unsigned all() const { return (1u << n_) - 1; }

  double sum(unsigned nodes) const {
    double ms = 0;
    for (int v = 0; v < n_; ++v)
      if (nodes >> v & 1)
        ms +=
            (in_.graph.nodes[v].forwardMs + in_.graph.nodes[v].inputGradientMs + in_.graph.nodes[v].weightGradientMs) /
            in_.cluster.device.speed;
    return ms;
  }
  double weights(unsigned nodes) const {
    double bytes = 0;
    for (int v = 0; v < n_; ++v)
      if (nodes >> v & 1) bytes += static_cast<double>(in_.graph.nodes[v].parameterBytes);
    for (const CostSharedParameter& shared : in_.graph.sharedParameters)
      if (nodes >> shared.nodes[0] & 1) bytes += static_cast<double>(shared.bytes);
    return bytes;
  }
  double stash(unsigned nodes) const {
    double bytes = weights(nodes);
    for (int v = 0; v < n_; ++v)
      if (nodes >> v & 1) bytes += static_cast<double>(in_.graph.nodes[v].savedBytes);
    return bytes;
  }
  double activation(int v) const {
    double bytes = 0;
    bool sends = false;
    for (const CostTensor& tensor : in_.graph.tensors)
      if (tensor.from == v) bytes += static_cast<double>(tensor.bytes), sends = true;
    return sends ? bytes : static_cast<double>(in_.graph.nodes[v].savedBytes);
  }
  double cutOf(unsigned state) const {
    unsigned charged = 0;
    for (int a = 0; a < n_; ++a) {
      if (!(state >> a & 1) || (consumers_[a] & state)) continue;
      charged |= 1u << a;
      for (int p = 0; p < n_; ++p)
        if ((ancestors_[a] >> p & 1) && (consumers_[p] & ~(ancestors_[a] | 1u << a))) charged |= 1u << p;
    }
    double bytes = 0;
    for (int v = 0; v < n_; ++v)
      if (charged >> v & 1) bytes += activation(v);
    return bytes;
  }
  bool tears(unsigned state) const {
    std::map<std::int64_t, bool> inside;
    for (int v = 0; v < n_; ++v)
      if (std::int64_t c = in_.graph.nodes[v].colour; c >= 0)
        if (inside.try_emplace(c, state >> v & 1).first->second != (state >> v & 1)) return true;
    return false;
  }

  double bestAt(std::size_t level, unsigned begin, unsigned end) {
    auto [entry, isNew] = known_.try_emplace({level, begin, end}, 0);
    if (!isNew) return entry->second;
    double best = infinity;
    split(level, begin, begin, end, 0, 0, best);
    return known_[{level, begin, end}] = best;
  }

  /// Every way to go on after stages up to `from` that take `used` components and at most `slowest`.
  void split(std::size_t level, unsigned begin, unsigned from, unsigned end, int used, double slowest, double& best) {
    auto count = static_cast<int>(levels_[level].count);
    double bytesPerMs = levels_[level].bandwidthBytesPerS / 1000;
    for (unsigned to : states_) {
      if ((from & ~to) || (to & ~end) || from == to || tears(to)) continue;
      for (int m = 1; used + m <= count && (m == 1 || !in_.options.straight); ++m) {
        double needed = std::ceil(static_cast<double>(count - used - m) / m) * stash(to & ~from);
        if (in_.options.memoryBytes > 0 && needed > static_cast<double>(in_.options.memoryBytes)) continue;
        double inside = level ? bestAt(level - 1, from, to) : sum(to & ~from);
        double sync = 4.0 * (m - 1) * weights(to & ~from) / (bytesPerMs * m);
        if (from == begin && level) sync /= static_cast<double>(levels_[level - 1].count);
        double ms = (inside + sync) / m;
        if (from != begin) ms = std::max(ms, 2 * cut_[from] / (bytesPerMs * m));
        if (from != begin && to != all()) ms = std::max(ms, 2 * cut_[to] / (bytesPerMs * m));
        ms = std::max(ms, slowest);
        if (to == end && used + m == count) best = std::min(best, ms);
        if (to != end && used + m < count) split(level, begin, to, end, used + m, ms, best);
      }
    }
  }

  const Instance& in_;
  int n_;
  std::vector<unsigned> consumers_, ancestors_, states_;
  std::map<unsigned, double> cut_;
  std::vector<ClusterLevel> levels_; ///< innermost first
  std::map<std::tuple<std::size_t, unsigned, unsigned>, double> known_;
};

class Generator {
public:
  /// `free`: half of the nodes take no time and have no weights; no limits, one or two levels.
  explicit Generator(std::uint64_t seed, bool free = false) : free_(free), random_(seed) {}

  Instance next() {
    Instance in;
    do in.graph = graph();
    while (!isConnected(in.graph));
    in.cluster = cluster();
    if (free_) {
      in.cluster.levels.resize(std::min<std::size_t>(in.cluster.levels.size(), 2));
      return in;
    }
    in.options.straight = below(5) == 0;
    if (below(3) == 0) in.options.memoryBytes = 1 + below(400);
    return in;
  }

private:
  std::int64_t below(std::int64_t n) { return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(n)); }

  CostGraph graph() {
    CostGraph graph;
    std::int64_t n = 1 + below(8), density = 2 + below(4), range = below(3) == 0 ? 4 : 1000;
    bool coloured = below(6) == 0 && !free_;
    for (std::int64_t v = 0; v < n; ++v) {
      CostNode node;
      node.name = "node" + std::to_string(v);
      node.forwardMs = static_cast<double>(below(range)) / 10;
      node.inputGradientMs = static_cast<double>(below(range)) / 10;
      node.weightGradientMs = below(3) ? static_cast<double>(below(range)) / 7 : 0;
      node.parameterBytes = below(2) ? below(100) : 0;
      node.savedBytes = below(100);
      if (coloured && below(2)) node.colour = below(3);
      if (free_ && below(2)) {
        node.forwardMs = node.inputGradientMs = node.weightGradientMs = 0;
        node.parameterBytes = 0;
      }
      graph.nodes.push_back(node);
    }
    for (std::int64_t v = 0; v < n; ++v)
      for (std::int64_t tensors = 1 + below(5) / 4; tensors > 0; --tensors) {
        CostTensor tensor{.name = "", .from = v, .to = {}, .bytes = below(200), .hasGradient = true};
        for (std::int64_t to = v + 1; to < n; ++to)
          if (below(density) == 0) tensor.to.push_back(to);
        if (!tensor.to.empty()) graph.tensors.push_back(tensor);
      }
    if (n > 1 && below(8) == 0)
      graph.sharedParameters.push_back({.name = "tied", .nodes = {0, n - 1}, .bytes = below(100)});
    return graph;
  }

  static bool isConnected(const CostGraph& graph) {
    std::set<std::int64_t> reached = {0};
    for (std::size_t before = 0; before != reached.size();) {
      before = reached.size();
      for (const CostTensor& tensor : graph.tensors)
        for (std::int64_t to : tensor.to)
          if (reached.contains(tensor.from) || reached.contains(to)) reached.insert({tensor.from, to});
    }
    return reached.size() == graph.nodes.size();
  }

  Cluster cluster() {
    Cluster cluster;
    cluster.device.speed = below(4) ? 1 : 2;
    const std::int64_t most[] = {6, 4, 3};
    std::int64_t levels = 1 + (below(2) ? below(3) : 0);
    for (std::int64_t level = 0; level < levels; ++level)
      cluster.levels.push_back(
          {.name = "level",
           .count = 1 + below(most[levels - 1]),
           .bandwidthBytesPerS = std::pow(10.0, static_cast<double>(2 + below(5))) * (1 + below(9)),
           .latencyS = 0});
    return cluster;
  }

  bool free_;
  std::mt19937_64 random_;
};

/// 100,000 instances with PDC_TEST_ROUNDS=50.
TEST(PlannerCodeOracle, NoPlanOfASmallGraphIsFaster) {
  Generator generator(20190814);
  int planned = 0, refused = 0, split = 0;
  for (int round = 0; round < rounds(2000); ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    Instance in = generator.next();
    double expected = Oracle(in).best();
    Diagnostics diags(nullptr);
    Expected<Plan> plan = planPipedreamCode(in.graph, in.cluster, in.options, diags);
    ASSERT_EQ(static_cast<bool>(plan), expected < infinity);
    if (!plan) {
      EXPECT_EQ(diags.exitCode(), ExitCode::noPlan);
      ++refused;
      continue;
    }
    ++planned;
    split += plan->stages.size() > 1;
    ASSERT_EQ(pipedreamCodeFaultOf(in.graph, in.cluster, in.options, *plan), "");
    ASSERT_NEAR(plan->timeMs, expected, 1e-11 * expected);
    ASSERT_TRUE(plan->optimal);
    ASSERT_EQ(plan->lowerBoundMs, plan->timeMs);
  }
  // The instances are neither all trivial nor all impossible.
  EXPECT_GT(split, planned / 5);
  EXPECT_GT(refused, planned / 50);
}

/// What graphs of hundreds of thousands of states need (pruning, bounds, levels taken apart), on small ones: as if the
/// exact search could not be given more than a few states.
TEST(PlannerCodeOracle, BoundsHoldHoweverFewStatesTheSearchMayHave) {
  Generator generator(8);
  int proven = 0, all = 0;
  for (int round = 0; round < rounds(2000); ++round) {
    Instance in = generator.next();
    double expected = Oracle(in).best();
    for (std::size_t enough : {1, 3, 8, 30}) {
      SCOPED_TRACE("round " + std::to_string(round) + ", " + std::to_string(enough) + " states");
      CodeSolution solution = CodeSolver(in.graph, in.cluster, in.options, enough).solve();
      ASSERT_LE(solution.lowerBoundMs, expected * (1 + 1e-11));
      ASSERT_GE(solution.timeMs, expected * (1 - 1e-11));
      if (solution.leaves.empty() && expected < std::numeric_limits<double>::infinity()) continue;
      ++all;
      proven += solution.lowerBoundMs >= solution.timeMs;
    }
  }
  EXPECT_GT(proven, all * 3 / 4);
}

/// Nodes that take no time let the solver leave out states. No bound becomes too high, no plan too fast.
TEST(PlannerCodeOracle, LeavesOutStatesOfNodesThatTakeNoTime) {
  Generator generator(77, true);
  int proven = 0, all = 0, fewer = 0;
  for (int round = 0; round < rounds(3000); ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    Instance in = generator.next();
    CodeNodes nodes = CodeNodes::of(in.graph, 1);
    std::size_t states = allStates(nodes, 1000)->size(), kept = allStates(nodes, 1000, true)->size();
    ASSERT_LE(kept, states);
    ASSERT_TRUE(kept == states || canReduce(nodes));
    fewer += kept < states;
    double expected = Oracle(in).best();
    CodeSolution solution = CodeSolver(in.graph, in.cluster, in.options, 1).solve();
    ASSERT_LE(solution.lowerBoundMs, expected * (1 + 1e-11));
    if (solution.leaves.empty()) continue;
    ASSERT_GE(solution.timeMs, expected * (1 - 1e-11));
    ++all;
    proven += solution.lowerBoundMs >= solution.timeMs;
  }
  EXPECT_GT(fewer, rounds(3000) / 10);
  EXPECT_GT(proven, all * 3 / 4);
}

} // namespace
