// What the groups of a model cost, for the planner: a profile, and the cost graph made from it.
#pragma once

#include "PlanRequest.h"
#include "pdc/Analysis/Profile.h"
#include "pdc/CodeGen/StageEmitter.h"

namespace pdc {

struct Costs {
  Profile profile;
  CostGraph graph;
};

/// Chooses a profile as options.profile says (Measure.h), and makes the cost graph of the programs that `request`
/// expects. The machines of the request learn what a measurement found out about links and memory. Errors: as of
/// chooseProfile and costGraphOf. `given` is a profile of the graph as it is, chosen before.
Expected<Costs> costsOf(PassContext& context, const CompileOptions& options, const pdcrt::Training& training,
                        const Provenance& provenance, PlanRequest& request, const Profile* given = nullptr);

} // namespace pdc
