// Experts in another order, so that members of a team have those that together take as many tokens as others': what
// chooses an expert is told its place instead, and parameters lie in that order (pdcrt::Part::order). All in between
// computes the same for each expert, wherever it lies.
#pragma once

#include "pdc/Pass/Pass.h"
#include "pdc/Transforms/Split.h"

#include <map>
#include <memory>

namespace pdc {

using ExpertOrders = std::map<const Parameter*, std::vector<std::int32_t>>;

/// A copy of the graph in which rows go to the places of their experts: all that reads or makes slots, in the forward
/// and the backward, looks the places up. `orders` gets those of the parameters. Null where that failed: an order is of
/// no layer, or of another number of experts (ExitCode::usage).
std::unique_ptr<Graph> reorderExperts(PassContext& context, const Graph& graph, const SplitOptions& options,
                                      ExpertOrders& orders, std::vector<PlacedLayer>& placed);

/// The same of another graph with these parameters. Null: it does something else with them (ExitCode::internal).
std::unique_ptr<Graph> reorderExpertsAs(PassContext& context, const Graph& graph, std::int64_t members,
                                        const ExpertOrders& orders);

} // namespace pdc
