// --split: the graphs of the splits that the stages have.
#pragma once

#include "pdc/Analysis/Profile.h"
#include "pdc/Driver/Compile.h"
#include "pdc/Pass/Pass.h"

#include <functional>
#include <iosfwd>

namespace pdc {

/// How graphs are divided.
struct DivisionRequest {
  const CompileOptions& options;
  const BatchAxes& batch;
  std::function<Status(const std::vector<PipelineStep>&)> run; ///< passes over the module
  std::ostream& out;                                           ///< for --explain
};

/// Puts the graphs of a member in the place of @main and @evaluate: all stages have this split. Errors: samples or
/// experts cannot be divided so.
Status divideAlike(PassContext& context, const TeamSplit& split, const DivisionRequest& request);

/// Adds the graphs of each of these splits beside @main and @evaluate: each stage has one of them. Calls of kernels get
/// the algorithms that are the fastest of `times`, where @main has them. Errors: as above.
Status divideEach(PassContext& context, const std::vector<TeamSplit>& splits, const std::vector<KernelTime>& times,
                  const DivisionRequest& request);

/// Takes over the splits of a plan: one for all stages, or one for each.
void takeSplitsOf(const Plan& plan, CompileOptions& options);

} // namespace pdc
