// Cost model `dnn-partitioning`: what a plan costs and what it must obey, straight from the definition (Tarnawski et
// al., "Efficient Algorithms for Device Placement of DNN Graph Operators", NeurIPS 2020). The tests trust this file; it
// shares only the records of problem and plan with the solver.
//
//   load of an accelerator   Σ acceleratorTime of its nodes
//                            + cost of the output of each of its nodes that has a consumer elsewhere (once)
//                            + cost of each output made elsewhere that has a consumer on it (once)
//   load of a CPU            Σ cpuTime of its nodes; transfers are charged to accelerators only
//   objective                the largest load
//
// All edges out of a node carry its one output, so they must have one cost. Nodes of a colour share a device; an
// accelerator holds only nodes that it can compute, of a total size within its memory.
//
// The split is contiguous: devices are in an order such that no edge between two forward nodes leads to an earlier
// device, and no edge between two backward nodes leads, against the backward pass, to a later one. Edges between a
// forward and a backward node cost what they cost, and order nothing.
#pragma once

#include "pdc/Plan/Plan.h"
#include "pdc/Published/DnnPartitioning.h"

#include <string>

namespace pdc {

/// Whether the file lists the edges between backward nodes in the direction of the forward pass (as layer files do)
/// rather than as data flows: of the two readings, the one under which fewer nodes are forced onto one device by
/// colours and cycles of order. If neither reading forces fewer, data flows as listed.
bool backwardListedForward(const DnnPartitioningProblem& problem);

/// Load of one device that holds `nodes`, in the problem's unit.
double dnnPartitioningLoad(const DnnPartitioningProblem& problem, const std::vector<std::int64_t>& nodes, bool isCpu);

/// The largest load of the plan's stages.
double dnnPartitioningTimeOf(const DnnPartitioningProblem& problem, const Plan& plan);

/// What is wrong with a plan: nodes missing or on two devices, too many devices, a colour torn apart, an edge against
/// the order of the devices, a node where it cannot run, too little memory, or a timeMs that is not the largest load
/// (relative 1e-9). Empty if nothing is.
std::string verifyDnnPartitioning(const DnnPartitioningProblem& problem, const Plan& plan);

} // namespace pdc
