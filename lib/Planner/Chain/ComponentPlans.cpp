#include "Chain/ComponentPlans.h"

#include <algorithm>
#include <cmath>

using namespace pdc;

namespace {

/// Nodes [from, to) of the chain on so many neighbouring devices.
struct ChainInterval {
  int from = 0, to = 0, replicas = 1;
};

class ComponentPlans {
public:
  ComponentPlans(const SolverProblem& problem, const PlannerOptions& options, const Machine& machine)
      : problem_(problem), options_(options), machine_(machine), order_(problem.dag.order()),
        n_(static_cast<int>(order_.size())), speed_(machine.classes()[0].speed),
        limitBytes_(static_cast<double>(machine.classes()[0].memoryBytes)) {
    describe();
  }

  /// Stages for time `timeMs`, or none.
  std::vector<ChainInterval> plan(double timeMs) {
    timeMs_ = timeMs;
    int outer = machine_.levels() - 1;
    hosts_.assign(static_cast<std::size_t>(outer), {});
    for (int level = 0; level < outer; ++level)
      for (int i = 0; i < n_; ++i) {
        hosts_[level].push_back(host(level, i));
        if (steps_ > mostSteps_) return {};
      }
    return planOutermost(outer);
  }

  /// From now on plans use no more than this part of the memory.
  void useMemory(double share) { memoryShare_ = share; }

  /// So many steps since the beginning.
  void allow(std::int64_t steps) { mostSteps_ = steps; }
  bool isExhausted() const { return steps_ > mostSteps_; }

  Partition partitionOf(const std::vector<ChainInterval>& stages) const {
    Partition partition;
    for (const ChainInterval& stage : stages) {
      PartitionStage own{{}, stage.replicas, options_.recompute == RecomputePolicy::all, {}};
      for (int v = stage.from; v < stage.to; ++v) {
        const std::vector<std::int64_t>& nodes = problem_.blocks[order_[v]].nodes;
        own.nodes.insert(own.nodes.end(), nodes.begin(), nodes.end());
      }
      std::sort(own.nodes.begin(), own.nodes.end());
      partition.stages.push_back(std::move(own));
    }
    return partition;
  }

private:
  struct Tensor {
    double bytes = 0, gradientBytes = 0;
    int lastUser = 0;
  };

  /// The loads of [from, to) as `to` grows node by node.
  class Growing {
  public:
    Growing(ComponentPlans& plans, int from) : plans_(plans), from_(from), to_(from) { ++plans.stamp_; }

    int to() const { return to_; }
    void add() {
      int v = to_++;
      ++plans_.steps_;
      for (int t : plans_.used_[v]) {
        const Tensor& tensor = plans_.tensors_[t];
        bool own = plans_.madeBy_[t] >= from_;
        if (!own && plans_.seen_[t] != plans_.stamp_) {
          plans_.seen_[t] = plans_.stamp_;
          down_ += tensor.bytes;
          up_ += tensor.gradientBytes;
        }
        if (own && tensor.lastUser == v) {
          up_ -= tensor.bytes;
          down_ -= tensor.gradientBytes;
        }
      }
      for (int t : plans_.made_[v]) {
        up_ += plans_.tensors_[t].bytes;
        down_ += plans_.tensors_[t].gradientBytes;
      }
    }
    /// Bytes over the busier direction of the link of a component that hosts exactly this.
    double crossing() const { return std::max(up_, down_); }

  private:
    ComponentPlans& plans_;
    int from_ = 0, to_ = 0;
    double up_ = 0, down_ = 0;
  };

  void describe() {
    std::vector<int> place(static_cast<std::size_t>(n_));
    for (int v = 0; v < n_; ++v) place[order_[v]] = v;
    used_.resize(static_cast<std::size_t>(n_));
    made_.resize(static_cast<std::size_t>(n_));
    for (const BlockTensor& tensor : problem_.tensors) {
      auto t = static_cast<int>(tensors_.size());
      auto bytes = static_cast<double>(tensor.bytes);
      tensors_.push_back({bytes, tensor.hasGradient() ? bytes : 0, 0});
      madeBy_.push_back(place[tensor.from]);
      made_[place[tensor.from]].push_back(t);
      for (int user : tensor.to) {
        used_[place[user]].push_back(t);
        tensors_.back().lastUser = std::max(tensors_.back().lastUser, place[user]);
      }
    }
    seen_.assign(tensors_.size(), 0);
    workMs_.assign(1, 0), loopMs_.assign(1, 0), parameters_.assign(1, 0), frozen_.assign(1, 0), slots_.assign(1, 0);
    bool recompute = options_.recompute == RecomputePolicy::all,
         stashes = options_.weights != pdcrt::WeightPolicy::latest;
    for (int v : order_) {
      const ProblemBlock& block = problem_.blocks[v];
      double computeMs = ((recompute ? 2 : 1) * block.forwardMs + block.backwardMs) / speed_;
      auto parameters = static_cast<double>(block.parameterBytes);
      workMs_.push_back(workMs_.back() + computeMs + options_.leastUpdateMs(block.updateMs) / speed_);
      loopMs_.push_back(loopMs_.back() + computeMs);
      parameters_.push_back(parameters_.back() + parameters);
      frozen_.push_back(frozen_.back() + static_cast<double>(block.frozenBytes));
      slots_.push_back(slots_.back() + (stashes ? parameters : 0) +
                       (recompute ? 0 : static_cast<double>(block.savedBytes)));
    }
  }

