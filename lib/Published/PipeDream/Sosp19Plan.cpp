// Checks, the course of the search, and the plan that comes out.
//
// 1. Upper bound: data parallelism in every level. Lower bound: all computation on all devices.
// 2. Plans along linear orders of the units (Sosp19Chain.h). On a graph with only one order its bound is the bound.
// 3. If the bounds have not met, the exact decision over all down-sets (Sosp19Rows.h), as far as their number and a
// fixed
//    amount of work allow.
#include "PipeDream/Sosp19.h"

#include "PipeDream/Sosp19Chain.h"
#include "PipeDream/Sosp19Describe.h"
#include "PipeDream/Sosp19Rows.h"

#include "pdc/Plan/PolicyText.h"
#include "pdc/Support/Diagnostics.h"

#include <algorithm>
#include <chrono>
#include <cmath>

using namespace pdc;
using namespace pdc::sosp19;

namespace {

/// Bounds this near are equal: sums are rounded. (The searches forgive less, and so close nearer.)
constexpr double rounding = 1e-10;

class Clock {
public:
  explicit Clock(double limitS) : limitS_(limitS) {}
  bool isOver() const {
    std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start_;
    return limitS_ > 0 && spent.count() > limitS_;
  }

private:
  double limitS_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

class Search {
public:
  Search(const CostGraph& graph, const Cluster& cluster, const PublishedOptions& options)
      : graph_(graph), cluster_(cluster), problem_(graph, cluster, options.costModel), costModel_(options.costModel),
        clock_(options.timeLimitS) {}

  Plan run() {
    startWithDataParallelism();
    if (!problem_.levels.empty()) {
      bool hasOneOrder = isPath(problem_.dag.order());
      for (const std::vector<int>& order : linearOrders(hasOneOrder)) planAlong(order, hasOneOrder);
      if (!isClosed() && !clock_.isOver()) decideOverDownSets();
    } else {
      bounds_.lower = bounds_.upper;
    }
    Plan plan = describe(graph_, cluster_, problem_, best_, costModel_);
    plan.timeMs = bestMs_;
    plan.optimal = isClosed();
    plan.lowerBoundMs = plan.optimal ? plan.timeMs : bounds_.lower;
    return plan;
  }

private:
  bool isClosed() const { return bounds_.isClosed(rounding); }

  double timeOf(const Placement& placement) const {
    return sosp19TimeOf(graph_, cluster_, outline(cluster_, problem_, placement, costModel_));
  }

  /// Keeps the placement if it is better than the best.
  void offer(Placement placement) {
    double time = timeOf(placement);
    if (!best_.empty() && time >= bestMs_) return;
    best_ = std::move(placement);
    bestMs_ = bounds_.upper = time;
  }

  void startWithDataParallelism() {
    PlacedStage stage;
    double compute = 0;
    for (std::size_t unit = 0; unit < problem_.units.size(); ++unit) {
      stage.units.push_back(static_cast<int>(unit));
      compute += problem_.computeMs[unit];
    }
    for (const Level& level : problem_.levels) stage.shares.push_back({0, level.count});
    offer({stage});
    bounds_.lower = std::min(compute / static_cast<double>(problem_.devices), bounds_.upper);
  }

  /// Whether each unit depends on the one before, so that this is the only order.
  bool isPath(const std::vector<int>& order) const {
    for (std::size_t p = 1; p < order.size(); ++p) {
      const std::vector<int>& before = problem_.dag.predecessors(order[p]);
      if (std::find(before.begin(), before.end(), order[p - 1]) == before.end()) return false;
    }
    return true;
  }

  /// The order of the file, and where there are several: branch after branch, and the same from the end.
  std::vector<std::vector<int>> linearOrders(bool hasOneOrder) const {
    std::vector<std::vector<int>> orders = {problem_.dag.order()};
    if (hasOneOrder) return orders;
    orders.push_back(depthFirst(false));
    orders.push_back(depthFirst(true));
    return orders;
  }

