// From a cost graph to its best plan under the cost model `pdc`:
//
//   Problem     contracts what no plan tears apart
//   States      lists the down-sets between which stages are cut: all of them, if there are not too many
//   StageLoads  bounds what a stage costs, whatever the rest of the plan is
//   SplitLoads  does so for each split of a stage, and says where stages of different splits may meet
//   Relaxation  finds the smallest time over chains of stages that are charged those bounds only: a lower bound of
//   every
//               plan, by passes at fixed times; each passing one yields a plan, which the cost model evaluates
//   PaperLabels does the same under PipeDream's warm-up, which says what is in flight before anything is timed
//   Placement   does the same with the leaves of the stages, for clusters of several levels
//   Improve     finds better plans near good ones
//   Chain/      plans and bounds chains too long for the search
//   Search      is branch and bound over complete plans, when a gap between the two is left, and for ties
//
// Where there are too many down-sets for all pairs, the states are prefixes of several topological orders, plans are
// the best over those, and the lower bound is one that holds for all down-sets (boundOfAll); the gap is printed.
#include "Search/Solver.h"

#include "Chain/ChainBound.h"
#include "Chain/ChainLabels.h"
#include "Chain/PlanChain.h"
#include "Numbers.h"
#include "Search/Improve.h"
#include "Search/PaperLabels.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

using namespace pdc;

/// Whether every replica is one device.
static bool isUndivided(const CostGraph& graph) {
  return graph.splits() == 1 && graph.split.isNone();
}

/// Work over devices, and over cores: no plan is faster, whatever its stages are.
static double boundOfAll(const SolverProblem& problem, const Machine& machine, const PlannerOptions& options,
                         int largestTeam) {
  double workMs = 0, speeds = 0, fastest = 0;
  for (std::size_t v = 0; v < problem.blocks.size(); ++v) {
    const ProblemBlock& block = problem.blocks[v];
    if (problem.leastMs.empty())
      workMs += (options.recompute == RecomputePolicy::all ? 2 : 1) * block.forwardMs + block.backwardMs +
                options.leastUpdateMs(block.updateMs);
    else
      workMs += problem.leastWorkMs[v] + options.leastUpdateMs(problem.leastUpdateMs[v]);
  }
  for (const DeviceClass& deviceClass : machine.classes()) {
    speeds += deviceClass.speed * static_cast<double>(deviceClass.leaves.size());
    fastest = std::max(fastest, deviceClass.speed);
  }
  if (options.straight) speeds = std::min(speeds, fastest * largestTeam * static_cast<double>(problem.blocks.size()));
  if (options.schedule->hasBatches) {
    // Of a batch of m microbatches a device computes ceil(m / R), but updates once.
    for (std::size_t v = 0; v < problem.blocks.size(); ++v)
      workMs -= options.leastUpdateMs(problem.leastMs.empty() ? problem.blocks[v].updateMs : problem.leastUpdateMs[v]);
  }
  return speeds > 0 ? workMs / speeds : 0;
}

static double coresBound(const SolverProblem& problem, const Machine& machine, const PlannerOptions& options) {
  const auto cores = static_cast<double>(machine.allCores());
  if (cores == 0) return 0;
  double workMs = 0, fastest = 0;
  for (std::size_t v = 0; v < problem.blocks.size(); ++v) {
    const ProblemBlock& block = problem.blocks[v];
    const bool isOne = problem.leastMs.empty();
    const double updateMs = options.leastUpdateMs(isOne ? block.updateMs : problem.leastUpdateMs[v]);
    workMs += (isOne ? block.forwardMs + block.backwardMs : problem.leastWorkMs[v]) +
              (options.schedule->hasBatches ? 0 : updateMs);
  }
  for (const DeviceClass& deviceClass : machine.classes()) fastest = std::max(fastest, deviceClass.speed);
  return workMs / fastest / cores;
}

