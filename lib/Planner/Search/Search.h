// Exact search over chains of states, from the last stage to the first, guided by the relaxed problem.
//
// A partial plan is a suffix of stages. It is given up when what StageLoads proves of its stages, or the devices that
// the relaxed problem needs for the rest, show that no completion is better than the best plan found. Complete plans
// are evaluated by the cost model. So when the search ends without running out of budget, the best plan is optimal
// among the chains of the states: first in time, and, when asked for ties, in the whole order of docs/PlannerModels.md.
#pragma once

#include "Search/Placement.h"
#include "Search/Solver.h"

namespace pdc {

/// A stage of a plan in terms of states.
struct ChainStage {
  int from = 0, to = 0, replicas = 1;
  StageForm form;
  std::vector<int> ofClass; ///< adding up to replicas
  int split = 0;
};

/// The best plan found so far, and the effort that is left. Effort is counted in steps, not seconds, so that the answer
/// is the same on every machine; a time limit, if there is one, ends it early.
class Incumbent {
public:
  Incumbent(const CostGraph& graph, const Cluster& cluster, const PlannerOptions& options, const SolverProblem& problem,
            const Machine& machine);

  /// Evaluates a plan in terms of states and keeps it if it is better.
  bool offer(const States& states, const std::vector<ChainStage>& chain);

  /// The same for replicas without classes: gives every stage, in order, the next devices of all.
  bool offer(const States& states, const std::vector<RelaxedStage>& path);

  /// The same for a plan that is not in terms of states, and, where shards are chosen, with other shards.
  bool offer(Partition partition);

  /// The best plan, if it was in terms of these states; else empty.
  std::vector<ChainStage> chainIn(const States& states) const {
    return states_ == &states ? chain_ : std::vector<ChainStage>{};
  }

  /// Before states go out of life.
  void forget(const States& states) {
    if (states_ == &states) states_ = nullptr;
  }

  /// Keeps a plan that is likely to be executed as fast as it should be, beside the best one.
  void remember(const States& states, const std::vector<ChainStage>& chain) {
    likely_.push_back(partitionOf(states, chain));
  }
  const std::vector<Partition>& likely() const { return likely_; }

  bool found() const { return found_; }
  const Solution& best() const { return best_; }

  /// The most that a load may be in a plan that is better than the best one, or as good.
  double limitMs() const;

  void spend(std::int64_t steps) { left_ -= steps; }
  void allow(std::int64_t steps) { left_ = steps; }
  bool isExhausted() const { return left_ <= 0 || isLate(); }
  bool isLate() const; ///< past the time limit

private:
  Partition partitionOf(const States& states, const std::vector<ChainStage>& chain) const;
  void spendForEvaluation(std::size_t stages);
  bool keepIfBetter(Partition partition);
  bool fits(const Partition& partition) const;
  bool simulateBatches(const Partition& partition, PlanCost& cost) const;
  bool simulateBatches(Plan& plan, PlanCost& cost) const;

  const CostGraph& graph_;
  const Cluster& cluster_;
  const PlannerOptions& options_;
  const SolverProblem& problem_;
  const Machine& machine_;
  CostModel model_;
  bool found_ = false;
  Solution best_;
  std::vector<Partition> likely_;
  const States* states_ = nullptr; ///< of chain_
  std::vector<ChainStage> chain_;
  std::int64_t left_ = 0;
  double deadline_ = 0; ///< on the steady clock, in seconds; 0: none
};

class Search {
public:
  /// `placed`: the leaves of stages are looked at, in `placement`.
  Search(const CostGraph& graph, const PlannerOptions& options, const States& states, const SplitLoads& loads,
         const Machine& machine, Relaxation& relaxation, const Placement& placement, bool placed, Incumbent& incumbent);

  /// Looks for plans that are faster than the best one, or, with `ties`, better in the whole order. Returns whether
  /// nothing was left out.
  bool run(bool ties);

private:
  /// What is known of a suffix of stages.
  struct Suffix {
    int state = 0;      ///< where it begins
    int split = -1;     ///< of its first stage; -1: it has none
    int stagesLeft = 0; ///< before it, where their number is given
    int offset = 0;     ///< leaves before it, where places matter; else 0
    Carry carry;
    double loadMs = 0;
    double ownMs = 0;  ///< the largest load of its stages, whatever cores and loops take
    double busyMs = 0; ///< computation of one minibatch, of all members of all stages together
    std::int64_t memoryBytes = 0;
    double bytesMoved = 0;
    int devices = 0;
  };
  struct Step {
    Suffix after;
    ChainStage stage;
  };

  void descend(const Suffix& suffix);
  void listSteps(const Suffix& suffix, std::vector<Step>& steps);
  /// What all replicas of a stage between two states have in common.
  struct Kind {
    const StageLoads::Stage& stage;
    int split = 0;
    StageForm form;
    int least = 1, most = 1; ///< replicas
  };
  void addSteps(const Suffix& suffix, const Kind& kind, std::vector<int>& ofClass, std::size_t nextClass, int replicas,
                std::vector<Step>& steps);
  void listSteps(const Suffix& suffix, std::size_t k, int split, std::vector<Step>& steps);
  void boundTies(int state);
  bool isHopeless(const Suffix& suffix) const;
  double coresMs(const Suffix& suffix) const;
  double leastLoadMs(const Suffix& suffix) const;
  bool relabel();
  std::vector<Suffix> roots() const;

  const CostGraph& graph_;
  const PlannerOptions& options_;
  const States& states_;
  const SplitLoads& loads_;
  const Machine& machine_;
  Relaxation& relaxation_;
  const Placement& placement_;
  Incumbent& incumbent_;
  bool placed_ = false;
  double cores_ = 0; ///< of the whole cluster; 0 where ranks do not share any
  bool ties_ = false, complete_ = true;
  double labelledMs_ = 0;
  std::vector<ChainStage> chain_; ///< last stage first
  std::vector<int> classLeft_;
  std::vector<std::int64_t> leastMemory_; ///< of any way to cut a state, at the best time
  std::vector<double> leastMoved_;
};

} // namespace pdc
