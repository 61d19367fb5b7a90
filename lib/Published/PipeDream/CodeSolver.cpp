#include "PipeDream/CodeSolver.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

using namespace pdc;

static constexpr double infinity = std::numeric_limits<double>::infinity();

CodeSolver::CodeSolver(const CostGraph& graph, const Cluster& cluster, const PlannerOptions& options,
                       std::size_t enough)
    : nodes_(CodeNodes::of(graph, cluster.device.speed)), timeLimitS_(options.timeLimitS), enough_(enough) {
  constexpr double mostSeconds = 7; // of states, for their memory
  seconds_ = std::max(1.0, options.timeLimitS);
  most_ = static_cast<std::size_t>(static_cast<double>(most_) * std::min(seconds_, mostSeconds));
  limits_.straight = options.straight;
  if (options.memoryBytes > 0) limits_.stashBytes = static_cast<double>(options.memoryBytes);
  for (const ClusterLevel& level : cluster.levels)
    if (level.count > 1)
      levels_.push_back({.count = static_cast<int>(level.count),
                         .bytesPerMs = level.bandwidthBytesPerS / 1000,
                         .inner = levels_.empty() ? 1 : levels_.back().count});
}

bool CodeSolver::expired() const {
  std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start_;
  return timeLimitS_ > 0 && spent.count() > timeLimitS_;
}

void CodeSolver::trace(const CodeStates& states, const Levels& levels, const std::vector<CodeTimes>& times,
                       std::size_t level, int begin, std::size_t end, double timeMs, std::vector<PlanNest>& nest,
                       std::vector<CodeLeaf>& leaves) const {
  CodeSearch search(states, levels[level], limits_, level == 0 ? nullptr : &times[level - 1], begin, end);
  int number = 0, from = begin;
  for (const CodeCut& cut : search.trace(timeMs)) {
    nest.push_back({.stage = number++, .replicas = cut.replicas});
    if (level == 0) {
      auto set = states.set(cut.end);
      leaves.push_back({{set.begin(), set.end()}, nest});
    } else {
      double inside = times[level - 1][static_cast<std::size_t>(from + 1) * states.size() + cut.end];
      trace(states, levels, times, level - 1, from, cut.end, inside, nest, leaves);
    }
    nest.pop_back();
    from = static_cast<int>(cut.end);
  }
}

CodeSolution CodeSolver::solveOn(const CodeStates& states, const Levels& levels, double lower, double upper) const {
  CodeSolution solution;
  std::size_t last = states.size() - 1;
  if (levels.empty()) {
    solution.lowerBoundMs = solution.timeMs = states.timeMs[last];
    solution.leaves.push_back({{states.set(last).begin(), states.set(last).end()}, {}});
    return solution;
  }
  std::vector<CodeTimes> times;
  for (std::size_t level = 0; level + 1 < levels.size(); ++level)
    times.push_back(timesOfIntervals(states, levels[level], limits_, level ? &times[level - 1] : nullptr));
  CodeSearch search(states, levels.back(), limits_, times.empty() ? nullptr : &times.back(), -1, last);
  CodeSearch::Answer answer = search.best(lower, upper, [&] { return expired(); });
  solution.lowerBoundMs = answer.lowerBoundMs;
  if (answer.timeMs == infinity) return solution;
  std::vector<PlanNest> nest;
  trace(states, levels, times, levels.size() - 1, -1, last, answer.timeMs, nest, solution.leaves);
  solution.timeMs = answer.timeMs;
  return solution;
}

