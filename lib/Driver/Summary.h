// What pdc prints about a plan and about a profile.
#pragma once

#include "Generate.h"
#include "pdc/Analysis/Profile.h"
#include "pdc/Driver/Compile.h"

#include <iosfwd>

namespace pdc {

/// How far the plan may be from the best one: "proven optimal".
std::string certificateOf(const Plan& plan);

/// The table of the stages, the predicted time, and what to type next.
void printSummary(const GeneratedProgram& program, const std::string& costSource, const std::string& output,
                  const std::string& dataFiles, std::ostream& out);

/// What frozen weights of 8 bits save, a line for each stage that has some: "stage 0: 12 weights take 31.4 MiB in 8
/// bits, 124.1 MiB in f32".
std::string int8Text(const std::vector<StageGraphs>& stages);

/// Times of the groups and of the kernels that can compute in several ways.
void printProfile(const Profile& profile, std::ostream& out);

/// Says so where the plan leaves devices out, which a user who counts on them would not see.
void remarkOnUnused(const Plan& plan, const Cluster& machines, const CompileOptions& options, bool replicasAreGiven,
                    Diagnostics& diags);

/// Says so where tensors cross encoded: then the cut changes what is trained.
void warnOfCodecs(const Plan& plan, Diagnostics& diags);

} // namespace pdc
