#include "Alternatives.h"

#include "pdc/Published/Foreign.h"
#include "pdc/Support/Diagnostics.h"

#include <cstdio>
#include <functional>
#include <limits>

using namespace pdc;

namespace {

/// A changed problem, by name.
template <class Problem>
struct Change {
  const char* name;
  std::function<void(Problem&, PlannerOptions&)> apply;
};

Expected<Plan> planAgain(const DnnPartitioningProblem& problem, const PlannerOptions& options, Diagnostics& diags) {
  return planDnnPartitioning(problem, options, diags);
}
Expected<Plan> planAgain(const PiperProblem& problem, const PlannerOptions& options, Diagnostics& diags) {
  return planPiper(problem, options, diags);
}

std::string line(const char* name, const Plan* other, const Plan& plan, const std::string& whyNot) {
  char text[160];
  if (!other) return std::string("  ") + name + ": no plan: " + whyNot + "\n";
  const double ratio = plan.timeMs > 0 ? other->timeMs / plan.timeMs : 1;
  const char* much = ratio > 1.0005 ? "times as slow" : ratio < 0.9995 ? "times as fast" : "the same";
  if (ratio > 1.0005 || ratio < 0.9995)
    std::snprintf(text, sizeof text, "  %-24s  %-12.7g  %.2f %s\n", name, other->timeMs, ratio > 1 ? ratio : 1 / ratio,
                  much);
  else
    std::snprintf(text, sizeof text, "  %-24s  %-12.7g  %s\n", name, other->timeMs, much);
  return text;
}

template <class Problem>
std::string linesOf(const Problem& problem, const PlannerOptions& options, const Plan& plan,
                    const std::vector<Change<Problem>>& changes) {
  std::string text;
  for (const Change<Problem>& change : changes) {
    Problem changed = problem;
    PlannerOptions changedOptions = options;
    change.apply(changed, changedOptions);
    Diagnostics quiet(nullptr);
    const Expected<Plan> other = planAgain(changed, changedOptions, quiet);
    text += line(change.name, other ? &*other : nullptr, plan, quiet.all().empty() ? "" : quiet.all()[0].message);
  }
  return text;
}

constexpr double unlimited = std::numeric_limits<double>::max();

} // namespace

std::string pdc::explainProblem(const DnnPartitioningProblem& problem, const PlannerOptions& options,
                                const Plan& plan) {
  using Changes = std::vector<Change<DnnPartitioningProblem>>;
  const Changes others = {{"one accelerator", [](auto& p, auto&) { p.accelerators = 1, p.cpus = 0; }},
                          {"without CPUs", [](auto& p, auto&) { p.cpus = 0; }},
                          {"without the memory limit", [](auto& p, auto&) { p.acceleratorMemory = unlimited; }}};
  const Changes levers = {{"twice the accelerators", [](auto& p, auto&) { p.accelerators *= 2; }},
                          {"twice the memory", [](auto& p, auto&) { p.acceleratorMemory *= 2; }},
                          {"transfers twice as fast", [](auto& p, auto&) {
                             for (DnnPartitioningEdge& edge : p.edges) edge.cost /= 2;
                           }}};
  return "other plans:\n" + linesOf(problem, options, plan, others) + "what would help:\n" +
         linesOf(problem, options, plan, levers);
}

std::string pdc::explainProblem(const PiperProblem& problem, const PlannerOptions& options, const Plan& plan) {
  using Changes = std::vector<Change<PiperProblem>>;
  const Changes others = {{"one device", [](auto& p, auto&) { p.devices = 1; }},
                          {"straight pipeline", [](auto&, auto& o) { o.straight = true; }},
                          {"without tensor parallelism",
                           [](auto& p, auto&) {
                             for (PiperNode& node : p.nodes)
                               if (node.choices.contains(1))
                                 std::erase_if(node.choices, [](const auto& c) { return c.first != 1; });
                           }},
                          {"without the memory limit", [](auto& p, auto&) { p.memoryBytes = unlimited; }}};
  const Changes levers = {{"twice the devices", [](auto& p, auto&) { p.devices *= 2; }},
                          {"twice the memory", [](auto& p, auto&) { p.memoryBytes *= 2; }},
                          {"twice the bandwidth", [](auto& p, auto&) { p.bandwidth *= 2; }}};
  return "other plans:\n" + linesOf(problem, options, plan, others) + "what would help:\n" +
         linesOf(problem, options, plan, levers);
}
