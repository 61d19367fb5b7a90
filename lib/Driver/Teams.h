// --split: the graphs of a member of a team, the teams as the planner's devices, and the members' devices in a plan.
#pragma once

#include "ExpertLoads.h"
#include "pdc/Driver/Compile.h"
#include "pdc/Pass/Pass.h"
#include "pdc/Transforms/Split.h"

namespace pdc {

/// Refuses --split=ep:N where samples of an input do not lie along its first axis.
Status checkSamples(const Graph& graph, const TeamSplit& split, const BatchAxes& batch, Diagnostics& diags);

/// The split, as the graph is divided by it.
SplitOptions optionsOf(const TeamSplit& split);

/// Adds the graphs of a member beside the undivided @main and @evaluate, under these names and the split's suffix. The
/// decision on each axis class goes to `classes`. Layers get the orders of `plans`; `placed` tells which did.
Status divideOverTeam(PassContext& context, const TeamSplit& split, const ExpertPlans& plans,
                      std::vector<SplitClass>& classes, std::vector<PlacedLayer>& placed);

/// Puts the graphs of a member in the place of @main and @evaluate, and drops all others.
void takeGraphsOf(Module& module, const TeamSplit& split);

/// The machines with teams of so many neighbouring devices as devices. An error if the devices of the innermost level
/// are not whole teams, or those of a team differ.
Expected<Cluster> teamsOf(const Cluster& machines, const TeamSplit& split, Diagnostics& diags);

/// What a plan for teams becomes for their devices, which are those of `machines`: a rank has the devices of its team.
void giveDevices(Plan& plan, const TeamSplit& split, const Cluster& machines);

/// Refuses a plan with another split.
Status checkSplit(const Plan& plan, const TeamSplit& split, Diagnostics& diags);

bool areDifferent(const std::vector<TeamSplit>& splits);
/// The splits of the stages; none where all have the same.
std::vector<TeamSplit> differentSplits(const Plan& plan);
/// What the stage is cut out of: @main, or @main.tp2 where stages have different splits.
Graph& mainOf(const Module& module, const Plan& plan, std::size_t stage);

/// Gives each stage the split of its place in the list, and the ranks neighbouring devices of the plan's machines, or
/// of `machines` where those are too few, unless the plan has these splits already.
Status giveSplits(Plan& plan, const std::vector<TeamSplit>& splits, const Cluster& machines, Diagnostics& diags);

/// Refuses a plan with teams that cannot run: its ranks have no device for each member, or host stages with teams of
/// different sizes.
Status checkTeams(const Plan& plan, Diagnostics& diags);

/// For --explain: what is divided, what is not, and why.
std::string toText(const std::vector<SplitClass>& classes);

} // namespace pdc
