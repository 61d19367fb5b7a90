// Piper's problem as the solver reads it: dense, in units of time, without choices that cannot matter.
#pragma once

#include "pdc/Planner/Order/Dag.h"
#include "pdc/Published/Piper.h"

#include <optional>

namespace pdc {

/// Refuses a problem without nodes, devices, microbatches or bandwidth, and two choices of one id.
Status checkPiperProblem(const PiperProblem& problem, Diagnostics& diags);

/// A choice of a node for one tensor-parallel degree.
struct PiperOption {
  int choice = 0;    ///< its place in the input's list
  double time = 0;   ///< p
  double weight = 0; ///< 4·w/(N·B): TPS of a stage = (cost + (d-1)·weight)/d, with cost = time + cuts
  double memoryA = 0, memoryB = 0;
  std::vector<double> cuts; ///< time if the node's i-th edge is cut: 2·(bytes + sync)/B
};

struct PiperInstanceNode {
  std::vector<std::size_t> neighbours;           ///< the other end of the i-th edge
  std::vector<std::vector<PiperOption>> options; ///< by index of tensor-parallel degree; empty: not offered
};

struct PiperInstance {
  Dag dag;
  std::vector<PiperInstanceNode> nodes;
  std::vector<std::int64_t> tensorDegrees; ///< t that some node offers, ascending
  std::vector<std::int64_t> dataDegrees;   ///< d that a stage may have, ascending
  std::int64_t devices = 0, replicas = 0;  ///< Σ d·t <= devices, Σ d <= replicas
  double memory = 0;
  std::vector<double> work; ///< of each node, device-time per sample that it takes at least: min t·p

  /// Nothing if the edges form a cycle. A choice that another one equals or beats in everything is dropped: replacing
  /// it in a plan keeps the plan valid and makes no stage slower.
  static std::optional<PiperInstance> make(const PiperProblem& problem, bool replicate);
};

} // namespace pdc
