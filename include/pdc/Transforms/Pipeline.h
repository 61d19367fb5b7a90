// The pipelines that pdc runs on the whole graph, as data: the driver runs them, docs/Passes.md prints them.
//
//   afterImport → a step add-loss for each loss → afterLosses → a step add-lora for each --lora → trainingStep →
//   layouts → the plan
//
// The pipeline of the stages follows, after the plan (pdc/Stage/StagePolicy.h).
#pragma once

#include "pdc/IR/Target.h"
#include "pdc/IR/Type.h"
#include "pdc/Pass/Pass.h"

#include <string>
#include <vector>

namespace pdc {

/// The choices that decide which passes run, and with which options.
struct TransformChoices {
  Target target = Target::cpu;
  ElementType precision = ElementType::f32; ///< of products; f32: no pass of low precision runs
  std::string lossScale = "1";              ///< the gradient of the losses, or "dynamic"
  bool remarks = false;                     ///< on fusion and layouts
  bool skipsPadding = false;                ///< of f32 for the CPU
};

/// Right after the import.
std::vector<PipelineStep> afterImportSteps(double capacity = 0);

/// Once @main has its losses.
std::vector<PipelineStep> afterLossesSteps();

/// From the forward with its losses to the graph of a whole training step, in fusion groups that no cut changes.
/// Afterwards the hash of the model is taken, which is the same for all targets.
std::vector<PipelineStep> trainingSteps(const TransformChoices& choices);

/// Layouts for the target, after the hash.
std::vector<PipelineStep> layoutSteps(const TransformChoices& choices);

/// Then, of graphs that no team divides.
std::vector<PipelineStep> paddingSteps(const TransformChoices& choices);

} // namespace pdc
