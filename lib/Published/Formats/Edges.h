// What the readers of other people's graphs share: orders and cycles of edges between numbered nodes.
#pragma once

#include "pdc/Support/Diagnostics.h"

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace pdc {

/// (from, to), indices of nodes.
using Edges = std::vector<std::pair<std::int64_t, std::int64_t>>;

/// The topological order that always takes the smallest node that is ready: 0, 1, 2, … where that order is topological.
/// Holds fewer than `nodes` elements if there is a cycle.
std::vector<std::int64_t> topologicalOrder(std::int64_t nodes, const Edges& edges);

/// The nodes of some cycle, in its direction, starting at the smallest; empty if there is none.
std::vector<std::int64_t> findCycle(std::int64_t nodes, const Edges& edges);

/// Reports a cycle, if there is one, by the names of its nodes.
Status refuseCycles(std::int64_t nodes, const Edges& edges, const std::function<std::string(std::int64_t)>& nameOf,
                    const std::string& file, Diagnostics& diags);

} // namespace pdc
