// The planner's answer: stages, replicas, devices, warm-up, and what they are expected to cost. A plan file is enough
// for the simulator and for the runtime.
#pragma once

#include "pdc/Plan/Cluster.h"
#include "pdc/Support/Expected.h"

#include <cstdint>
#include <string>
#include <vector>

namespace pdc {

class Diagnostics;

struct PlanStage {
  std::vector<std::int64_t> nodes;    ///< ids of the cost graph's nodes (fusion groups), ascending
  std::vector<std::string> nodeNames; ///< for people
  int replicas = 1;
  int warmup = 0;    ///< w_s
  int syncDelay = 0; ///< d_s
  // Times of one minibatch on one device, not divided by replicas.
  double forwardMs = 0;
  double inputGradientMs = 0;
  double weightGradientMs = 0;
  double updateMs = 0;
  double allReduceMs = 0; ///< sync_s of planner.md: one all-reduce of this stage
  std::int64_t parameterBytes = 0;
  std::int64_t gradientBytes = 0; ///< one set of accumulators
  std::int64_t savedBytes = 0;    ///< per minibatch in flight
  std::int64_t scratchBytes = 0;  ///< scratch and workspace
  std::int64_t memoryBytes = 0;   ///< arena of one replica, predicted; exact once code is generated

  double computeMs() const { return forwardMs + inputGradientMs + weightGradientMs; }
};

/// A tensor that crosses from one stage to another.
struct PlanTensor {
  std::string name;
  int from = 0, to = 0;
  std::int64_t bytes = 0;
  bool hasGradient = true; ///< as many bytes come back (along the chain of consumer stages)
};

struct PlanRank {
  int rank = 0;
  std::vector<std::int64_t> devices;
  struct Host {
    int stage = 0, replica = 0;
  };
  std::vector<Host> hosts;
};

struct Plan {
  std::string model;
  std::string modelHash;
  std::string costSource;
  std::string schedule = "1f1b";
  std::string weights = "stash";
  std::string sync = "overlap";
  std::int64_t microbatches = 1; ///< per update, of flushing schedules
  double timeMs = 0;             ///< T: predicted steady-state time per minibatch (microbatch when flushing)
  double lowerBoundMs = 0;       ///< no plan of the planner's search space is faster
  std::vector<PlanStage> stages;
  std::vector<PlanTensor> tensors;
  std::vector<PlanRank> ranks;
  Cluster cluster;

  double gap() const { return lowerBoundMs > 0 ? timeMs / lowerBoundMs - 1 : 0; }
};

/// The same plan gives the same bytes. Reading checks that stages, ranks and tensors fit together, and reports the
/// first mistake with its JSON pointer.
std::string toJson(const Plan& plan);
Expected<Plan> planFromJson(const std::string& text, const std::string& file, Diagnostics& diags);

} // namespace pdc
