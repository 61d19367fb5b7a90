// Whether a plan of at most a given time exists on one or two levels, and which, cost model `pipedream-code` (Code.h),
// for plans that need not use every component: then fewer are never worse, and a state needs one number only.
//
// The label of a state is the least number of inner components with which the stages up to it run, for every number P
// of outer components after the outer stage that it lies in, and every number m of copies of that stage. States come in
// an order in which those inside come first. A state takes the least number for which a predecessor is inside that
// leads to it; mostly the first one that is looked at is. On one level that is exact: with q components a stage (X, Y]
// meets τ if t + a_q·w ≤ q·τ and its cuts are at most q·τ·B/2, t and w its sums of time and weights. On two levels a
// stage of q components inside m copies is given the sync of its own weights only, not of all weights of the outer
// stage. So no answer is a proof; a plan is checked by its own time, and does not count if m > 1 was too cheap.
//
// Components that a plan leaves unused are given to a stage that takes no longer with them.
//
// Time O(states · M_outer² · M_inner²) plus what it looks at, which is limited.
#pragma once

#include "PipeDream/CodePrune.h"

namespace pdc {

/// An outer stage: what runs on `replicas` outer components, and its stages inside. On one level there is one.
struct CodeOuterStage {
  int replicas = 1;
  std::vector<CodeCut> inside;
};

class CodeReach {
public:
  /// One or two levels, innermost first. `states` are sorted as CodeStates::select sorts.
  CodeReach(const CodeStates& states, const std::vector<CodeLevel>& levels);

  struct Answer {
    enum class Kind { found, none, unknown } kind = Kind::unknown;
    double timeMs = 0; ///< of the plan found
    std::vector<CodeOuterStage> stages;
  };
  /// `fast` are the states that statesOfFastPlans left for this time. `looks` is what may still be looked at.
  Answer plan(double timeMs, const CodeFastStates& fast, std::size_t& looks);

private:
  struct Place {
    int replicas, end, used; ///< m, P and the components used inside
  };
  struct Step {
    int from = -1;      ///< state, -1: none
    int devices = 0;    ///< of the stage, 0 if there is no step
    bool opens = false; ///< an outer stage
  };
  struct Labelled {
    std::vector<std::uint32_t> states;
    std::vector<double> best; ///< largest value for a stage of q components
  };

  double slope(int replicas, int devices, bool isFirst) const;
  double budget(int replicas, int devices) const;
  double value(std::size_t state, int replicas, int devices, bool isFirst) const;
  bool mayStart(std::size_t state, int replicas) const;
  bool mayEnd(std::size_t state, int replicas, int end) const;
  std::size_t row(int replicas, int end, int used) const;
  Step find(const Labelled& before, std::size_t to, Place place, int devices, bool opens);
  Step stepTo(std::size_t to, Place place);
  void label(std::size_t state, int before, int after);
  void add(Labelled& list, std::size_t state, int replicas, bool isFirst);
  std::vector<CodeOuterStage> trace(Place place);
  double settle(std::vector<CodeOuterStage>& stages) const;

  const CodeStates& states_;
  CodeLevel inner_, outer_;
  std::size_t last_;
  double timeMs_ = 0;
  std::vector<Labelled> open_;   ///< by m, P, used
  std::vector<Labelled> closed_; ///< by outer components and m of the stage that follows
  std::vector<char> isClosed_;   ///< by outer components, of the state at hand
  std::size_t* looks_ = nullptr;
  bool isExhausted_ = false;
};

} // namespace pdc
