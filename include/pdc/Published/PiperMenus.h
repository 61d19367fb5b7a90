// Piper's problems in the terms of cost model `pdc`: each way to run nodes, by tensor-parallel degree and choices, is a
// split that the planner may choose for a stage (CostGraph::divided).
//
// Piper's TPS (Piper/Definition.h) adds up what a device computes, sends and receives. So every byte here occupies the
// device that sends it and the one that receives it for 1/bandwidth (DeviceKind::coreSPerByte), and links take no time
// of their own. Its batch of N microbatches without a flush, with y = ceil(Σ d / d) of them in flight, is schedule 2bw
// with PipeDream's warm-up. Then the load of a stage is
//
//   (F + B)/R + U/m = Σ p/d + 2·bytes/(d·B) + 4(d-1)·w/(d·N·B)
//
// which is TPS but for the bytes of an edge. A split knows a tensor by one size, so an edge within one split carries
// the mean of what Piper charges its two ends: bytes + (syncBackward of the tail + syncForward of the head)/2. Between
// splits over t and t' members `pdc` sends the edge's bytes to each receiver, from member j mod t of the sender to
// member j, where Piper charges each end its own sync.
//
// A stage takes Σ a·y + b, as Piper's. `pdc` counts two versions of the parameters, which are of b, and buffers for
// what travels, which Piper does not count. They would weigh as much as what is saved, so what travels is stated in
// units: the largest power of two that divides the bytes of every edge, at most 1 MiB, and no more than leaves
// parameters four digits.
//
// A node keeps two of its choices for a degree: the fastest, and the one that takes the least memory per sample in
// flight. The first way of a degree runs all nodes by their fastest choice, the last one by their smallest, and
// those between spread the smallest evenly over the nodes in their order.
#pragma once

#include "pdc/Cost/CostModel.h"
#include "pdc/Plan/CostGraph.h"
#include "pdc/Plan/Plan.h"
#include "pdc/Plan/PlannerOptions.h"
#include "pdc/Published/Piper.h"

namespace pdc {

struct PiperMenus {
  CostGraph graph; ///< times in ms where the file's unit is the second
  Cluster cluster;
  std::vector<std::int64_t> nodes; ///< the problem's node that each of the graph's is
  std::vector<std::vector<std::size_t>>
      taken; ///< by number of a split and node of the graph: place in PiperNode::choices
};

/// Degrees that some node does not offer are left out, and those over 1,024 or more than there are devices. `between`:
/// ways between the fastest and the smallest of a degree. Reports ExitCode::invalidInput if no degree is left, or
/// planPiper() would.
Expected<PiperMenus> menusOf(const PiperProblem& problem, int between, Diagnostics& diags);

/// With one way for each degree: each node runs by its choice in `plan`, a plan of the problem, for the degree that it
/// has there, and by its fastest for others.
PiperMenus menusOfPlan(const PiperProblem& problem, const Plan& plan);

/// The stages of such a plan.
Partition partitionOf(const PiperMenus& menus, const Plan& plan);

/// The stages of a plan of menusOf(problem).graph as a plan of the problem, whose time is by Piper's definition:
/// infinite where that does not allow the plan. `chooses`: with the best choice for each node (a knapsack, within
/// memory), else with those of the splits.
Plan piperPlanOf(const PiperProblem& problem, const PiperMenus& menus, const Plan& plan, bool chooses);

} // namespace pdc