/// All devices on one stage, or as few as are as fast.
static void tryOneStage(const States& states, const StageLoads& loads, const PlannerOptions& options, int devices,
                        int split, Incumbent& incumbent) {
  if (options.stageSplits.size() > 1 || options.stageShards.size() > 1) return;
  int least = 1, most = options.straight ? std::min(devices, 1) : devices;
  if (!options.stageReplicas.empty()) {
    if (options.stageReplicas.size() > 1) return;
    if (options.stageReplicas[0] > 0) least = most = options.stageReplicas[0];
  }
  StageLoads::Stage whole = loads.stage(0, states.last());
  std::vector<std::pair<double, int>> order;
  for (int r = least; r <= most; ++r) order.emplace_back(loads.bound(whole, r), r);
  std::sort(order.begin(), order.end());
  constexpr std::size_t enough = 32;
  for (std::size_t i = 0; i < std::min(enough, order.size()); ++i) {
    if (order[i].first == infinity || order[i].first > incumbent.limitMs() * (1 + 1e-9)) break;
    incumbent.offer(states, std::vector<RelaxedStage>{{0, states.last(), order[i].second, split}});
  }
}

namespace {

/// The best plan over the chains of one family of states, and what it proves.
class Pass {
public:
  Pass(const CostGraph& graph, const PlannerOptions& options, const std::vector<SolverProblem>& problems,
       const Machine& machine, States states, double low, Incumbent& incumbent, bool isRough = false)
      : graph_(graph), options_(options), problems_(problems), machine_(machine), states_(std::move(states)),
        loads_(graph, problems_, states_, machine_, options),
        devices_(static_cast<int>(std::min<std::int64_t>(machine.components(0), 1 << 20))),
        relaxation_(states_, loads_, options, devices_), incumbent_(incumbent),
        placed_(Placement::matters(machine) && isUndivided(graph)),
        placement_(states_, loads_.of(0), options, machine_, relaxation_), low_(low), isRough_(isRough) {}
  ~Pass() { incumbent_.forget(states_); }

  /// Whether the best plan is proven to have the smallest time. If the states are incomplete and plans that are better
  /// than the best could have others, only a bound of all plans proves it.
  bool run() {
    incumbent_.allow(effort);
    for (int split = 0; split < loads_.count(); ++split)
      if (loads_.isOffered(split, 0))
        tryOneStage(states_, loads_.of(split), options_, devices_ / loads_.team(split), split, incumbent_);
    // Without a limit on time: a plan, or the proof that there is none.
    if (!relaxation_.label(std::numeric_limits<double>::max())) return states_.isComplete();
    followChain();
    if (!followed_ || !incumbent_.found()) {
      relaxEachSplit();
      relax(1);
    }
    place();
    if (!isProven() && options_.stageReplicas.empty() && options_.stageShards.empty() && isUndivided(graph_)) {
      for (int level = 1; level < machine_.levels(); ++level)
        if (machine_.inside(level) > 1 && machine_.inside(level) < devices_ && machine_.classes().size() == 1)
          relax(static_cast<int>(machine_.inside(level)));
    }
    improve();
    Search search(graph_, options_, states_, loads_, machine_, relaxation_, placement_, placed_, incumbent_);
    bool proven = isProven();
    if (!proven && isSearchable()) {
      incumbent_.allow(problems_[0].blocks.size() <= fewBlocks ? 1000 * effort : isThorough() ? effort : effort / 20);
      proven = search.run(false) && states_.isComplete();
      if (!proven) improve();
    }
    if (incumbent_.found() && isSearchable()) {
      incumbent_.allow(problems_[0].blocks.size() <= fewBlocks ? 100 * effort : isThorough() ? effort : effort / 20);
      search.run(true);
    }
    for (int round = 0;
         round < 10 && !isRough_ && !states_.isComplete() && !incumbent_.isLate() && incumbent_.found() && !isProven();
         ++round) {
      double before = incumbent_.best().cost.loadMs;
      shiftCuts(graph_, problems_, options_, machine_, 20, incumbent_);
      if (incumbent_.best().cost.loadMs >= before) break;
    }
    return proven;
  }

