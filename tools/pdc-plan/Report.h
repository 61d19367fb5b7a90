// What pdc-plan says about a plan.
#pragma once

#include "pdc/Plan/Plan.h"

#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

namespace pdc {

struct PlanReport {
  std::string file, format;
  std::int64_t nodes = 0;
  std::int64_t devices = 0;
  double plannerS = 0;                  ///< wall time of planning alone
  std::optional<double> dataParallelMs; ///< one stage on all devices, where the cost model knows that
  std::optional<double> piperTps;       ///< of the same stages by Piper's definition; infinite: they do not fit there
  std::string explanation;              ///< of --explain
};

/// One object with the keys of docs/Planning.md.
std::string reportJson(const Plan& plan, const PlanReport& report);

/// A table with one line per stage.
void printReport(std::ostream& out, const Plan& plan, const PlanReport& report);

} // namespace pdc
