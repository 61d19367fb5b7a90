#include "Search/Improve.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

using namespace pdc;

namespace {

using Chain = std::vector<ChainStage>;

class Climb {
public:
  Climb(const States& states, const SplitLoads& loads, const PlannerOptions& options, const Machine& machine,
        Incumbent& incumbent)
      : states_(states), loads_(loads), options_(options), incumbent_(incumbent),
        devices_(static_cast<int>(machine.components(0))) {}

  void run() {
    if (!options_.choosesReplicas()) return;
    const bool isFree = options_.stageReplicas.empty() && options_.stageSplits.empty() && options_.stageShards.empty();
    for (bool improved = true; improved && !incumbent_.isExhausted();) {
      current_ = incumbent_.chainIn(states_);
      if (current_.empty()) return;
      improved = moveReplicas() || moveCuts() || (isFree && (join() || split())) || divide() || reshard();
    }
  }

private:
  bool tryChain(Chain chain) {
    for (ChainStage& stage : chain) stage.ofClass = {stage.replicas};
    return !incumbent_.isExhausted() && incumbent_.offer(states_, chain);
  }

  int team(const ChainStage& stage) const { return loads_.team(stage.split); }

  int usedDevices() const {
    int used = 0;
    for (const ChainStage& stage : current_) used += stage.replicas * team(stage);
    return used;
  }

  /// Another split for a run of stages, with about as many devices.
  bool divide() {
    if (loads_.count() == 1 || !options_.stageSplits.empty()) return false;
    bool better = false;
    for (std::size_t first = 0; first < current_.size(); ++first)
      for (std::size_t end = first + 1; end <= current_.size(); ++end)
        for (int split = 0; split < loads_.count(); ++split) {
          if (incumbent_.isExhausted()) return better;
          Chain chain = current_;
          for (std::size_t s = first; s < end; ++s) {
            const int devices = chain[s].replicas * team(chain[s]);
            chain[s].replicas = options_.straight ? 1 : std::max(1, devices / loads_.team(split));
            chain[s].split = split;
          }
          int used = 0;
          for (const ChainStage& stage : chain) used += stage.replicas * team(stage);
          if (used <= devices_) better |= tryChain(chain);
        }
    return better;
  }

  /// Shards in a stage that has none, or the other way round.
  bool reshard() {
    if (!options_.choosesShards()) return false;
    bool better = false;
    for (std::size_t s = 0; s < current_.size() && !incumbent_.isExhausted(); ++s) {
      Chain chain = current_;
      chain[s].form.shards = !chain[s].form.shards;
      if (chain[s].replicas > 1) better |= tryChain(chain);
    }
    return better;
  }

  bool moveReplicas() {
    if (options_.straight) return false;
    const int used = usedDevices();
    bool better = false;
    for (std::size_t s = 0; s < current_.size(); ++s)
      for (int step : {1, 2, 4, 8, 16, 32, 64}) {
        if (incumbent_.isExhausted()) return better;
        Chain chain = current_;
        chain[s].replicas += step;
        if (used + step * team(chain[s]) <= devices_) better |= tryChain(chain);
        for (std::size_t t = 0; t < current_.size(); ++t) {
          if (s == t || current_[t].replicas <= step) continue;
          if (used + step * (team(current_[s]) - team(current_[t])) > devices_) continue;
          if (incumbent_.isExhausted()) return better;
          chain = current_;
          chain[s].replicas += step;
          chain[t].replicas -= step;
          better |= tryChain(chain);
        }
        if (current_[s].replicas > step) {
          chain = current_;
          chain[s].replicas -= step;
          better |= tryChain(chain);
        }
      }
    return better;
  }

  bool moveCuts() {
    constexpr int nearby = 12;
    bool better = false;
    for (std::size_t s = 0; s + 1 < current_.size() && !incumbent_.isExhausted(); ++s)
      for (int direction : {1, -1}) {
        int tried = 0;
        for (int state = current_[s].to + direction; state > 0 && state < states_.last() && tried < nearby;
             state += direction) {
          if (!states_.precedes(current_[s].from, state) || !states_.precedes(state, current_[s + 1].to)) continue;
          Chain chain = current_;
          chain[s].to = chain[s + 1].from = state;
          better |= tryChain(chain);
          ++tried;
        }
      }
    return better;
  }

  bool join() {
    bool better = false;
    for (std::size_t s = 0; s + 1 < current_.size() && !incumbent_.isExhausted(); ++s) {
      Chain chain = current_;
      chain[s].to = chain[s + 1].to;
      if (!options_.straight) chain[s].replicas += chain[s + 1].replicas * team(chain[s + 1]) / team(chain[s]);
      chain.erase(chain.begin() + static_cast<std::ptrdiff_t>(s) + 1);
      better |= tryChain(chain);
    }
    return better;
  }

