// The relaxed problem of a chain, from its last stage to the first, with what stages ask of those in front of them: how
// many minibatches must be in flight, or how much of a batch is left. It knows teams: a stage on a larger team is
// passed sooner, so that fewer minibatches are in flight in front of it, and takes more devices for it.
//
// At a fixed time T per minibatch, a label of place i is what a plan as fast as T may have made of the places from i
// on. Stage s = [i, j) of the plan, on R replicas, takes C = F + B; c_j is the least that a transfer over border j
// takes.
//
// Schedules that do not flush: a label is (devices, ahead). The cost model asks of every loop from s to a later stage u
//
//   (w_s + 1)·R_s ≥ w_u·R_u + (Σ_{t = s..u} C_t + 2 Σ c + U_s) / T
//
// (Cost/CostModel.h: where d_s = 0 its room is less). With D_s = max over u > s of w_u·R_u + (Σ_{t = s+1..u} C_t + 2 Σ
// c) / T this is (w_s + 1)·R_s ≥ D_s + (C_s + U_s) / T, and where d_s = 1, (w_s + 2)·R_s ≥ D_s + (C_s + U_s + sync_s) /
// T. So the least w_s follows from D_s alone, and must fit into memory. In front of it,
//
//   D_{s-1} = max(D_s, w_s·R_s) + (C_s + 2 c_i) / T
//
// Schedules that flush, of m microbatches per batch, n_s = ceil(m / R_s): a label is (devices, rest, behind). A batch
// takes at least way_s + work_s + U_0 + e_0, where way_s = Σ_{t < s} (C_t + 2c), and work_s is the larger of n_s·C_s
// and, if w_s + 1 minibatches fit, (floor((n_s - 1) / (w_s + 1)) + 1)·(C_s + behind_s): forward k waits for backward
// k - w_s - 1, which ends a whole loop through behind_s = Σ_{t > s} (C_t + 2c) after its forward begins. Hence
//
//   rest_{s-1} = max(work_s, C_s + 2 c_j + rest_s),   rest + U_0 + e_0 ≤ m·T in front of the first stage
//
// Replicas stagger: the first replica of stage u is done with its last minibatch, number m - 1 - lag_u, when there are
// lag_u = m - 1 - (n_u - 1)·R_u minibatches behind it. A replica of a stage t in front computes every R_t-th of them
// after it, one backward B_t after the other. So a label also has (lag, lagMs): from the first forward behind its place
// it takes lagMs until the gradient of minibatch m - 1 - lag comes back, and
//
//   rest_{t-1} ≥ C_t + 2 c + lagMs + floor(lag / R_t)·B_t
//
// It is that of stage t, (work_t, lag_t), or the one behind it, whichever may ask for more: B_t ≤ β·R_t·T for the
// largest share β that backwards have in a node's time, so no stages in front make more of it than lagMs + lag·β·T.
//
// Proof that a T without a label of place 0 within the devices has no plan: by induction from the last stage, some
// label of each border of a plan as fast as T is in no number above what the plan has there. Each step is monotone in
// all of them, and a label is given up only for one that is in no number above it; where a front has too many labels,
// two become one with the least of both. Replicas are tried from the fewest of StageLoads on; for more than are tried a
// label stands that has their least devices and no rounding of w_s·R_s.
//
// Complexity of one T: O(n²) stages of each split, times labels of a front.
#pragma once

#include "Chain/ChainBorders.h"
#include "Search/Search.h"

namespace pdc {

class ChainLabels {
public:
  ChainLabels(const CostGraph& graph, const std::vector<SolverProblem>& problems, const States& states,
              const SplitLoads& loads, const PlannerOptions& options, const Machine& machine, Relaxation& relaxation);

  /// Whether this holds for a graph: its states are the prefixes of a chain in which every gradient returns, devices
  /// are equal, and the planner chooses replicas, splits and warm-up.
  static bool apply(const std::vector<SolverProblem>& problems, const States& states, const PlannerOptions& options,
                    const Machine& machine);

  /// What labels are of: all plans, or such as are likely to be executed as fast as T. Those have as many minibatches
  /// in flight as hideUpperBound() asks for, keep teams on one machine each, and count transfers as slow as they may
  /// be. Their labels are left out instead of joined.
  enum class Of : std::uint8_t { allPlans, likelyPlans };

  /// All stages labelled after this have this split; -1, the start: each may have any.
  void restrictTo(int split) { only_ = split; }

  /// Whether stages of different splits do not meet where members have parts: what is gathered there takes long.
  void keepApart(bool isApart) { isApart_ = isApart; }
  int devices() const { return devices_; }

