// Where the planner's costs come from: measured in a generated program, remembered from an earlier measurement, or
// estimated.
#pragma once

#include "Generate.h"
#include "ProfilingProgress.h"
#include "pdc/Analysis/Profile.h"

namespace pdc {

/// What a measurement depends on besides the model.
struct MeasureOptions {
  bool splitBackward = false; ///< the halves of a backward are timed apart, in a program that keeps them apart
  Target target = Target::cpu;
  int threads = 1; ///< OpenMP threads of the kernels
};

/// Generates and builds a one-stage program of the module in a temporary folder, and has it time every group in
/// context, and the link between two ranks of this machine. `busyCores` such programs run at once, and times are the
/// mean of theirs: cores that compute side by side share memory, caches and frequency, so that each is slower than one
/// that computes alone. Where updates matter, a second program tells what they take in the middle of the backwards. A
/// program for a GPU measures on the first one, alone, and no link. A program that keeps the halves of a backward apart
/// is slower than others.
Expected<Profile> measure(PassContext& context, const pdcrt::Training& training, const Provenance& provenance,
                          std::int64_t busyCores, const MeasureOptions& options, ProfilingProgress& progress);

/// How many cores of this machine compute at once when all devices of the cluster do: what to measure with. 1 where
/// devices do not share this machine.
std::int64_t busyCoresOf(const Cluster& cluster);

/// Whether --profile= names a file that is there.
bool isProfileFile(const std::string& choice);

/// --profile=: "auto" takes a valid measurement from the cache ($XDG_CACHE_HOME/pdc, else ~/.cache/pdc), else measures,
/// else estimates with a warning; "measure" always measures; "analytic" estimates; anything else is a file, which must
/// be a profile of this model, with halves of backwards where `options` want them. For a GPU "auto"
/// estimates, and nothing is remembered: the file has the name of the cluster's device, which need not be this
/// machine's.
Expected<Profile> chooseProfile(const std::string& choice, PassContext& context, const pdcrt::Training& training,
                                const Provenance& provenance, const Cluster& cluster, const MeasureOptions& options);

} // namespace pdc
