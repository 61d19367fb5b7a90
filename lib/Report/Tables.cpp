// Cut tensors, and the plans that were not chosen.
#include "Sections.h"
#include "pdc/Support/Units.h"

#include <algorithm>

using namespace pdc;

std::string pdc::tensorsSection(const ReportData& data) {
  const std::vector<PlanTensor>& tensors = data.plan.tensors;
  if (tensors.empty()) return "";
  std::string body =
      "<div class=\"scroll\"><table>\n<tr><th class=\"l\">tensor</th><th>from stage</th><th>to stage</th><th>"
      "values</th><th>gradients</th></tr>\n";
  std::size_t shown = std::min(tensors.size(), most::rows);
  std::int64_t forward = 0, backward = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const PlanTensor& tensor = tensors[i];
    forward += tensor.bytes;
    backward += tensor.hasGradient ? tensor.bytes : 0;
    if (i >= shown) continue;
    body += "<tr><td class=\"l\"><code>" + escaped(shortened(tensor.name, most::nameLength)) + "</code></td><td>" +
            std::to_string(tensor.from) + "</td><td>" + std::to_string(tensor.to) + "</td><td>" +
            escaped(sizeText(tensor.bytes)) + "</td><td>" +
            (tensor.hasGradient ? escaped(sizeText(tensor.bytes)) : "–") + "</td></tr>\n";
  }
  if (tensors.size() > shown)
    body += "<tr><td class=\"l\" colspan=\"5\">" + andMore(tensors.size(), shown) + "</td></tr>\n";
  body += "<tr class=\"sum\"><td class=\"l\">all</td><td></td><td></td><td>" + escaped(sizeText(forward)) +
          "</td><td>" + escaped(sizeText(backward)) + "</td></tr>\n</table></div>\n";
  return section("tensors", "Cut tensors", "What crosses between stages for every minibatch, and its gradients back.",
                 body);
}

std::string pdc::alternativesSection(const ReportData& data) {
  const std::vector<PlanAlternative>& others = data.plan.alternatives;
  if (others.empty()) return "";
  double slowest = data.plan.timeMs;
  std::size_t shown = std::min(others.size(), most::rows);
  for (std::size_t i = 0; i < shown; ++i) slowest = std::max(slowest, others[i].timeMs);
  auto row = [&](const char* kind, const std::string& name, double ms, const std::string& reason) {
    std::string bar;
    if (ms > 0 && slowest > 0)
      bar = "<svg style=\"width:160px\" viewBox=\"0 0 160 12\" aria-hidden=\"true\">" +
            box(0, 0, 160 * ms / slowest, 12, *kind ? "f" : "sv") + "</svg>";
    return std::string("<tr") + kind + "><td class=\"l\">" + escaped(shortened(name, 80)) + "</td><td>" +
           (ms > 0 ? escaped(timeText(ms)) : "–") + "</td><td>" + bar + "</td><td class=\"l\">" +
           escaped(shortened(reason, most::nameLength)) + "</td></tr>\n";
  };
  std::string body = "<div class=\"scroll\"><table>\n<tr><th class=\"l\">plan</th><th>per minibatch</th><th></th><th "
                     "class=\"l\">why</th></tr>\n";
  body += row(" class=\"sum\"", "this plan", data.plan.timeMs, "");
  for (std::size_t i = 0; i < shown; ++i) body += row("", others[i].name, others[i].timeMs, others[i].reason);
  return section(
      "others", "Other plans",
      "What the planner would take if it were told to, by its cost model; <code>pdc --explain</code> says more.",
      body + "</table></div>\n");
}