CodeSolution CodeSolver::narrow(const CodeStates& states, const Levels& levels, CodeSolution known) const {
  if (states.size() <= enough(levels) / 10) return solveOn(states, levels, known.lowerBoundMs, infinity);
  // The plan that is known is found again, though the nodes' times were added up in another order.
  double upper = known.timeMs * (1 + 1e-12), lower = known.lowerBoundMs, grain = 1e-3;
  double tried = upper < infinity ? upper : std::max(lower, 1e-6) * (1 + grain);
  for (int round = 0; round < 100 && !expired(); ++round) {
    bool isClose = upper - lower < 1e-4 * upper &&
                   states.size() <= 10 * enough(levels); // the exact search has few thresholds to try
    std::size_t limit = isClose ? 3 * enough(levels) : enough(levels);
    std::vector<std::size_t> passed;
    if (tried < infinity)
      passed = statesOfFastPlans(states, levels, limits_.straight, tried, limit);
    else
      for (std::size_t s = 0; s < states.size(); ++s) passed.push_back(s);
    if (passed.empty()) {
      lower = std::max(lower, tried);
    } else if (passed.size() <= limit) {
      CodeSolution better = solveOn(states.select(passed), levels, lower, tried);
      if (!better.leaves.empty() || better.lowerBoundMs == infinity) return better;
      lower = std::max(lower, better.lowerBoundMs);
    } else {
      if (tried == infinity) break;
      upper = tried; // too many: look for a bound, or for a plan, below
    }
    known.lowerBoundMs = std::min(lower, known.timeMs);
    if (upper == infinity) {
      grain *= 8;
      tried = grain < 1e9 && tried < infinity ? std::max(lower, 1e-6) * (1 + grain) : infinity;
    } else {
      if (upper - lower < 1e-6 * upper) break;
      tried = lower + (upper - lower) / 2;
    }
  }
  return known;
}

CodeSolution CodeSolver::takeApart(const CodeStates& states, CodeSolution known) const {
  // The computation is shared by all devices inside at best.
  CodeStates shared = states;
  for (double& ms : shared.timeMs) ms /= levels_[0].count;
  double upper = known.timeMs * (1 + 1e-12);
  std::vector<std::size_t> passed;
  if (upper < infinity) passed = statesOfFastPlans(shared, {levels_[1]}, limits_.straight, upper, enough(levels_));
  if (passed.empty() || passed.size() > 3 * enough(levels_)) return known;
  CodeStates outer = states.select(passed);
  std::size_t n = outer.size();
  CodeTimes times((n + 1) * n, infinity);
  for (int from = -1; from < static_cast<int>(n); ++from)
    for (auto to = static_cast<std::size_t>(from + 1); to < n; ++to)
      if (from < 0 || outer.includes(to, static_cast<std::size_t>(from)))
        times[static_cast<std::size_t>(from + 1) * n + to] =
            computeMs(outer, from, to) / levels_[0].count * (1 - 1e-12);
  std::map<std::pair<int, std::size_t>, CodeSolution> solved;
  for (int round = 0; round < 40 && !expired(); ++round) {
    CodeSearch search(outer, levels_[1], limits_, &times, -1, n - 1);
    CodeSearch::Answer answer = search.best(known.lowerBoundMs, upper, [&] { return expired(); });
    known.lowerBoundMs = std::min(answer.lowerBoundMs, known.timeMs);
    if (answer.timeMs == infinity || answer.lowerBoundMs < answer.timeMs) return known;
    CodeSolution better{.lowerBoundMs = answer.lowerBoundMs, .timeMs = answer.timeMs, .leaves = {}};
    bool isExact = true;
    int from = -1, number = 0;
    for (const CodeCut& cut : search.trace(answer.timeMs)) {
      double& ms = times[static_cast<std::size_t>(from + 1) * n + cut.end];
      auto [inside, isNew] = solved.try_emplace({from, cut.end});
      if (isNew) {
        CodeSolution bound{.lowerBoundMs = ms, .timeMs = infinity, .leaves = {}};
        int begin = from < 0 ? -1 : static_cast<int>(passed[static_cast<std::size_t>(from)]);
        inside->second = narrow(states.interval(begin, passed[cut.end]), {levels_[0]}, bound);
        isExact = false;
        ms = inside->second.timeMs;
        if (inside->second.lowerBoundMs < ms) return known; // neither solved nor impossible
      }
      for (CodeLeaf leaf : inside->second.leaves) {
        leaf.nest.insert(leaf.nest.begin(), {.stage = number, .replicas = cut.replicas});
        better.leaves.push_back(std::move(leaf));
      }
      ++number;
      from = static_cast<int>(cut.end);
    }
    if (isExact) return better;
  }
  return known;
}

