// The graph of a member: operations on parts, and collectives where the forms of values do not agree.
#pragma once

#include "Split/ChooseClasses.h"
#include "pdc/Pass/Pass.h"

namespace pdc {

/// `graph` as a member of a team runs it, under the name `name`; null, with an error reported, where that failed.
std::unique_ptr<Graph> rewriteForTeam(PassContext& context, const Graph& graph, const std::string& name,
                                      const LoopTable& loops, const Choice& choice, const SplitOptions& options,
                                      const Graph* training = nullptr);

} // namespace pdc
