// --split=auto: the plan of each split that may be of use, and the fastest of them.
#pragma once

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
  std::string reason;
  std::vector<Diagnostic> warnings; ///< of the profile: that costs are estimated, or a link is not measured
};

/// Plans with a split. Times of a divided graph are, with `whole`, those of scaledProfile; without, they are chosen as
/// options.profile says.
using PlanSplit = std::function<OfferedSplit(const TeamSplit&, const Profile* whole)>;

/// The splits to offer for so many devices of a machine: none; for each degree, ascending, tp, tps, sp and ep. Without
/// `degrees`: all from 2 to 8 that divide the devices.
std::vector<TeamSplit> splitsToOffer(std::int64_t devices, const std::vector<int>& degrees);

/// Where times of divided graphs come from.
enum class SplitTimes {
  estimated, ///< as those of the undivided graph
  scaled,    ///< from those of the undivided graph
  measured   ///< scaled; the fastest plan is made again with measured times, until it has those
};

/// Plans with every split, in their order. The first is none.
std::vector<OfferedSplit> offerSplits(const std::vector<TeamSplit>& splits, SplitTimes times, const PlanSplit& plan);

/// The fastest; equally fast: the one of fewer members, then the first. Null: none has a plan.
const OfferedSplit* fastestOf(const std::vector<OfferedSplit>& offers);

/// The times of `whole`, of the undivided graph, group by group in the ratio of the estimates of a member's graph and
/// of that. Measured times become "scaled" ones.
Profile scaledProfile(const Profile& whole, const Profile& estimateOfWhole, const Profile& estimateOfMember);

/// What each split takes, and why others are not offered, for people.
std::string toText(const std::vector<OfferedSplit>& offers);

/// Over which splits something is proven, for people; empty without offers.
std::string overText(const std::vector<OfferedSplit>& offers);

/// What is proven: no plan with any of these splits is faster than this, in milliseconds.
double lowerBoundOf(const std::vector<OfferedSplit>& offers);

} // namespace pdc