  double workMs(int i, int j) const { return workMs_[j] - workMs_[i]; }

  /// One stage on whole components of `level`, `crossing` bytes over the busier direction of its links together.
  bool isStage(int i, int j, int level, int components, double crossing) const {
    double r = static_cast<double>(components) * static_cast<double>(machine_.inside(level));
    double parameters = parameters_[j] - parameters_[i], ring = 2 * (r - 1) / r * parameters, syncMs = 0;
    if (workMs(i, j) > r * timeMs_) return false;
    for (int k = 0; k <= level && r > 1; ++k) {
      if (k == level && components == 1) break;
      auto inside = static_cast<double>(machine_.inside(k));
      if ((crossing * inside + ring) / r > timeMs_ * machine_.bytesPerMs(k)) return false;
      syncMs = std::max(2 * (r - 1) * machine_.routeLatencyMs(k) + ring / machine_.routeBytesPerMs(k), syncMs);
    }
    if (syncMs + (options_.sync == SyncPolicy::overlap ? 0 : workMs(i, j)) > r * timeMs_) return false;
    // stageMemory(), about: parameters, gradients, optimizer, frozen ones, slots and rings, without scratch and
    // handovers. As many minibatches are in flight as the way behind it takes, and one for transfers.
    double inFlight = std::ceil((loopMs_[n_] - loopMs_[i]) / (timeMs_ * r)) + 2;
    double fixed = (2 + options_.leastOptimizerState()) * parameters + frozen_[j] - frozen_[i] + 2 * crossing;
    return fixed + (slots_[j] - slots_[i] + crossing) * inFlight <= limitBytes_ * memoryShare_;
  }

  /// The fewest parts, components of level - 1, that a chain of intervals from i needs to each end that one component
  /// of `level` can host. `parent`, if given, receives where the last interval begins.
  std::vector<int> chainInside(int level, int i, std::vector<int>* parent) {
    auto parts = static_cast<int>(machine_.inside(level) / machine_.inside(level - 1));
    double mostMs = static_cast<double>(machine_.inside(level)) * timeMs_ * (1 + 1e-12);
    auto end =
        static_cast<int>(std::upper_bound(workMs_.begin() + i, workMs_.end(), workMs_[i] + mostMs) - workMs_.begin());
    std::vector<int> fewest(static_cast<std::size_t>(end - i), parts + 1);
    if (parent) parent->assign(fewest.size(), -1);
    fewest[0] = 0;
    for (int p = i; p < std::min(end, n_); ++p) {
      if (fewest[p - i] >= parts) continue;
      for (int q : hosts_[level - 1][p]) {
        ++steps_;
        if (q >= end) break;
        if (fewest[q - i] <= fewest[p - i] + 1) continue;
        fewest[q - i] = fewest[p - i] + 1;
        if (parent) (*parent)[q - i] = p;
      }
    }
    return fewest;
  }

  std::vector<int> host(int level, int i) {
    std::vector<int> ends, fewest;
    int parts = 0;
    if (level > 0) {
      fewest = chainInside(level, i, nullptr);
      parts = static_cast<int>(machine_.inside(level) / machine_.inside(level - 1));
    }
    double mostMs = static_cast<double>(machine_.inside(level)) * timeMs_;
    Growing stage(*this, i);
    while (stage.to() < n_ && workMs(i, stage.to() + 1) <= mostMs) {
      stage.add();
      int j = stage.to();
      if (stage.crossing() > timeMs_ * machine_.bytesPerMs(level)) continue;
      if (isStage(i, j, level, 1, stage.crossing()) || (level > 0 && fewest[j - i] <= parts)) ends.push_back(j);
    }
    return ends;
  }

