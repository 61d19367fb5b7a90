// The down-sets between which the solver cuts, and what the difference of two of them is as a stage.
#pragma once

#include "Search/Problem.h"
#include "pdc/Planner/Order/DownSets.h"

namespace pdc {

/// What a stage consists of, whatever the other stages are: the difference of two down-sets I ⊂ J. Times are those of
/// a device of speed 1.
struct StageSums {
  double forwardMs = 0, backwardMs = 0, updateMs = 0, lateUpdateMs = 0;
  /// Computation, both ways, on the longest way from the stage through what is after J, and the transfers to the first
  /// node on it and back.
  double afterMs = 0;
  std::int64_t parameterBytes = 0, frozenBytes = 0, gradientBytes = 0, savedBytes = 0, handoverBytes = 0;
  std::int64_t inBytes = 0;           ///< of tensors from I that it uses
  std::int64_t inGradientBytes = 0;   ///< of those among them whose gradient it sends back
  std::int64_t outBytes = 0;          ///< of tensors that it makes and someone after J uses
  std::int64_t outGradientBytes = 0;  ///< of those among them whose gradient comes back
  std::int64_t passGradientBytes = 0; ///< of gradients of tensors from I that it gets from later users and adds to
};

/// A family of down-sets with the empty one first and the full one last, by size. Complete when it holds all of them:
/// then every chain of stages is a chain of its members.
class States {
public:
  /// All down-sets if there are no more than `limit`, else the prefixes of several topological orders and the ancestor
  /// sets of single blocks, thinned out to about `limit`.
  States(const SolverProblem& problem, std::size_t limit);

  /// Exactly these, which include the empty and the full one. `complete`: nothing that matters is missing.
  States(const SolverProblem& problem, std::vector<NodeSet> sets, bool complete = false);

  /// All down-sets between two stages of a plan that takes at most `limitMs` on so many devices, the empty and the full
  /// one. The stages before such a set J have some number a of the devices, which bear its work, and the others the
  /// rest; what crosses J leaves over the links of those and enters over the links of these:
  ///
  ///   work(J) ≤ a·T·speed,   work(rest) ≤ (N - a)·T·speed,   bytes(J) ≤ min(a, N - a)·T·bandwidth
  ///
  /// Nothing if there are more than `most` of them.
  static std::optional<std::vector<NodeSet>> worthwhile(const SolverProblem& problem, const DownSets& all,
                                                        double limitMs, int devices, double speed, double bytesPerMs,
                                                        std::size_t most);

  bool isComplete() const { return complete_; }

  /// The topological orders whose prefixes an incomplete family holds, without repetition.
  static std::vector<std::vector<int>> ordersOf(const SolverProblem& problem);

  int size() const { return static_cast<int>(states_.size()); }
  int last() const { return size() - 1; }
  const NodeSet& set(int i) const { return states_[i].set; }

  /// Whether state i is a proper subset of state j.
  bool precedes(int i, int j) const;

  /// The stage between two states, precedes(i, j). A transfer takes at least `msPerByte`.
  StageSums stage(int i, int j, double msPerByte) const;

  /// Largest scratch and largest workspace of the stage's blocks, added.
  std::int64_t scratchBytes(int i, int j) const;

  double computeMs(int i) const { return states_[i].forwardMs + states_[i].backwardMs; }
  // At least, whatever the splits of stages are: what a value waits for, and what all members of teams compute.
  double leastMs(int i) const { return problem_->leastMs.empty() ? computeMs(i) : states_[i].leastMs; }
  double workMs(int i) const { return problem_->leastMs.empty() ? computeMs(i) : states_[i].workMs; }
  double updateWorkMs(int i) const { return problem_->leastMs.empty() ? states_[i].updateMs : states_[i].updateWorkMs; }

private:
  struct State {
    NodeSet set;
    int count = 0;
    double forwardMs = 0, backwardMs = 0, updateMs = 0, lateUpdateMs = 0;
    double leastMs = 0, workMs = 0, updateWorkMs = 0; ///< over all splits
    std::int64_t parameterBytes = 0, frozenBytes = 0, gradientBytes = 0, savedBytes = 0, handoverBytes = 0;
    std::int64_t cutBytes = 0, cutGradientBytes = 0;
    std::vector<int> cut; ///< tensors from inside that someone outside uses
  };

  void prepare();
  void add(NodeSet set);
  void addOrders(std::size_t limit);
  void describe(State& state) const;
  static bool sumsUpHere(const BlockTensor& tensor, const State& before);
  static std::pair<bool, bool> placesOf(const std::vector<int>& blocks, const State& before, const State& after);

  const SolverProblem* problem_;
  std::vector<State> states_;
  std::vector<double> afterMs_; ///< of each block: longest way through its descendants, itself included
  bool complete_ = false, nested_ = true, hasScratch_ = false;
};

} // namespace pdc
