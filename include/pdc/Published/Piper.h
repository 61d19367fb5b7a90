// Instances of Tarnawski et al., "Piper: Multidimensional Planner for DNN Parallelization" (NeurIPS 2021), in that
// paper's JSON. Times are in the file's unit per sample, sizes in bytes.
#pragma once

#include "pdc/Support/Expected.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace pdc {

class Diagnostics;

/// One way to run a node on `tensorParallel` devices (a "time-memory-parameter choice").
struct PiperChoice {
  std::string id;
  double time = 0;
  double parameterBytes = 0;
  double memoryA = 0, memoryB = 0;             ///< memory = memoryA · y + memoryB
  std::map<std::int64_t, double> syncForward;  ///< by the id of a predecessor, bytes
  std::map<std::int64_t, double> syncBackward; ///< by the id of a successor, bytes
};

struct PiperNode {
  std::int64_t id = 0;
  std::string name;
  std::map<std::int64_t, std::vector<PiperChoice>> choices; ///< by tensor-parallel degree
};

struct PiperEdge {
  std::int64_t from = 0, to = 0; ///< indices of nodes
  double bytes = 0;
};

struct PiperProblem {
  std::string name;
  std::vector<PiperNode> nodes; ///< in the file's order
  std::vector<PiperEdge> edges;
  std::int64_t devices = 0;      ///< k
  double memoryBytes = 0;        ///< M, per device
  double bandwidth = 0;          ///< bytes per unit of time
  std::int64_t microbatches = 0; ///< N
  /// Whether every data-parallel degree divides N, as the program released with the paper demands.
  bool degreesDivideMicrobatches = true;
};

Expected<PiperProblem> piperFromJson(const std::string& text, const std::string& file, Diagnostics& diags);

} // namespace pdc
