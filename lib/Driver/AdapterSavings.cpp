// A trained parameter is there once for each version, and once for its gradient and for each piece of the optimizer's.
// A frozen one is there once.
#include "AdapterSavings.h"

#include "pdcrt/OptimizerLayout.h"

#include <algorithm>
#include <iomanip>
#include <sstream>

using namespace pdc;

std::string pdc::savingsText(const StagedPlan& staged, const std::set<std::string>& trainedBefore,
                             const pdcrt::Training& training) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(3);
  const auto pieces = static_cast<std::int64_t>(pdcrt::optimizerPieces(training).size());
  for (const StageGraphs& stage : staged.stages) {
    const std::int64_t versions = staged.schedule.stages[static_cast<std::size_t>(stage.stage)].versions;
    std::int64_t trained = 0, frozen = 0, trainedInFull = 0, frozenInFull = 0; // bytes; in full: without adapters
    for (const Value* value : stage.training->parameterValues()) {
      const Parameter& parameter = *value->parameter();
      const std::int64_t bytes = parameter.type.bytes();
      if (parameter.role == ParameterRole::state) continue;
      (parameter.role == ParameterRole::trained ? trained : frozen) += bytes;
      if (trainedBefore.contains(parameter.name))
        trainedInFull += bytes;
      else if (parameter.role == ParameterRole::frozen)
        frozenInFull += bytes;
    }
    const std::int64_t copies = versions + 1 + pieces;
    const double with = static_cast<double>(frozen + trained * copies) / 1e6;
    const double without = static_cast<double>(frozenInFull + trainedInFull * copies) / 1e6;
    text << "  stage " << stage.stage << ": " << with << " MB of weights (" << versions
         << (versions == 1 ? " version" : " versions") << "), gradients and optimizer, " << without
         << " MB where all is trained in full: " << std::setprecision(1) << 100 * (1 - with / std::max(without, 1e-9))
         << " % less" << std::setprecision(3) << "\n";
  }
  return text.str();
}