static std::vector<CodeLeaf> leavesOf(const CodeStates& states, const std::vector<CodeOuterStage>& stages,
                                      bool isNested) {
  std::vector<CodeLeaf> leaves;
  for (std::size_t outer = 0; outer < stages.size(); ++outer)
    for (std::size_t inner = 0; inner < stages[outer].inside.size(); ++inner) {
      const CodeCut& cut = stages[outer].inside[inner];
      auto set = states.set(cut.end);
      CodeLeaf leaf{{set.begin(), set.end()}, {}};
      if (isNested) leaf.nest.push_back({.stage = static_cast<int>(outer), .replicas = stages[outer].replicas});
      leaf.nest.push_back({.stage = static_cast<int>(inner), .replicas = cut.replicas});
      leaves.push_back(std::move(leaf));
    }
  return leaves;
}

CodeSolution CodeSolver::bracket(CodeStates states, CodeSolution known, bool goesOn, Work& left) const {
  constexpr double close = 1e-11; // sums of the same numbers in different order
  double devices = 1;
  for (const CodeLevel& level : levels_) devices *= level.count;
  double lower = known.lowerBoundMs;
  double upper = known.timeMs; // of what may be faster than is known, or what cannot be judged
  for (int round = 0; lower < upper * (1 - close) && !expired(); ++round) {
    double pass = static_cast<double>(states.size()) * (10 + devices);
    if (left.passes < pass || left.looks == 0) break;
    left.passes -= pass;
    // Mostly a good plan that is close to the bound is the best one, and one question proves it.
    bool isGood = upper == known.timeMs && upper < 1.02 * lower;
    double timeMs = isGood && round % 3 == 0 ? upper * (1 - close) : lower + (upper - lower) / 2;
    CodeFastStates fast = fastStates(states, levels_, false, timeMs);
    CodeReach::Answer answer{.kind = CodeReach::Answer::Kind::none};
    std::size_t some = std::min(left.looks, Work().looks / 4), before = some;
    if (!fast.states.empty()) answer = CodeReach(states, levels_).plan(timeMs, fast, some);
    left.looks -= before - some;
    if (some == 0) { // a plan may be among fewer states; that none is among them proves nothing
      some = Work().looks / 20;
      answer = CodeReach(states, levels_).plan(timeMs, fast.sample(states, 4000), some);
      if (answer.kind == CodeReach::Answer::Kind::none) answer.kind = CodeReach::Answer::Kind::unknown;
    }
    if (answer.kind == CodeReach::Answer::Kind::none) {
      lower = timeMs;
      continue;
    }
    if (!answer.stages.empty() && answer.timeMs < known.timeMs) {
      known.timeMs = answer.timeMs;
      known.leaves = leavesOf(states, answer.stages, levels_.size() > 1);
    }
    bool isFound = answer.kind == CodeReach::Answer::Kind::found;
    upper = isFound ? std::min(upper, known.timeMs) : timeMs;
    if (!isFound && (!goesOn || upper - lower < 1e-3 * upper)) break;
    states = states.select(std::move(fast.states)); // a faster plan uses no others
  }
  known.lowerBoundMs = lower >= known.timeMs * (1 - close) ? known.timeMs : lower;
  return known;
}

CodeStates CodeSolver::fewStates(std::size_t most) const {
  if (std::optional<CodeStates> all = allStates(nodes_, most)) return all->select(wholeStates(nodes_, *all));
  CodeStates simple = simpleStates(nodes_);
  if (simple.size() <= most) return simple;
  std::vector<std::size_t> some; // evenly, with the last
  for (std::size_t i = 1; i <= most; ++i) some.push_back(i * simple.size() / most - 1);
  return simple.select(some);
}

