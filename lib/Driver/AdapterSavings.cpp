// A trained parameter is there once for each version, and once for its gradient and for each piece of the optimizer's.
// A frozen one is there once.
#include "AdapterSavings.h"

#include "pdcrt/OptimizerLayout.h"

#include <algorithm>
#include <iomanip>
#include <sstream>

using namespace pdc;

/// What trains has no integers of 8 bits, and no scales: of the matrix that they stand for.
static std::int64_t wholeBytes(const Parameter& parameter) {
  if (!parameter.derived) return parameter.type.bytes();
  return parameter.derived->kind == DerivedValues::Kind::int8 ? parameter.derived->source.bytes() : 0;
}

std::string pdc::savingsText(const StagedPlan& staged, const std::set<std::string>& trainedBefore,
                             const pdcrt::Training& training) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(3);
  const auto pieces = static_cast<std::int64_t>(pdcrt::optimizerPieces(training).size());
  std::set<const Parameter*> owned; // the first stage that uses a parameter updates it
  for (const StageGraphs& stage : staged.stages) {
    const std::int64_t versions = staged.schedule.stages[static_cast<std::size_t>(stage.stage)].versions;
    std::int64_t with = 0, inFull = 0; // bytes
    for (const Value* value : stage.training->parameterValues()) {
      const Parameter& parameter = *value->parameter();
      if (parameter.role == ParameterRole::state) continue;
      const std::int64_t bytes = parameter.type.bytes();
      const std::int64_t copies = versions + 1 + (owned.insert(&parameter).second ? pieces : 0);
      const bool isTrained = parameter.role == ParameterRole::trained;
      with += isTrained ? bytes * copies : bytes;
      if (trainedBefore.contains(parameter.derived ? parameter.derived->of : parameter.name))
        inFull += wholeBytes(parameter) * copies;
      else if (!isTrained)
        inFull += bytes;
    }
    const auto megabytes = [](std::int64_t count) { return static_cast<double>(count) / 1e6; };
    text << "  stage " << stage.stage << ": " << megabytes(with) << " MB of weights (" << versions
         << (versions == 1 ? " version" : " versions") << "), gradients and optimizer, " << megabytes(inFull)
         << " MB where all is trained in full: " << std::setprecision(1)
         << 100 * (1 - megabytes(with) / std::max(megabytes(inFull), 1e-9)) << " % less" << std::setprecision(3)
         << "\n";
  }
  return text.str();
}
