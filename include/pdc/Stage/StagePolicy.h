// What is done to the graph of each stage after the cut, and why: one record per stage, decided once. The stage passes,
// the memory plan and the emitter read the record; nobody else asks the plan or the schedule again.
#pragma once

#include "pdc/IR/Target.h"
#include "pdc/Plan/Plan.h"
#include "pdc/Stage/StagePasses.h"
#include "pdcrt/Schedule.h"

#include <string>
#include <vector>

namespace pdc {

/// What the flags and the training say about all stages alike.
struct StagePolicyOptions {
  Target target = Target::cpu;
  bool lateUpdates = false;     ///< --updates=late: no parameter is updated before its stage has all gradients
  bool checksGradients = false; ///< the update looks at all gradients first (clipping, skipping, loss scale)
  bool splitBackward = false;   ///< the halves of a backward are two functions even where the schedule joins them
  bool computeAgain = false;    ///< cheap values may be recomputed
  bool debugNan = false;        ///< the program looks at every result (--debug-nan)
};

/// The decisions for one stage.
struct StagePolicy {
  int stage = 0;
  bool recompute = false;        ///< its backward begins by computing the whole forward again (recomputeForward)
  bool splitBackward = false;    ///< weight gradients are a function of their own
  bool earlyUpdates = false;     ///< its backward updates each parameter as soon as it has the gradient
  bool gradientsInParts = false; ///< large gradients are made, and used up, in parts; implies earlyUpdates
  bool computeAgain = false;     ///< its backward recomputes values that one pass over memory gives
  bool keepConversions = false;  ///< its backward reads the weights that its forward has converted
  bool oneSlot = false;          ///< a replica has one slot, and its rank hosts no other stage
  std::string whyLate = {};      ///< the reason why there are no early updates; empty: there are

  friend bool operator==(const StagePolicy&, const StagePolicy&) = default;
};

/// Whether the program of `stage` updates each parameter inside the backward, under `options` and a schedule of these
/// lists. This is the only place that decides it: costs ask it about the schedule that a plan will get, policies about
/// the schedule that a plan has. Empty: it does; else the reason why not.
std::string whyLateUpdates(const StagePolicyOptions& options, const pdcrt::Schedule& schedule, int stage);

/// Whether every stage with one replica will update early under `schedule`, so that costs may count on it.
bool updatesEarly(const StagePolicyOptions& options, const pdcrt::Schedule& schedule);

/// One record per stage, in the order of `stages`, from the plan (recomputation, ranks, memory of the devices), its
/// schedule, and the graphs of the cut.
std::vector<StagePolicy> stagePolicies(const Plan& plan, const pdcrt::Schedule& schedule,
                                       const std::vector<StageGraphs>& stages, const StagePolicyOptions& options);

/// The cut: the step before all others. `splits` are those of the stages, where they are not cut out of @main.
PipelineStep splitStep(const std::vector<int>& stageOfGroup, const std::vector<TeamSplit>& splits = {});

/// Right after it, what the plan wants encoded: names of values, one per line.
PipelineStep encodeStep(const std::string& codec, const std::string& tensors);

/// The steps that carry out `policies`, in the order in which they run. Steps that no stage needs are left out.
std::vector<PipelineStep> stageSteps(const std::vector<StagePolicy>& policies);

/// For --explain: a line per stage.
std::string toText(const std::vector<StagePolicy>& policies);

} // namespace pdc
