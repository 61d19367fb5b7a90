// What the simulator predicts for the schedule of a plan: the machine of pdcrt/Machine.h with the plan's times.
#pragma once

#include "pdc/Schedule/PlanSchedule.h"
#include "pdcrt/Simulate.h"

namespace pdc {

/// The times of a plan for the machine of pdcrt/Machine.h: compute and all-reduce times from the stages, transfers from
/// the cluster's bandwidth and latency; the links of a rank are shared, and so are the device's cores.
/// With `ownLinks` every lane (edge, direction and pair of replicas) has links for itself instead.
pdcrt::Times timesOf(const Plan& plan, bool ownLinks = false);

/// A prediction.
struct Simulation {
  double timePerMinibatchMs = 0;
  std::vector<double> idleFraction; ///< per rank, over the whole run
  pdcrt::CheckResult run;
};

/// Executes `schedule` with the plan's times. `minibatches` 0: as many as show the steady state.
Simulation simulate(const Plan& plan, const pdcrt::Schedule& schedule, std::int64_t minibatches = 0,
                    bool trace = false);
Simulation simulate(const pdcrt::Times& times, const pdcrt::Schedule& schedule, std::int64_t minibatches = 0,
                    bool trace = false);

} // namespace pdc