  double lowerBoundMs() const { return low_; }
  bool isComplete() const { return states_.isComplete(); }
  bool hasFollowed() const { return followed_; }

private:
  bool isProven() const { return incumbent_.found() && incumbent_.limitMs() * (1 - 1e-9) <= low_; }

  void improve() {
    if (isProven() || !incumbent_.found()) return;
    incumbent_.allow(isThorough() ? effort / 2 : effort / 20);
    climb(states_, loads_, options_, machine_, incumbent_);
  }

  /// Labels of a chain have found what a long search would.
  bool isThorough() const { return !followed_ || problems_[0].blocks.size() <= 2 * fewBlocks; }

  bool isSearchable() const { return static_cast<double>(states_.size()) * devices_ < 4e5; }

  /// Good plans of one split for all stages, where there are several.
  void relaxEachSplit() {
    if (loads_.count() == 1 || !options_.stageSplits.empty()) return;
    for (int split = 0; split < loads_.count(); ++split) {
      relaxation_.restrictTo(split);
      if (!relaxation_.label(std::numeric_limits<double>::max())) continue;
      const std::vector<RelaxedStage> first = relaxation_.path();
      incumbent_.offer(states_, first);
      constexpr int few = 12;
      relaxation_.smallestTime(low_, std::max(low_, relaxation_.timeOf(first)), few,
                               [&](const std::vector<RelaxedStage>& path) {
                                 incumbent_.offer(states_, path);
                                 return !incumbent_.isLate();
                               });
    }
    relaxation_.restrictTo(-1);
  }

  /// The relaxed problem with replicas in multiples of `unit`, each of its plans evaluated.
  void relax(int unit) {
    loads_.align(unit);
    if (relaxation_.label(std::numeric_limits<double>::max())) {
      std::vector<RelaxedStage> first = relaxation_.path();
      incumbent_.offer(states_, first);
      double high = std::max(low_, relaxation_.timeOf(first));
      if (unit == 1 && incumbent_.found()) high = std::max(low_, std::min(high, incumbent_.best().cost.loadMs));
      int passes = states_.size() > 600 ? 16 : 60;
      double least = relaxation_.smallestTime(low_, high, passes, [&](const std::vector<RelaxedStage>& path) {
        incumbent_.offer(states_, path);
        return !incumbent_.isLate();
      });
      if (unit == 1 && states_.isComplete()) low_ = std::max(low_, least);
    }
    loads_.align(1);
  }

  void place() {
    if (!placed_ || isProven()) return;
    double limitMs = incumbent_.limitMs() * (1 + 1e-8), best = infinity;
    if (!placement_.fill(limitMs, [&] { return incumbent_.isLate(); })) return;
    for (int used = 1; used <= devices_; ++used) {
      double timeMs = placement_.best(states_.last(), used);
      best = std::min(best, timeMs);
      if (timeMs < incumbent_.limitMs() && options_.stageReplicas.empty())
        incumbent_.offer(states_, placement_.path(used));
    }
    if (states_.isComplete()) low_ = std::max(low_, std::min(best, limitMs));
  }

  /// What minibatches in flight ask of stages in front of each other, in chains, and under PipeDream's warm-up.
  void followChain() {
    if (PaperLabels::apply(options_, machine_) && states_.isComplete()) {
      followed_ = true;
      PaperLabels labels(states_, loads_, options_, machine_, relaxation_);
      searchPaper(labels, loads_, low_, states_, incumbent_);
      return;
    }
    if (isUndivided(graph_) || !ChainLabels::apply(problems_, states_, options_, machine_)) return;
    followed_ = true;
    ChainLabels labels(graph_, problems_, states_, loads_, options_, machine_, relaxation_);
    if (searchChain(labels, loads_.count(), low_, incumbent_)) low_ = std::max(low_, incumbent_.limitMs());
  }