CodeSolution CodeSolver::solve() const {
  CodeStates few = fewStates(std::max<std::size_t>(1, enough(levels_) / 6));
  double devices = 1;
  for (const CodeLevel& level : levels_) devices *= level.count;
  double lower = few.timeMs.back() / devices * (1 - 1e-12); // nobody computes more than a whole share
  CodeSolution known = solveOn(few, levels_, lower, infinity);
  if (levels_.empty() || known.timeMs == 0) return known;
  known.lowerBoundMs = lower;
  if (expired()) return known;
  bool canReach = !limits_.straight && limits_.stashBytes == infinity && nodes_.colours.empty() &&
                  known.timeMs < infinity && levels_.size() <= 2 && (levels_.size() == 1 || levels_[1].count <= 8);
  if (canReach && !allStates(nodes_, enough(levels_) / 10)) return solveMany(std::move(known));
  std::optional<CodeStates> all = allStates(nodes_, most_);
  if (!all || expired()) return known;
  CodeStates states = all->select(wholeStates(nodes_, *all));
  all.reset();
  if (levels_.size() == 2 && states.size() > enough(levels_)) {
    known = takeApart(states, std::move(known));
    if (known.timeMs <= known.lowerBoundMs) return known;
  }
  return narrow(states, levels_, std::move(known));
}

CodeSolution CodeSolver::solveMany(CodeSolution known) const {
  auto isSolved = [&] { return known.timeMs <= known.lowerBoundMs || expired(); };
  auto sorted = [](std::optional<CodeStates> states) {
    std::vector<std::size_t> every(states->size());
    std::iota(every.begin(), every.end(), 0);
    return states->select(std::move(every));
  };
  Work left;
  left.passes *= seconds_;
  left.looks = static_cast<std::size_t>(static_cast<double>(left.looks) * seconds_);
  if (levels_.size() == 1) left.passes *= 6; // nothing else proves a plan
  std::optional<CodeStates> some = allStates(nodes_, most_, true);
  if (!some) return known;
  CodeStates states = sorted(std::move(some));
  known = bracket(states, std::move(known), false, left);
  if (isSolved()) return known;
  // What is left needs exact numbers of components, or stages in several copies on two levels.
  std::optional<CodeStates> all = canReduce(nodes_) ? allStates(nodes_, most_) : std::nullopt;
  bool hasAll = all || !canReduce(nodes_);
  CodeStates whole = all ? sorted(std::move(all)) : hasAll ? states : CodeStates{};
  if (hasAll && levels_.size() == 2) known = takeApart(whole, std::move(known));
  if (!isSolved()) known = bracket(std::move(states), std::move(known), true, left);
  if (!hasAll || isSolved()) return known;
  std::vector<std::size_t> passed =
      statesOfFastPlans(whole, levels_, false, known.timeMs * (1 + 1e-12), enough(levels_));
  if (passed.empty() || passed.size() > enough(levels_)) return known;
  CodeSolution better = solveOn(whole.select(passed), levels_, known.lowerBoundMs, known.timeMs * (1 + 1e-12));
  return better.leaves.empty() ? known : better;
}

bool CodeSolver::fits(double stashBytes) {
  CodeLimits limits = std::exchange(limits_, {limits_.straight, stashBytes});
  bool found = !solveOn(fewStates(enough(levels_)), levels_, 0, infinity).leaves.empty();
  limits_ = limits;
  return found;
}

std::size_t CodeSolver::longestChain() const {
  CodeStates states = fewStates(enough(levels_));
  std::vector<std::size_t> length(states.size(), 1);
  for (std::size_t to = 0; to < states.size(); ++to)
    for (std::size_t from = 0; from < to; ++from)
      if (states.includes(to, from)) length[to] = std::max(length[to], length[from] + 1);
  return length.back();
}