  std::vector<int> depthFirst(bool fromTheEnd) const {
    const Dag& dag = problem_.dag;
    auto before = [&](int v) -> const std::vector<int>& {
      return fromTheEnd ? dag.successors(v) : dag.predecessors(v);
    };
    auto after = [&](int v) -> const std::vector<int>& { return fromTheEnd ? dag.predecessors(v) : dag.successors(v); };
    std::vector<std::size_t> missing(dag.size());
    std::vector<int> open, order;
    for (std::size_t v = dag.size(); v-- > 0;) {
      missing[v] = before(static_cast<int>(v)).size();
      if (missing[v] == 0) open.push_back(static_cast<int>(v));
    }
    while (!open.empty()) {
      int v = open.back();
      open.pop_back();
      order.push_back(v);
      for (int next : after(v))
        if (--missing[static_cast<std::size_t>(next)] == 0) open.push_back(next);
    }
    if (fromTheEnd) std::reverse(order.begin(), order.end());
    return order;
  }

  /// `boundsAll`: no plan has another order, so that the order's lower bound holds for all.
  void planAlong(const std::vector<int>& order, bool boundsAll) {
    ChainSearch search(problem_, Chain(problem_, order));
    using Answer = ThresholdRun::Answer;
    ThresholdInterval relaxed = searchThreshold(bounds_, rounding / 4, [&](double tau) -> ThresholdRun {
      if (clock_.isOver()) return {Answer::unknown, 0};
      return {search.mayReach(tau) ? Answer::feasible : Answer::infeasible, tau};
    });
    if (boundsAll) bounds_.lower = relaxed.lower;
    if (relaxed.upper >= bounds_.upper || tryAt(search, relaxed.upper, false, 200'000)) return;
    double start = searchAlive(search, relaxed, boundsAll, search.steps() + 60'000'000);
    if (start >= bounds_.upper || tryAt(search, start, true, 200'000)) return;
    std::int64_t lastStep = search.steps() + 60'000'000;
    auto mayGoOn = [&] { return search.steps() < lastStep && !clock_.isOver(); };
    auto tryBoth = [&](double tau) { return tryAt(search, tau, false, 100'000) || tryAt(search, tau, true, 30'000); };
    // Further and further from the bound, then back by halves.
    double none = start;
    for (double more = 1e-6; start * (1 + more) < bounds_.upper && mayGoOn(); more *= 10) {
      if (tryBoth(start * (1 + more))) break;
      none = start * (1 + more);
    }
    for (int i = 0; i < 12 && bounds_.upper > none * (1 + 1e-6) && mayGoOn(); ++i) {
      double middle = bounds_.upper > 2 * none ? std::sqrt(bounds_.upper * none) : (none + bounds_.upper) / 2;
      if (!tryBoth(middle)) none = middle;
    }
  }

  /// The smallest threshold that the relaxation `alive` allows, as near as can be said.
  double searchAlive(ChainSearch& search, const ThresholdInterval& relaxed, bool boundsAll, std::int64_t lastStep) {
    using Answer = ThresholdRun::Answer;
    auto run = [&](double tau) -> ThresholdRun {
      if (clock_.isOver()) return {Answer::unknown, 0};
      return {search.isAlive(tau, lastStep - search.steps()), tau};
    };
    ThresholdInterval interval{relaxed.lower, relaxed.upper};
    for (double more = 1e-3; interval.upper < bounds_.upper; more *= 4) {
      Answer answer = run(interval.upper).answer;
      if (answer == Answer::unknown) return interval.upper;
      if (answer == Answer::feasible) break;
      interval.lower = interval.upper;
      interval.upper = std::min(relaxed.upper * (1 + more), bounds_.upper);
    }
    interval = searchThreshold(interval, rounding / 4, run);
    if (boundsAll) bounds_.lower = std::max(bounds_.lower, interval.lower);
    return interval.upper;
  }

  bool tryAt(ChainSearch& search, double tau, bool alongAlive, std::int64_t steps) {
    std::optional<Placement> placement = search.place(tau, steps, alongAlive);
    if (placement) offer(std::move(*placement));
    return placement.has_value();
  }

  void decideOverDownSets() {
    // More would take longer to list than the answer is worth: 4 MiB of sets.
    std::size_t limit = std::min<std::size_t>(50'000, (std::size_t{1} << 25) / (problem_.units.size() + 64));
    std::optional<DownSets> downSets = DownSets::all(problem_.dag, limit);
    if (!downSets) return;
    RowSearch rows(problem_, *downSets);
    std::int64_t pairsLeft = 300'000'000;
    bounds_ = searchThreshold(bounds_, rounding, [&](double tau) -> ThresholdRun {
      RowSearch::Result result = rows.run(tau, pairsLeft, [&] { return clock_.isOver(); });
      pairsLeft -= rows.pairs();
      if (result.answer == ThresholdRun::Answer::feasible) {
        double time = timeOf(result.placement);
        offer(std::move(result.placement));
        return {result.answer, time};
      }
      return {result.answer, tau};
    });
  }

  const CostGraph& graph_;
  const Cluster& cluster_;
  Problem problem_;
  std::string costModel_;
  Clock clock_;
  Placement best_;
  double bestMs_ = 0;
  ThresholdInterval bounds_;
};

} // namespace

static Status checkInput(const CostGraph& graph, const Cluster& cluster, const PublishedOptions& options,
                         Diagnostics& diags) {
  const std::string& model = options.costModel;
  auto refuse = [&](const std::string& help) {
    return diags.error({graph.model}).exit(ExitCode::unsupported).help(help);
  };
  if (graph.nodes.empty()) return diags.error({graph.model}) << "expected a graph with at least one node, got none";
  auto levels = std::count_if(cluster.levels.begin(), cluster.levels.end(), [](const auto& l) { return l.count > 1; });
  if (model == "pipedream-2018" && levels > 1)
    return refuse("take --cost-model=sosp19, or one level with the slowest bandwidth")
           << "the cost model 'pipedream-2018' is for one level of devices, got " << levels;
  for (const ClusterLevel& level : cluster.levels)
    if (level.count > 1 && !(level.bandwidthBytesPerS > 0))
      return diags.error({graph.model}) << "expected a bandwidth above 0 between " << level.count << " components, got "
                                        << level.bandwidthBytesPerS;
  for (const DeviceGroup& group : cluster.devices)
    if (group.device.speed != cluster.deviceAt(0).speed)
      return refuse("take --cost-model=pdc, or describe equal devices")
             << "the cost model '" << model << "' is for equal devices, got speeds " << cluster.deviceAt(0).speed
             << " and " << group.device.speed;
  if (options.memoryBytes > 0)
    return refuse("take --cost-model=pdc, which plans within the memory of every device")
           << "the cost model '" << model << "' defines no memory, got a limit of " << options.memoryBytes << " bytes";
  if (!(options.schedule == ScheduleKind()))
    return refuse("take --schedule=1f1b or --cost-model=pdc")
           << "the cost model '" << model << "' is that of the schedule '1f1b', got '" << options.schedule.name()
           << "'";
  if (options.straight || !options.stageReplicas.empty())
    return refuse("leave the replicas to the planner, or take --cost-model=pdc")
           << "the cost model '" << model << "' chooses the replicas so that every device is used, got fixed ones";
  if (options.recompute != RecomputePolicy::none)
    return refuse("take --recompute=none or --cost-model=pdc")
           << "the cost model '" << model << "' does not know recomputation, got '" << nameOf(options.recompute) << "'";
  return success;
}

Expected<Plan> pdc::planSosp19(const CostGraph& graph, const Cluster& cluster, const PublishedOptions& options,
                               Diagnostics& diags) {
  if (!checkInput(graph, cluster, options, diags)) return failure;
  return Search(graph, cluster, options).run();
}
