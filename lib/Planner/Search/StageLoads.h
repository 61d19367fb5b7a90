// What a stage must cost at least, whatever the other stages are and wherever it is placed.
//
// Every term is a lower bound of one in pdc/Planner/CostModel.h: the loads of its own devices, all-reduce and links,
// the links of components that it must fill wherever it begins, and the time below which the warm-up that the loop with
// the longest way behind it needs does not fit into memory. With one device per rank of its own and neighbours only,
// the terms are exact but for latencies.
//
// What is exposed of an all-reduce is at least what exceeds the whole backward. Of the only stage of a plan it is known
// exactly.
//
// As functions of x = 1/R the terms of 1f1b are concave while R stays within a level of the cluster. So once a term is
// too large at some R, it stays too large up to one larger R and is small enough from there on: the smallest R that
// satisfies all terms is found by bisection, term by term. Only the exact one is not concave; it is looked at R by R.
#pragma once

#include "Search/States.h"
#include "Search/Ways.h"
#include "pdc/Cost/Machine.h"

#include <array>
#include <optional>

namespace pdc {

/// What a stage is run on: its slowest device and the least memory among them.
struct StageHost {
  double speed = 1;
  std::int64_t limitBytes = 0;
};

/// How a stage is run, besides its nodes, split and devices.
struct StageForm {
  bool recompute = false;
  bool shards = false; ///< its replicas divide the optimizer's state, of ShardPolicy::automatic
};

/// Those that the options let the planner choose, without recomputation first.
std::vector<StageForm> formsOf(const PlannerOptions& options);

class StageLoads {
public:
  /// `mixes`: other stages may be divided in another way than those of this graph.
  StageLoads(const CostGraph& graph, const SolverProblem& problem, const States& states, const Machine& machine,
             const PlannerOptions& options, bool mixes = false);

  /// Everything about the stage between two states that does not depend on replicas and devices.
  struct Stage : StageSums {
    int from = 0, to = 0;
    bool alone = false; ///< the only one of its plan
    std::int64_t scratch = 0;
    double beforeMs = 0;                        ///< of flushing schedules: from stage 0 to it and back (Ways.h)
    double valueCoreMs = 0, gradientCoreMs = 0; ///< what its transfers take from a device, at least
  };
  Stage stage(int i, int j) const;

  /// The time per minibatch is at least the largest term; infinite if the stage does not fit at all.
  double bound(const Stage& stage, int replicas, const StageForm& form, const StageHost& host) const {
    return largest(terms(stage, replicas, form, host));
  }

  /// The same of devices, all-reduces and links only, as PlanCost::loadMs counts them where shared cores bound the
  /// time.
  double loadBound(const Stage& stage, int replicas, const StageForm& form, const StageHost& host) const {
    Terms all = terms(stage, replicas, form, host);
    all[loopTerm] = all[waitLoopTerm] = 0;
    return largest(all);
  }

  /// The smallest of the bounds of all forms.
  double bound(const Stage& stage, int replicas) const;

  /// The smallest number of replicas, at most `most`, with which the best device makes the bound at most `limitMs`;
  /// 0 if there is none.
  int fewestReplicas(const Stage& stage, double limitMs, int most) const;
  int fewestReplicas(const Stage& stage, double limitMs, int most, const StageForm& form) const;

  /// From now on replicas are multiples of `unit`, and stages begin at multiples of it. What is a bound of aligned
  /// plans only is no bound of others. 1 is the start.
  void align(int unit) { unit_ = unit; }

  /// Memory of one replica at least, if the pipeline runs at `timeMs`.
  std::int64_t memoryBytes(const Stage& stage, int replicas, const StageForm& form, double timeMs) const;

  /// Bytes that it moves per minibatch: values in, gradients out, all-reduces.
  double bytesMoved(const Stage& stage, int replicas) const;

  /// The larger of all-reduce and device load when the all-reduce crosses links of this bandwidth and latency.
  double withAllReduce(const Stage& stage, int replicas, const StageForm& form, double bytesPerMs,
                       double latencyMs) const;

