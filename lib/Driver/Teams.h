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

/// Puts the graphs of a member in the place of @main and @evaluate. `classes` are told what became of each axis class.
/// Layers get the orders of `plans`; what became of that is told in `placed`.
Status divideOverTeam(PassContext& context, const TeamSplit& split, const ExpertPlans& plans,
                      std::vector<SplitClass>& classes, std::vector<PlacedLayer>& placed);

/// The machines with teams of so many neighbouring devices as devices. An error if the devices of the innermost level
/// are not whole teams, or those of a team differ.
Expected<Cluster> teamsOf(const Cluster& machines, const TeamSplit& split, Diagnostics& diags);

/// What a plan for teams becomes for their devices, which are those of `machines`: a rank has the devices of its team.
void giveDevices(Plan& plan, const TeamSplit& split, const Cluster& machines);

/// Refuses a plan file for another split.
Status checkSplit(const Plan& plan, const TeamSplit& split, const std::string& file, Diagnostics& diags);

/// For --explain: what is divided, what is not, and why.
std::string toText(const std::vector<SplitClass>& classes);

} // namespace pdc
