#include "pdc/Transforms/Pipeline.h"

#include <iomanip>
#include <sstream>

using namespace pdc;

std::vector<PipelineStep> pdc::afterImportSteps(double capacity) {
  // `raise` runs before differentiation, because a fused backward cannot be recovered afterwards.
  std::vector<PipelineStep> steps = {{"canonicalize", {}}, {"raise", {}}};
  std::ostringstream factor;
  factor << std::setprecision(17) << capacity;
  if (capacity > 0) steps.push_back({"set-capacity", {{"factor", factor.str()}}});
  return steps;
}

std::vector<PipelineStep> pdc::afterLossesSteps() {
  return {{"name-terms", {}}, {"canonicalize", {}}};
}

std::vector<PipelineStep> pdc::trainingSteps(const TransformChoices& choices) {
  const bool low = choices.precision != ElementType::f32;
  std::vector<PipelineStep> steps;
  if (low) {
    steps.push_back({"lower-precision", {{"type", nameOf(choices.precision)}}});
    steps.push_back({"align-classes", {}});
    steps.push_back({"merge-heads", {}});
    steps.push_back({"canonicalize", {}});
  }
  steps.push_back({"order-branches", {}});
  steps.push_back({"differentiate", {{"loss_scale", choices.lossScale}}});
  if (low) steps.push_back({"widen-gradients", {}});
  steps.push_back({"fuse", {}});
  if (choices.remarks) steps.back().options["remarks"] = "";
  if (low) steps.push_back({"convert-again", {}});
  steps.push_back({"add-evaluation", {}});
  return steps;
}

std::vector<PipelineStep> pdc::layoutSteps(const TransformChoices& choices) {
  PipelineStep layout = {"layout", {}};
  if (choices.remarks) layout.options["remarks"] = "";
  // The CPU's convolutions want channels in blocks, tensor cores want channels last.
  if (choices.target == Target::cuda) layout.options["last"] = "";
  return {layout};
}

std::vector<PipelineStep> pdc::paddingSteps(const TransformChoices& choices) {
  std::vector<PipelineStep> steps;
  if (choices.skipsPadding) steps.push_back({"skip-padding", {}});
  if (choices.skipsPadding && choices.remarks) steps.back().options["remarks"] = "";
  return steps;
}
