// Other flags make another graph: it is compiled up to its costs, and the planner looks for plans of it.
#include "DeviceNeeds.h"

#include "pdc/Cost/CostModel.h"
#include "pdc/Planner/Planner.h"
#include "pdc/Support/Units.h"

using namespace pdc;

namespace {

constexpr std::int64_t mostDevices = 64;

/// The same compilation, without what reads or prints: values, times and remarks change no bytes.
CompileOptions withoutValues(const CompileOptions& options) {
  CompileOptions other = options;
  other.initFrom.clear();
  other.init = options.init.value_or(0);
  other.profile = "analytic";
  other.calibrate.clear();
  other.explain = other.timePasses = other.verbose = false;
  other.printAfter.clear();
  return other;
}

CompileOptions withoutQuantize(CompileOptions options) {
  options.quantizes = false;
  options.quantize.clear();
  return options;
}

} // namespace

std::string pdc::deviceNeedsText(const CompileOptions& options, const CostGraph& costs, const PlanRequest& request,
                                 const std::function<Expected<CostGraph>(const CompileOptions&)>& costsWith) {
  const auto needs = [&](const CostGraph& graph) {
    const std::optional<std::int64_t> teams = fewestDevices(graph, request.machines, request.planner, mostDevices);
    return teams ? std::to_string(*teams * options.split.members)
                 : "more than " + std::to_string(mostDevices * options.split.members);
  };
  const auto needsWith = [&](const CompileOptions& other) {
    const Expected<CostGraph> graph = costsWith(other);
    return graph ? needs(*graph) : std::string("unknown");
  };
  const std::int64_t limit = deviceClasses(request.machines, request.planner)[0].memoryBytes;
  std::string text = "devices needed, with " + sizeText(limit) + " each: " + needs(costs) + " as asked";
  const CompileOptions whole = withoutQuantize(withoutValues(options));
  if (options.quantizes) text += ", " + needsWith(whole) + " without --quantize";
  if (!options.lora.empty()) {
    CompileOptions inFull = whole;
    inFull.lora.clear();
    text += ", " + needsWith(inFull) + " without --lora" + (options.quantizes ? " and --quantize" : "");
  }
  return text + "\n";
}