  static constexpr std::int64_t effort = 500'000;
  static constexpr std::size_t fewBlocks = 8; ///< are searched to the end, however long that takes
  const CostGraph& graph_;
  const PlannerOptions& options_;
  const std::vector<SolverProblem>& problems_; ///< of each split
  const Machine& machine_;
  States states_;
  SplitLoads loads_;
  int devices_;
  Relaxation relaxation_;
  Incumbent& incumbent_;
  bool placed_; ///< whether places say more than numbers of devices do
  Placement placement_;
  double low_;            ///< proven for all plans, or for those better than the best one before
  bool isRough_;          ///< others look for better plans
  bool followed_ = false; ///< whether followChain() has looked for plans
};

} // namespace

/// With a good plan, few of all down-sets can be on a better one, or on one as good. Where they are few enough, the
/// search over them is exact. Else the same is done for smaller times, as long as they are few: where the relaxed
/// problem fails, the time is a lower bound of all plans. Raises `low`, and returns whether the best plan is proven.
static bool searchWorthwhile(const CostGraph& graph, const PlannerOptions& options,
                             const std::vector<SolverProblem>& problems, const Machine& machine, double& low,
                             Incumbent& incumbent) {
  const SolverProblem& problem = problems[0];
  constexpr std::size_t mostListed = 300'000, mostBlocks = 100'000'000;
  const std::size_t most = std::min<std::size_t>(2'000, 1'000'000 / problem.blocks.size());
  std::optional<DownSets> all = DownSets::all(problem.dag, std::min(mostListed, mostBlocks / problem.blocks.size()));
  if (!all) return false;
  double speed = 0;
  for (const DeviceClass& deviceClass : machine.classes()) speed = std::max(speed, deviceClass.speed);
  auto devices = static_cast<int>(std::min<std::int64_t>(machine.components(0), 1 << 20));
  auto among = [&](double limitMs) {
    return States::worthwhile(problem, *all, limitMs, devices, speed, machine.bytesPerMs(0), most);
  };
  double high = incumbent.limitMs();
  for (int attempt = 0; attempt < 6 && low < high * (1 - 1e-9) && !incumbent.isLate(); ++attempt) {
    bool isBest = high >= incumbent.limitMs();
    std::optional<std::vector<NodeSet>> sets = among(high * (1 + 1e-8));
    if (!sets) {
      high = low + (high - low) / 2;
      continue;
    }
    States states(problem, std::move(*sets), true);
    if (isBest) {
      Pass pass(graph, options, problems, machine, std::move(states), low, incumbent);
      bool proven = pass.run();
      low = std::max(low, pass.lowerBoundMs());
      return proven;
    }
    SplitLoads loads(graph, problems, states, machine, options);
    Relaxation relaxation(states, loads, options, devices);
    if (relaxation.label(high)) {
      incumbent.offer(states, relaxation.path());
      incumbent.forget(states);
    } else {
      low = high;
    }
    high = incumbent.limitMs();
    if (low < high / 2) return false;
    high = low + (high - low) / 2;
  }
  return false;
}

/// A search that ends before it has seen everything may have missed the best plan without replicas, which is found in
/// a search of its own: nobody shall find a better plan by forbidding some.
static void offerStraight(const CostGraph& graph, const Cluster& cluster, const PlannerOptions& options,
                          Incumbent& incumbent) {
  if (options.straight || !options.stageReplicas.empty() || incumbent.isLate()) return;
  PlannerOptions straight = options;
  straight.straight = true;
  if (std::optional<Solution> solution = solve(graph, cluster, straight)) incumbent.offer(solution->partition);
}

/// The best plan of each split alone, for which more is known: nobody shall find a better plan by offering fewer.
static void offerEachSplit(const CostGraph& graph, const Cluster& cluster, PlannerOptions options,
                           Incumbent& incumbent) {
  if (graph.splits() == 1 || !options.stageSplits.empty()) return;
  options.timeLimitS /= graph.splits() + 1;
  for (int split = 0; split < graph.splits(); ++split) {
    CostGraph own = graph.in(split);
    own.divided.clear();
    std::optional<Solution> solution = solve(own, cluster, options);
    if (!solution) continue;
    for (PartitionStage& stage : solution->partition.stages) stage.split = split;
    incumbent.offer(solution->partition);
  }
}

/// The best plans with shards in all stages, and in none: nobody shall find a better plan by leaving less of a choice.
static void offerEachPolicy(const CostGraph& graph, const Cluster& cluster, PlannerOptions options,
                            Incumbent& incumbent) {
  if (!options.choosesShards() || incumbent.isLate()) return;
  constexpr std::array policies = {ShardPolicy::none, ShardPolicy::optimizer};
  options.timeLimitS /= static_cast<double>(policies.size() + 1);
  for (const ShardPolicy policy : policies) {
    options.shard = policy;
    std::optional<Solution> solution = solve(graph, cluster, options);
    if (!solution) continue;
    for (PartitionStage& stage : solution->partition.stages)
      stage.shards = policy == ShardPolicy::optimizer && stage.replicas > 1;
    incumbent.offer(solution->partition);
  }
}

std::optional<Solution> pdc::solve(const CostGraph& graph, const Cluster& cluster, const PlannerOptions& options) {
  constexpr std::size_t mostStates = 1'500, fewStates = 500, manyBlocks = 2'000;
  const std::vector<SolverProblem> problems = SolverProblem::ofSplits(graph);
  const SolverProblem& problem = problems[0];
  const bool isOne = isUndivided(graph);
  Machine machine(cluster, options);
  Incumbent incumbent(graph, cluster, options, problem, machine);
  int largestTeam = 1;
  for (int split = 0; split < graph.splits(); ++split)
    largestTeam = std::max(largestTeam, graph.in(split).split.members);
  double low = boundOfAll(problem, machine, options, largestTeam);
  if (isOne) low = std::max(low, chainMemoryBound(problem, options, machine));
  double coresMs = coresBound(problem, machine, options);
  bool proven = false, hasFollowed = false;
  {
    std::size_t most = problem.blocks.size() > manyBlocks ? fewStates : mostStates;
    bool isLongChain = isOne && problem.blocks.size() > manyBlocks && isBoundable(problem, options, machine);
    Pass first(graph, options, problems, machine, States(problem, most), low, incumbent, isLongChain);
    proven = first.run();
    low = first.lowerBoundMs();
    hasFollowed = first.hasFollowed();
    if (first.isComplete() || !incumbent.found()) proven = proven && first.isComplete();
    if (!incumbent.found()) return std::nullopt;
    if (!proven && !first.isComplete() && isOne && options.stageShards.empty())
      planChain(problem, options, machine, low, incumbent);
    if (!proven && !first.isComplete() && !isLongChain && low < incumbent.limitMs() * (1 - 1e-9)) {
      double bestMs = incumbent.limitMs();
      proven = searchWorthwhile(graph, options, problems, machine, low, incumbent);
      low = std::min(low, bestMs);
    }
  }
  constexpr std::size_t fewBlocks = 16; // else the labels of its chain have looked at each split
  if (!proven && low < incumbent.limitMs() * (1 - 1e-9) && (!hasFollowed || problem.blocks.size() <= fewBlocks))
    offerEachSplit(graph, cluster, options, incumbent);
  const bool hasEnded = proven || low >= incumbent.limitMs() * (1 - 1e-9);
  if (!hasEnded) offerEachPolicy(graph, cluster, options, incumbent);
  if (!hasEnded && problem.blocks.size() <= manyBlocks) offerStraight(graph, cluster, options, incumbent);
  Solution solution = incumbent.best();
  solution.lowerBoundMs = std::min(std::max(low, coresMs), solution.cost.timeMs);
  if (proven) solution.lowerBoundMs = solution.cost.timeMs;
  solution.likely = incumbent.likely();
  return solution;
}