  bool split() {
    if (options_.warmupPolicy == WarmupPolicy::given) return false;
    const int used = usedDevices();
    bool better = false;
    for (std::size_t s = 0; s < current_.size() && !incumbent_.isExhausted(); ++s) {
      const ChainStage& whole = current_[s];
      std::vector<int> between;
      for (int state = whole.from + 1; state < whole.to; ++state)
        if (states_.precedes(whole.from, state) && states_.precedes(state, whole.to)) between.push_back(state);
      constexpr std::size_t most = 12;
      std::size_t stride = std::max<std::size_t>(1, between.size() / most);
      for (std::size_t k = stride / 2; k < between.size(); k += stride) {
        double share = (states_.computeMs(between[k]) - states_.computeMs(whole.from)) /
                       std::max(states_.computeMs(whole.to) - states_.computeMs(whole.from), 1e-300);
        int total = whole.replicas + (used + team(whole) <= devices_ && whole.replicas == 1 ? 1 : 0);
        if (total < 2) continue;
        int first = std::clamp(static_cast<int>(std::lround(share * total)), 1, total - 1);
        if (options_.straight && total > 2) continue;
        Chain chain = current_;
        chain[s].to = between[k];
        chain[s].replicas = first;
        ChainStage second = whole;
        second.from = between[k];
        second.replicas = total - first;
        chain.insert(chain.begin() + static_cast<std::ptrdiff_t>(s) + 1, second);
        better |= tryChain(chain);
      }
    }
    return better;
  }

  const States& states_;
  const SplitLoads& loads_;
  const PlannerOptions& options_;
  Incumbent& incumbent_;
  int devices_ = 0;
  Chain current_;
};

} // namespace

void pdc::climb(const States& states, const SplitLoads& loads, const PlannerOptions& options, const Machine& machine,
                Incumbent& incumbent) {
  if (machine.classes().size() == 1) Climb(states, loads, options, machine, incumbent).run();
}

void pdc::shiftCuts(const CostGraph& graph, const std::vector<SolverProblem>& problems, const PlannerOptions& options,
                    const Machine& machine, int window, Incumbent& incumbent) {
  const SolverProblem& problem = problems[0];
  const std::vector<PartitionStage> stages = incumbent.best().partition.stages;
  std::size_t n = problem.blocks.size();
  if (stages.size() < 2 || machine.classes().size() > 1) return;
  std::vector<std::vector<int>> orders = States::ordersOf(problem);
  // The candidates for each cut: itself and its neighbours in the orders.
  std::vector<std::set<NodeSet>> candidates(stages.size() + 1);
  NodeSet done(n);
  std::vector<NodeSet> all;
  candidates[0].insert(done);
  for (std::size_t s = 0; s < stages.size(); ++s) {
    for (std::int64_t node : stages[s].nodes) done.insert(static_cast<std::size_t>(problem.blockOf[node]));
    std::size_t length = done.size();
    candidates[s + 1].insert(done);
    if (length == n) break;
    for (const std::vector<int>& order : orders) {
      NodeSet prefix = done;
      bool isPrefix = true;
      for (std::size_t i = 0; i < length && isPrefix; ++i) isPrefix = done.contains(static_cast<std::size_t>(order[i]));
      if (!isPrefix) continue;
      for (std::size_t i = length; i < std::min(n - 1, length + static_cast<std::size_t>(window)); ++i) {
        prefix.insert(static_cast<std::size_t>(order[i]));
        candidates[s + 1].insert(prefix);
      }
      prefix = done;
      for (std::size_t i = length; i > 1 && i + static_cast<std::size_t>(window) > length; --i) {
        prefix.erase(static_cast<std::size_t>(order[i - 1]));
        candidates[s + 1].insert(prefix);
      }
    }
  }
  std::set<NodeSet> distinct;
  for (const std::set<NodeSet>& layer : candidates) distinct.insert(layer.begin(), layer.end());
  States states(problem, {distinct.begin(), distinct.end()});
  SplitLoads loads(graph, problems, states, machine, options);
  for (int level = 1; level < machine.levels(); ++level)
    if (std::all_of(stages.begin(), stages.end(), [&](const PartitionStage& stage) {
          return graph.splits() == 1 && stage.replicas % machine.inside(level) == 0;
        }))
      loads.align(static_cast<int>(machine.inside(level)));
  std::map<NodeSet, int> index;
  for (int i = 0; i < states.size(); ++i) index.emplace(states.set(i), i);

  struct Label {
    double timeMs = std::numeric_limits<double>::infinity();
    int from = -1;
  };
  std::vector<std::map<int, Label>> labels(stages.size() + 1);
  labels[0][0].timeMs = 0;
  for (std::size_t s = 0; s < stages.size(); ++s)
    for (const NodeSet& set : candidates[s + 1]) {
      int j = index.at(set);
      Label best;
      for (const auto& [i, label] : labels[s]) {
        if (label.timeMs >= best.timeMs || !states.precedes(i, j)) continue;
        if (s > 0 && !loads.mayMeet(i, stages[s - 1].split, stages[s].split)) continue;
        const StageLoads& own = loads.of(stages[s].split);
        double timeMs = std::max(label.timeMs, own.bound(own.stage(i, j), stages[s].replicas));
        if (timeMs < best.timeMs) best = {timeMs, i};
      }
      if (best.from >= 0) labels[s + 1][j] = best;
    }
  if (!labels.back().count(states.last())) return;
  std::vector<ChainStage> chain(stages.size());
  int j = states.last();
  for (std::size_t s = stages.size(); s-- > 0;) {
    int i = labels[s + 1].at(j).from;
    chain[s] = {
        i, j, stages[s].replicas, {stages[s].recompute, stages[s].shards}, {stages[s].replicas}, stages[s].split};
    j = i;
  }
  incumbent.offer(states, chain);
  incumbent.forget(states);
}
