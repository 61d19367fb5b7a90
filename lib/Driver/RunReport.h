// The report of a run that has ended.
#pragma once

#include "pdc/Plan/Plan.h"
#include "pdc/Support/Diagnostics.h"

#include <string>

namespace pdc {

/// Writes `folder`/report.html again, with what the run has measured. A trace of more than 64 MiB, and files that are
/// missing, are left out. Errors: a file there is not what a run writes; the report cannot be written.
Status rewriteReport(const std::string& folder, const Plan& plan, const std::string& traceFile,
                     const std::string& metricsFile, Diagnostics& diags);

} // namespace pdc