  /// Labels all places for time `timeMs`. Returns whether place 0 has one with the devices that there are.
  bool label(double timeMs, Of of);

  /// The plans behind the labels of place 0, that of the fewest devices first.
  std::vector<std::vector<ChainStage>> paths() const;

  /// Evaluates a few of them. Returns whether one is better than the best before.
  bool offer(Incumbent& incumbent, bool remember = false) const;

private:
  struct Label {
    int devices = 0;
    double ahead = 0, behindMs = 0; ///< ahead: in minibatches, or ms of a batch
    double lagMs = 0;
    std::int64_t lag = 0;
    int next = -1, to = 0, replicas = 0, split = 0;
    StageForm form;
    bool isExposed = false; ///< its all-reduce delays what is in flight
    std::int64_t warmup = 0;
  };
  /// Labels of which none is as good as another in all (isAsGood), by devices.
  using Front = std::vector<int>;
  /// A stage with a number of replicas.
  struct Flight {
    int replicas = 0;
    bool isFastEnough = false;
    double computeMs = 0, backwardMs = 0, loopMs = 0, syncLoopMs = 0; ///< syncLoopMs: 0 if there is no such loop
    double workMs = 0;                                                ///< of a batch, whatever memory there is
    double endMs = 0;             ///< of a batch: behind the last gradient of stage 0
    std::int64_t mostWarmup = -1; ///< that fits into memory
    bool isExposed = false;
  };
  struct Stage {
    const StageLoads& loads;
    const StageLoads::Stage& stage;
    int split = 0, team = 1, fewest = 1, most = 1; ///< replicas
    StageForm form;
    double tripMs = 0;       ///< there and back over the border behind it
    double lateValuesMs = 0; ///< of the forward, but counted among the backward's
  };
  /// What a stage takes because there are others at its sides.
  struct Border {
    double tripMs = 0, valuesMs = 0, gradientsMs = 0;
  };

  Flight flightOf(const Stage& stage, int replicas) const;
  const Flight& flight(const Stage& stage, int replicas);
  int mostReplicas(int i, int j, int split, const Front& behind) const;
  bool findFewest(int i, int j, int split, int most);
  void extend(int i, int j, int split);
  void extend(int i, int j, int split, const Border& border, const Front& behind, Front& front);
  void extend(const Stage& stage, const Front& behind, Front& front);
  void addAsynchronous(const Stage& stage, const Label& label, int id, Front& front);
  void addFlushing(const Stage& stage, const Label& label, int id, Front& front);
  std::int64_t warmupFor(const Stage& stage, const Flight& flight, double ahead) const;
  std::int64_t likelyWarmup(const Stage& stage, const Flight& flight, const Label& behind) const;
  /// The most that stages in front make of what replicas stagger.
  double laggedMs(const Label& label) const {
    return label.lagMs + static_cast<double>(label.lag) * backwardShare_ * timeMs_;
  }
  bool isAsGood(const Label& a, const Label& b) const {
    return a.devices <= b.devices && a.ahead <= b.ahead &&
           (laggedMs(a) <= b.ahead || (a.lagMs <= b.lagMs && a.lag <= b.lag));
  }
  void insert(Front& front, const Label& label);
  static Label joined(const Label& first, const Label& second);
  void thin(Front& front);
  bool mayMeet(int place, int split) const { return loads_.isClean(place, split) && !isApart_; }
  /// Labels at a place that a stage of another split may meet there, or of `split` only. Where nothing crosses in parts
  /// there are only the former.
  Front& frontOf(int place, int split) {
    return fronts_[static_cast<std::size_t>(place)][static_cast<std::size_t>(split + 1)];
  }

  const States& states_;
  const SplitLoads& loads_;
  const PlannerOptions& options_;
  const Machine& machine_;
  Relaxation& relaxation_;
  bool flushes_ = false, waitsForSlots_ = false, isApart_ = false;
  double microbatches_ = 1, backwardShare_ = 0; ///< backwardShare_: at most, of a node
  int n_ = 0, devices_ = 0, only_ = -1;
  ChainBorders borders_;
  double timeMs_ = 0;
  Of of_ = Of::allPlans;
  std::vector<Label> labels_;
  std::vector<std::vector<Front>> fronts_; ///< by place: of all splits that meet, then of each
  std::vector<Flight> flights_;            ///< of the stage that is looked at, from the fewest replicas on
  std::vector<int> fewest_;                ///< by form: findFewest()
};

/// Raises `lowMs` as far as the labels prove, offers plans to `incumbent`, and returns whether its best is proven to
/// have the smallest time.
bool searchChain(ChainLabels& labels, int splits, double& lowMs, Incumbent& incumbent);

} // namespace pdc
