// --split=auto: the plan of each split that may be of use, that with a split for each stage, and the fastest of them.
#pragma once

#include "PlanRequest.h"
#include "pdc/Analysis/Profile.h"
#include "pdc/Driver/Compile.h"
#include "pdc/Support/Diagnostics.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace pdc {

/// A split of all stages, and what the planner makes of it.
struct OfferedSplit {
  TeamSplit split;
  std::optional<Plan> plan; ///< over teams as devices; nothing: see `reason`
  Profile profile;
  std::optional<CostGraph> costs = {}; ///< of a member; nothing: see `reason`
  Cluster machines = {};               ///< with what a measurement found out
  std::string reason;
  std::vector<Diagnostic> warnings; ///< of the profile: that costs are estimated, or a link is not measured
};

/// Plans with a split. Times of a divided graph are, with `whole`, those of scaledProfile; without, they are chosen as
/// options.profile says.
using PlanSplit = std::function<OfferedSplit(const TeamSplit&, const Profile* whole)>;

/// The splits to offer for so many devices of a machine: none; for each degree, ascending, tp, tps, sp and ep. Without
/// `degrees`: all from 2 to 8 that divide the devices; where each stage may have another split (`ofEach`), 2 and 4,
/// too.
std::vector<TeamSplit> splitsToOffer(std::int64_t devices, const std::vector<int>& degrees, bool ofEach);

/// None, and those of the stages, each once.
std::vector<TeamSplit> splitsOf(const std::vector<TeamSplit>& stages);

/// Where times of divided graphs come from.
enum class SplitTimes {
  estimated, ///< as those of the undivided graph
  scaled,    ///< from those of the undivided graph
  measured   ///< scaled; plans near the fastest are made again with measured times, until all have those
};

/// How splits are offered.
struct SplitOffers {
  SplitTimes times = SplitTimes::estimated;
  double leastGain = 0; ///< the part of the time without splits that a split must save
  /// A plan with scaled times may get this much faster by measuring: as much slower than the fastest, it is measured.
  double mostByMeasuring = 1.3;
  PlanSplit plan;
};

/// What a split must save where no flag asks for splits (docs/decisions/0018-splits.md).
inline constexpr double leastGainByDefault = 0.02;

/// Plans with every split, in their order. The first is none.
std::vector<OfferedSplit> offerSplits(const std::vector<TeamSplit>& splits, const SplitOffers& how);

/// A plan in which each stage may have another split, and the cost graph that it was made of.
struct StagesPlan {
  CostGraph graph;
  Plan plan;
};

/// Plans with the splits of `offers` for each stage, by `planGraph`. Splits of the plan whose times are scaled are
/// measured first if `how` says so and the plan could be taken: because its splits are given, or because it is faster
/// than that of any offer. Nothing: there is no such plan.
std::optional<StagesPlan> planStages(std::vector<OfferedSplit>& offers, const SplitOffers& how, bool isGiven,
                                     const std::function<std::optional<Plan>(CostGraph&)>& planGraph);

/// The fastest, if it saves the `leastGain`; equally fast: the one of fewer members, then the first. Null: none has a
/// plan.
const OfferedSplit* fastestOf(const std::vector<OfferedSplit>& offers, double leastGain = 0);

/// What a plan must take less than to be taken instead of any of these, in milliseconds.
double leastTimeOf(const std::vector<OfferedSplit>& offers, double leastGain = 0);

/// The times of `whole`, of the undivided graph, group by group in the ratio of the estimates of a member's graph and
/// of that. Measured times become "scaled" ones.
Profile scaledProfile(const Profile& whole, const Profile& estimateOfWhole, const Profile& estimateOfMember);

/// Why no splits are offered unless a flag asks for them.
struct WhyUndivided {
  std::string reason;             ///< for people; empty: they are offered
  bool unlessNothingFits = false; ///< they are offered if there is no plan without them
};
inline constexpr const char* timesAreEstimated = "their times are estimated";
WhyUndivided whyUndivided(const PlanRequest& request, const CompileOptions& options);

/// Whether stages may have different splits under this schedule, and with these options.
bool canMixSplits(const PlanRequest& request, const CompileOptions& options);

/// What each split takes, and why others are not offered, for people. `taken` may be null.
std::string toText(const std::vector<OfferedSplit>& offers, const OfferedSplit* taken);
/// The splits of a plan's stages, and what it takes.
std::string toText(const Plan& plan, bool isTaken);

/// Over which splits something is proven, for people; empty without offers. `ofEach`: each stage may have another one.
std::string overText(const std::vector<OfferedSplit>& offers, bool ofEach);

/// What is proven: no plan with any of these splits is faster than this, in milliseconds.
double lowerBoundOf(const std::vector<OfferedSplit>& offers);

} // namespace pdc