  /// Computation of one minibatch, update included, on a device of this speed; of a member.
  double busyMs(const Stage& stage, int replicas, const StageForm& form, double speed) const {
    return computeMs(stage, form, speed) + (flush_ ? 0 : updateMs(stage, replicas, form, speed));
  }

  /// What a stage adds to loops through it, at least, on the best device, and what minibatches in flight take.
  struct Flight {
    double computeMs = 0, backwardMs = 0, updateMs = 0, syncMs = 0; ///< computeMs: both ways
    double exposedMs = 0;   ///< what the backward does not hide of its all-reduce
    bool isDelayed = false; ///< whether it goes on computing beside its all-reduce, until the next one
    std::int64_t baseBytes = 0, bytesPerWarmup = 0;
  };
  Flight flight(const Stage& stage, int replicas, const StageForm& form) const;

  const std::vector<StageForm>& forms() const { return forms_; }
  const StageHost& best() const { return best_; }

private:
  // The last of them are of stages that wait for their all-reduce: what they do beside it, at least, and, of the only
  // stage of a plan, exactly.
  static constexpr std::size_t termCount = 8, loopTerm = 4, waitTerm = 5, waitLoopTerm = 6, aloneTerm = 7;
  using Terms = std::array<double, termCount>;
  static double largest(const Terms& terms);
  Terms terms(const Stage& stage, int replicas, const StageForm& form, const StageHost& host) const;

  int syncDelay(const Stage& stage, int replicas) const { return overlap_ && replicas > 1 && !stage.alone; }
  double allReduceMs(const Stage& stage, int replicas) const;
  double componentMs(const Stage& stage, double replicas, double reduced) const;
  double ownMicrobatches(double replicas) const;
  double exposedMs(const Stage& stage, int replicas, const StageForm& form, double speed, double syncMs) const;
  double hiddenMs(const Stage& stage, const StageForm& form, double speed) const {
    return ((form.recompute ? stage.forwardMs : 0) + stage.backwardMs + stage.gradientCoreMs) / speed;
  }
  double computeMs(const Stage& stage, const StageForm& form, double speed) const {
    return hiddenMs(stage, form, speed) + (stage.forwardMs + stage.valueCoreMs) / speed;
  }
  double allReduceCoreMs(const Stage& stage, int replicas, double speed) const {
    return machine_.allReduceCoreMs(stage.parameterBytes, replicas) / speed;
  }
  double optimizerMs(const Stage& stage, int replicas, const StageForm& form, double speed) const {
    const double ms = (stage.updateMs + (replicas > 1 ? stage.lateUpdateMs : 0)) / speed;
    return options_.shards(replicas, form.shards) ? ms / replicas : ms;
  }
  /// With what the all-reduce takes from the core.
  double updateMs(const Stage& stage, int replicas, const StageForm& form, double speed) const {
    return optimizerMs(stage, replicas, form, speed) + allReduceCoreMs(stage, replicas, speed);
  }
  void memoryTerms(const Stage& stage, int replicas, const StageForm& form, std::int64_t& base,
                   std::int64_t& perWarmup) const;

  const CostGraph& graph_;
  const SolverProblem& problem_;
  const States& states_;
  const Machine& machine_;
  const PlannerOptions& options_;
  std::vector<std::vector<int>> sharedUsers_; ///< blocks that use each shared parameter, with repetitions
  std::vector<std::vector<int>> frozenUsers_; ///< the same of each frozen parameter that several nodes use
  std::optional<SolverWays> ways_;
  /// Of the only stage of a plan, without and with recomputation.
  struct Reducing {
    std::vector<GradientBucket> buckets;
    double ms = 0; ///< the time in which they become final
  };
  std::array<Reducing, 2> reducing_;
  bool flush_ = false, drains_ = false, overlap_ = false, hides_ = false, stashes_ = false;
  std::vector<StageForm> forms_;
  double microbatches_ = 1;
  int unit_ = 1, team_ = 1;
  bool mixes_ = false;
  StageHost best_;
};

} // namespace pdc
