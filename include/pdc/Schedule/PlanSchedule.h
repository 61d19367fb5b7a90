// From a plan to its verified schedule, and what the simulator predicts for it.
#pragma once

#include "pdc/Plan/Plan.h"
#include "pdc/Schedule/PipelineShape.h"
#include "pdcrt/Check.h"

namespace pdc {

/// d_s of a stage with so many replicas: 1 if `plan` is a 1F1B pipeline with sync=overlap and the stage is replicated,
/// else 0.
int syncDelayFor(const Plan& plan, int replicas);

/// What travels between two stages for each minibatch.
struct EdgeTraffic {
  pdcrt::ScheduleEdge edge;
  std::int64_t forwardBytes = 0;
  std::int64_t backwardBytes = 0;
};

/// The edges of a plan, sorted by (from, to). A tensor goes from its producer to every stage that uses it; its gradient
/// goes from the last of these stages to the next earlier, which adds its part, and from the first to the producer.
std::vector<EdgeTraffic> trafficOf(const Plan& plan);

PipelineShape shapeOf(const Plan& plan);

/// The schedule of a plan, executed for every drain before it is returned. Reports an error with a table of who waits
/// for whom if it cannot run. Ranks that host more than one stage replica are not supported yet.
Expected<pdcrt::Schedule> scheduleFor(const Plan& plan, Diagnostics& diags);

/// The times of a plan for the machine of pdcrt/Check.h: compute and all-reduce times from the stages, transfers from
/// the cluster's bandwidth and latency; the links of a rank are shared, and so are the device's cores.
pdcrt::Times timesOf(const Plan& plan);

/// A prediction.
struct Simulation {
  double timePerMinibatchMs = 0;
  std::vector<double> idleFraction; ///< per rank, over the whole run
  pdcrt::CheckResult run;
};

/// Executes `schedule` with the plan's times. `minibatches` 0: as many as show the steady state.
Simulation simulate(const Plan& plan, const pdcrt::Schedule& schedule, std::int64_t minibatches = 0,
                    bool trace = false);

} // namespace pdc
