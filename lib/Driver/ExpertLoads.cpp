#include "ExpertLoads.h"

#include "OutputFolder.h"
#include "pdc/Planner/ExpertPlacement.h"
#include "pdc/Report/Report.h"
#include "pdc/Support/DiagnosticsBuilder.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iomanip>
#include <numeric>
#include <sstream>

using namespace pdc;
namespace fs = std::filesystem;

/// Shares as counts; empty where they are none.
static std::vector<std::int64_t> countsOf(const std::vector<double>& shares) {
  constexpr double whole = std::int64_t{1} << 40;
  std::vector<std::int64_t> counts;
  for (const double share : shares) {
    if (!(share >= 0) || share > 1) return {};
    counts.push_back(std::llround(share * whole));
  }
  return counts;
}

Expected<ExpertPlans> pdc::plansOfExperts(const std::string& file, std::int64_t members, Diagnostics& diags) {
  std::error_code ignored;
  const std::string path = fs::is_directory(file, ignored) ? (fs::path(file) / "metrics.jsonl").string() : file;
  const Expected<std::string> text = readFile(path, diags);
  if (!text) return failure;
  const Expected<RunMetrics> metrics = readMetrics(*text, path, diags);
  if (!metrics) return failure;
  if (metrics->loads.empty())
    return diags.error({.file = path}).help("evaluate: pdc-run --eval=DATA or --eval-every=N, with --metrics")
           << "no evaluation in it tells loads of experts";
  ExpertPlans plans;
  for (const RunMetrics::Load& load : metrics->loads) {
    const std::vector<std::int64_t> counts = countsOf(load.shares);
    const std::int64_t total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    if (total <= 0)
      return diags.error({.file = path, .node = load.layer}).help("evaluate again")
             << "the shares of " << load.shares.size() << " experts are no numbers from 0 to 1, or all 0";
    if (counts.size() % static_cast<std::size_t>(members) != 0) continue;
    const ExpertPlacement placement = placeExperts(counts, members);
    std::vector<std::int32_t> inOrder(counts.size());
    std::iota(inOrder.begin(), inOrder.end(), 0);
    const auto shareOf = [&](std::int64_t count) { return static_cast<double>(count) / static_cast<double>(total); };
    plans[load.layer] = {.order = placement.order,
                         .before = shareOf(fullestMember(counts, inOrder, members)),
                         .after = shareOf(placement.fullest),
                         .lowerBound = shareOf(placement.lowerBound)};
  }
  return plans;
}

std::string pdc::toText(const ExpertPlans& plans, const std::vector<PlacedLayer>& placed, std::int64_t members) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(1);
  for (const PlacedLayer& layer : placed) {
    if (!layer.why.empty()) {
      text << "  in order  " << layer.name << ": " << layer.why << "\n";
      continue;
    }
    const ExpertPlan& plan = plans.at(layer.name);
    text << "  placed    " << layer.name << ": the fullest of " << members << " members has " << 100 * plan.after
         << " % of the tokens, " << 100 * plan.before << " % in the file's order; ";
    if (plan.after > plan.lowerBound)
      text << "no placement has less than " << 100 * plan.lowerBound << " %";
    else
      text << "no placement has less";
    text << "\n           ";
    const std::size_t each = plan.order.size() / static_cast<std::size_t>(members);
    for (std::size_t i = 0; i < plan.order.size(); ++i) text << (i > 0 && i % each == 0 ? " | " : " ") << plan.order[i];
    text << "\n";
  }
  return text.str();
}
