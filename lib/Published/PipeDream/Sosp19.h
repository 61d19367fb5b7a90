// Cost models `sosp19` and `pipedream-2018`: the partitioning recurrences of PipeDream's two papers.
//
// Narayanan et al., "PipeDream: Generalized Pipeline Parallelism for DNN Training" (SOSP 2019, §3.1), on a cluster of
// levels k = 1 … L from the inside out, level k with m_k components and bandwidth B_k:
//
//   T^k(S, m) = 1/m · max( A^{k-1}(S, m_{k-1}),  2(m-1)·|w_S| / B_k )
//   A^k(S, m) = min( T^k(S, m),  min over S = S' + S'', m' of max( A^k(S', m-m'),  2·a / B_k,  T^k(S'', m') ) )
//
// A^0(S) is the computation of S (forward and backward, without the update), and the answer is A^L(all nodes, m_L). All
// m components are used, no stage is empty. The paper's layers form a chain. On a graph a stage is the difference of
// two neighbouring down-sets, and a is the sum of the tensors that cross the down-set up to the cut, each once,
// wherever they go: what is used later passes through the stages between, as it does on the paper's chain.
//
// `pipedream-2018` (arXiv 1806.03377, §3.2) is the flat case (L = 1) with 4(m-1)/m · |w_S| / B in place of
// 2(m-1)·|w_S| / B_k, still inside 1/m.
//
// What the papers do not know: latencies, memory limits, unequal devices. Nodes of one colour share a stage; the bytes
// of a shared parameter count with the first of its nodes.
#pragma once

#include "pdc/Published/Published.h"

namespace pdc {

/// The plan with the smallest time under options.costModel ("sosp19" or "pipedream-2018"). Each stage has its nest.
/// plan.optimal says whether lowerBoundMs == timeMs is proven (relative 1e-10, for rounding). Refuses, with the reason,
/// what the recurrences do not define: unequal devices, a memory limit, a choice of schedule, recomputation, fixed
/// replica counts, and for `pipedream-2018` more than one level.
Expected<Plan> planSosp19(const CostGraph& graph, const Cluster& cluster, const PublishedOptions& options,
                          Diagnostics& diags);

/// The time of a plan in ms per minibatch straight from the recurrence that plan.costModel names, following each
/// stage's nest. Infinite if the plan is none that the recurrence allows: a node missing or twice, a tensor that goes
/// backwards, a colour torn apart, components unused or used twice.
double sosp19TimeOf(const CostGraph& graph, const Cluster& cluster, const Plan& plan);

} // namespace pdc
