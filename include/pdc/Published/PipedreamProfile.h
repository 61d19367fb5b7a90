// Profiles of PipeDream's profiler (graph.txt), as cost graphs.
#pragma once

#include "pdc/Plan/CostGraph.h"

namespace pdc {

/// Reads a graph.txt:
///
///   node<ID> -- <module repr> -- forward_compute_time=<ms>, backward_compute_time=<ms>, activation_size=<bytes>,
///               parameter_size=<bytes>[ -- stage_id=<int>]        (one line)
///   <TAB>node<A> -- node<B>
///
/// One node per line, in the file's order if that is topological, else in a topological order that departs from it as
/// little as possible; named "node<ID> <module repr>". Input nodes and sinks named __getitem__ are dropped. Half of the
/// backward is input gradient, half weight gradient. Every node saves its activation and, if it has consumers, has one
/// tensor of that size with a gradient. Times are ms per minibatch.
Expected<CostGraph> pipedreamProfileFromText(const std::string& text, const std::string& file, Diagnostics& diags);

} // namespace pdc
