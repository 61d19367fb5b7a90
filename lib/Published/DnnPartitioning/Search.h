// Whether there is a plan with no load above a given bound, and if not, up to which bound there is none.
//
// For a fixed bound τ a state (a down-set) is the better the fewer devices hold it. States are found level by level,
// (accelerators, CPUs) used, each from a state of the level before by growing one more stage class by class: in
// topological order only, so that every stage is grown once. While a stage grows its time and the tensors that come
// into it from earlier stages only get more, and with CPUs and memory it is the same, so growing ends where these
// exceed what is allowed; a state is reached if the full load, with the tensors that leave, is within τ. What is
// pruned besides:
//
//   rest         a state whose remaining time (and, when no CPU is left, the tensors that cross its border, each of
//                which some later accelerator pays) is more than the devices left can take within τ
//   dominance    a state I if some I + v with cut(I + v) - cut(I) <= time(v) is reached with no more devices, or is
//                itself pruned for such a reason. Any completion of I is, with v removed from its stage S, one of
//                I + v: only the load of S changes, by cut(S - v) - cut(S) - time(v), and cut is symmetric and
//                submodular, I is outside S, so this is at most cut(I + v) - cut(I) - time(v) <= 0. (A mere subset is
//                not worse in general: its border may be cheaper.)
//
// The run compares amounts with τ only, so a run with a bound from τ up to below the smallest amount that it found too
// large is the same run. That amount is what an infeasible run proves: no plan is better.
#pragma once

#include "DnnPartitioning/States.h"

namespace pdc::placement {

class Search {
public:
  Search(const Instance& instance, const States& states, Clock::time_point deadline);

  enum class Answer { feasible, infeasible, outOfTime };
  Answer run(Amount bound);

  /// After `feasible`: a plan within the bound, and its largest load.
  const std::vector<Stage>& stages() const { return stages_; }
  Amount value() const { return value_; }
  /// After `infeasible`: no plan has a smaller largest load; `never` if there is no plan at all.
  Amount proven() const { return rejected_; }

  std::int64_t grown() const { return grown_; } ///< steps of all runs so far

private:
  struct Growth {
    std::uint32_t state;
    std::uint32_t nextStep;
    int added;
    Amount time, cpuTime, size, incoming, outgoing;
    bool onAccelerator, onCpu;
  };
  struct Origin {
    std::uint32_t from = 0;
    bool isCpu = false;
  };

  std::size_t slot(int cpus, std::uint32_t state) const {
    return static_cast<std::size_t>(cpus) * states_.size() + state;
  }
  bool reachedWith(std::uint32_t state, int accelerators, int cpus) const;
  void markDominating(int accelerators, int cpus);
  bool isDominated(std::uint32_t state) const;
  Amount needed(std::uint32_t state, int accelerators, int cpus) const;
  bool expand(std::uint32_t state, int accelerators, int cpus);
  Growth grow(const Growth& stage, const States::Step& step);
  void shrink(int c);
  void offer(std::uint32_t from, std::uint32_t to, int accelerators, int cpus, bool isCpu, Amount load);
  void reject(Amount amount) { rejected_ = std::min(rejected_, amount); }
  void recordPlan();

  const Instance& instance_;
  const States& states_;
  Clock::time_point deadline_;
  double mostTimePerCpuTime_ = 0;
  Amount freeOnCpu_ = 0; ///< Σ time of the classes that take no time on a CPU

  Amount bound_ = 0, rejected_ = never, value_ = 0;
  std::vector<Stage> stages_;
  std::int64_t grown_ = 0;
  bool complete_ = false;   ///< the full state is reached
  std::vector<int> fewest_; ///< by CPUs used at most and state: accelerators used
  std::vector<Origin> origin_;
  std::vector<std::vector<std::vector<std::uint32_t>>> found_; ///< by accelerators and CPUs
  std::vector<char> dominating_;                               ///< reached in the level, or dominated by such a state
  // Of the stage that grows:
  std::vector<char> tensorBefore_; ///< touches the state that the stage starts from
  std::vector<int> inStage_;       ///< members of each tensor in the stage
  std::vector<Growth> stack_;
};

} // namespace pdc::placement
