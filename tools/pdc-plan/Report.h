// What pdc-plan says about a plan.
#pragma once

#include "pdc/Plan/Plan.h"

#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

namespace pdc {

/// What Piper's definition says of a plan's stages, and pdc's of Piper's best plan.
struct PiperComparison {
  double tps = 0;               ///< with the best choices for these stages; infinite: they do not fit there
  double bottleneckMs = 0;      ///< of the plan, whatever is in flight
  double piperBottleneckMs = 0; ///< of Piper's plan under pdc's cost model; infinite: there is none
};

struct PlanReport {
  std::string file, format;
  std::int64_t nodes = 0;
  std::int64_t devices = 0;
  double plannerS = 0;                  ///< wall time of planning alone
  std::optional<double> dataParallelMs; ///< one stage on all devices, where the cost model knows that
  std::optional<PiperComparison> piper; ///< of a plan of Piper's menus
  std::string explanation;              ///< of --explain
};

/// One object with the keys of docs/Planning.md.
std::string reportJson(const Plan& plan, const PlanReport& report);

/// A table with one line per stage.
void printReport(std::ostream& out, const Plan& plan, const PlanReport& report);

} // namespace pdc