  std::vector<ChainInterval> planOutermost(int level) {
    struct Label {
      int components = 1 << 29, from = -1, asOneStage = 0;
    };
    auto total = static_cast<int>(machine_.components(level));
    double insideMs = static_cast<double>(machine_.inside(level)) * timeMs_;
    std::vector<Label> labels(static_cast<std::size_t>(n_) + 1);
    labels[0].components = 0;
    for (int i = 0; i < n_; ++i) {
      int before = labels[i].components, left = total - before;
      if (left < 1 || workMs(i, n_) > left * insideMs * (1 + 1e-12)) continue;
      auto reach = [&](int j, int components, int asOneStage) {
        if (before + components < labels[j].components) labels[j] = {before + components, i, asOneStage};
      };
      for (int j : host(level, i)) reach(j, 1, 0);
      Growing stage(*this, i);
      int most = std::min(left, mostTogether);
      for (int components = 2; stage.to() < n_ && workMs(i, stage.to() + 1) <= most * insideMs;) {
        stage.add();
        int j = stage.to();
        while (components < most && workMs(i, j) > components * insideMs) ++components;
        if (before + components < labels[j].components && isStage(i, j, level, components, stage.crossing()))
          reach(j, components, components);
      }
      if (steps_ > mostSteps_) return {};
    }
    if (labels[n_].components > total) return {};
    std::vector<ChainInterval> outer, stages;
    for (int j = n_; j > 0; j = labels[j].from) outer.push_back({labels[j].from, j, labels[j].asOneStage});
    for (auto part = outer.rbegin(); part != outer.rend(); ++part) {
      if (part->replicas > 0)
        stages.push_back({part->from, part->to, part->replicas * static_cast<int>(machine_.inside(level))});
      else
        appendInside(level, part->from, part->to, stages);
    }
    return stages;
  }

  /// The stages of [i, j) on one component, all of which they fill.
  void appendInside(int level, int i, int j, std::vector<ChainInterval>& stages) {
    std::vector<int> parent, fewest;
    if (level > 0) fewest = chainInside(level, i, &parent);
    Growing whole(*this, i);
    while (whole.to() < j) whole.add();
    auto inside = static_cast<int>(machine_.inside(level));
    if (isStage(i, j, level, 1, whole.crossing()) || fewest[j - i] > inside) {
      stages.push_back({i, j, inside});
      return;
    }
    std::vector<std::pair<int, int>> parts;
    for (int q = j; q > i; q = parent[q - i]) parts.emplace_back(parent[q - i], q);
    std::size_t first = stages.size();
    for (auto part = parts.rbegin(); part != parts.rend(); ++part)
      appendInside(level - 1, part->first, part->second, stages);
    auto unit = static_cast<int>(machine_.inside(level - 1));
    for (int left = inside - static_cast<int>(parts.size()) * unit; left > 0; left -= unit) {
      auto perReplica = [&](const ChainInterval& s) {
        return s.replicas % unit == 0 ? workMs(s.from, s.to) / s.replicas : 0;
      };
      auto busiest = std::max_element(stages.begin() + static_cast<std::ptrdiff_t>(first), stages.end(),
                                      [&](auto& a, auto& b) { return perReplica(a) < perReplica(b); });
      busiest->replicas += unit;
    }
  }

  static constexpr int mostTogether = 8;
  const SolverProblem& problem_;
  const PlannerOptions& options_;
  const Machine& machine_;
  const std::vector<int>& order_;
  int n_ = 0;
  double speed_ = 1, limitBytes_ = 0, timeMs_ = 0, memoryShare_ = 1;
  std::vector<Tensor> tensors_;
  std::vector<int> madeBy_;
  std::vector<std::vector<int>> used_, made_; ///< tensors of each place in the chain
  std::vector<std::int64_t> seen_;            ///< per tensor, the last stamp that counted it
  std::int64_t stamp_ = 0, steps_ = 0, mostSteps_ = 0;
  std::vector<double> workMs_, loopMs_, parameters_, frozen_, slots_; ///< of prefixes
  std::vector<std::vector<std::vector<int>>> hosts_;                  ///< by level and begin
};

} // namespace

void pdc::planComponents(const SolverProblem& problem, const PlannerOptions& options, const Machine& machine,
                         double lowMs, Incumbent& incumbent) {
  if (machine.levels() < 2) return;
  constexpr std::int64_t effort = 2'000'000;
  ComponentPlans plans(problem, options, machine);
  // What is left out of the loops takes memory too. So first all plans that seem to fit, and then, where steps are
  // left, plans with less memory until the cost model agrees with their time.
  incumbent.allow(effort);
  constexpr int mostFailures = 3; // without a plan before
  int plansFound = 0, failures = 0;
  for (double share : {1.05, 0.94}) {
    bool isFirst = share > 1;
    plans.allow(isFirst ? 60'000'000 : 50'000'000);
    double low = lowMs, high = incumbent.limitMs();
    plans.useMemory(share);
    constexpr double closeEnough = 1.003;
    while (high > low * closeEnough && !plans.isExhausted() && !incumbent.isExhausted()) {
      double timeMs = std::sqrt(low * high);
      std::vector<ChainInterval> stages = plans.plan(timeMs);
      if (!stages.empty()) incumbent.offer(plans.partitionOf(stages));
      ++(stages.empty() ? failures : plansFound);
      if (plansFound == 0 && failures == mostFailures) return;
      bool reached = isFirst ? !stages.empty() : incumbent.limitMs() <= timeMs * closeEnough;
      (reached ? high : low) = timeMs;
    }
  }
}
