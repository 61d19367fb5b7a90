// The loss of a run, from its metrics.
#include "Sections.h"
#include "pdc/Support/Diagnostics.h"
#include "pdc/Support/DiagnosticsBuilder.h"
#include "pdc/Support/Names.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>

using namespace pdc;
using nlohmann::json;

/// {"balance_loss": 1.02, …} of a step.
static void readTerms(const json& object, double step, RunMetrics& metrics) {
  for (const auto& [name, value] : object.items()) {
    if (!value.is_number()) continue;
    const auto isNamed = [&name = name](const RunMetrics::Term& known) { return known.name == name; };
    auto term = std::find_if(metrics.terms.begin(), metrics.terms.end(), isNamed);
    if (term == metrics.terms.end()) term = metrics.terms.insert(term, {name, {}});
    term->values.push_back({step, value.get<double>()});
  }
}

/// {"blocks.0.experts": {"dropped": 0.02, "shares": [0.3, 0.7], "fullest": 1.4}, …} of an evaluation.
static void readLoads(const json& object, RunMetrics& metrics) {
  metrics.loads.clear();
  for (const auto& [layer, said] : object.items()) {
    if (!said.is_object()) continue;
    const auto number = [&said = said](const char* key) {
      return said.contains(key) && said[key].is_number() ? said[key].get<double>() : 0;
    };
    RunMetrics::Load load{layer, number("dropped"), number("fullest")};
    if (const auto shares = said.find("shares"); shares != said.end() && shares->is_array())
      for (const json& share : *shares) load.shares.push_back(share.is_number() ? share.get<double>() : 0);
    metrics.loads.push_back(std::move(load));
  }
}

Expected<RunMetrics> pdc::readMetrics(const std::string& text, const std::string& file, Diagnostics& diags) {
  RunMetrics metrics;
  int number = 0;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    at = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    json object = json::parse(line, nullptr, /*allow_exceptions=*/false);
    auto numberOf = [&](const char* key) {
      return object.contains(key) && object[key].is_number() ? object[key].get<double>() : NAN;
    };
    if (!object.is_object()) {
      if (at > text.size()) break; // a run that was killed may have left half a line
      diags.error({file, "", number, 0}).help("give what a run wrote with --metrics")
          << "expected a JSON object on each line";
      return failure;
    }
    double step = numberOf("step"), loss = numberOf("loss"), testLoss = numberOf("test_loss");
    if (!std::isfinite(step)) continue;
    if (std::isfinite(loss)) metrics.losses.push_back({step, loss});
    if (const auto terms = object.find("terms"); terms != object.end() && terms->is_object())
      readTerms(*terms, step, metrics);
    if (const auto loads = object.find("loads"); loads != object.end() && loads->is_object())
      readLoads(*loads, metrics);
    if (!std::isfinite(testLoss)) continue;
    RunMetrics::Evaluation evaluation{step, testLoss, 0, ""};
    for (const auto& [key, value] : object.items())
      if (key != "step" && key != "test_loss" && value.is_number() && std::isfinite(value.get<double>())) {
        evaluation.metric = key;
        evaluation.value = value.get<double>();
      }
    metrics.evaluations.push_back(evaluation);
  }
  return metrics;
}

namespace {

/// Losses of neighbouring steps.
struct Point {
  double step = 0, mean = 0, least = 0, most = 0;
};

std::vector<Point> pointsOf(const std::vector<RunMetrics::Loss>& losses) {
  std::size_t each = (losses.size() + most::points - 1) / most::points;
  std::vector<Point> points;
  for (std::size_t i = 0; i < losses.size(); i += each) {
    std::size_t end = std::min(i + each, losses.size());
    Point point{0, 0, losses[i].loss, losses[i].loss};
    for (std::size_t j = i; j < end; ++j) {
      point.step += losses[j].step / static_cast<double>(end - i);
      point.mean += losses[j].loss / static_cast<double>(end - i);
      point.least = std::min(point.least, losses[j].loss);
      point.most = std::max(point.most, losses[j].loss);
    }
    points.push_back(point);
  }
  return points;
}

/// A running mean, over a fortieth of the run.
std::vector<double> smoothed(const std::vector<Point>& points) {
  std::size_t reach = points.size() / 40;
  std::vector<double> result;
  for (std::size_t i = 0; i < points.size(); ++i) {
    std::size_t from = i > reach ? i - reach : 0, to = std::min(points.size(), i + reach + 1);
    double sum = 0;
    for (std::size_t j = from; j < to; ++j) sum += points[j].mean;
    result.push_back(sum / static_cast<double>(to - from));
  }
  return result;
}

std::string digits(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

/// A table of the terms of the loss; empty: there are none.
std::string termsTable(const std::vector<RunMetrics::Term>& terms) {
  std::string rows;
  const std::size_t shown = std::min(terms.size(), most::rows);
  for (std::size_t i = 0; i < shown; ++i) {
    const std::vector<double> mean = smoothed(pointsOf(terms[i].values));
    rows += "<tr><td class=\"l\"><code>" + escaped(shortened(terms[i].name, most::nameLength)) + "</code></td><td>" +
            digits(terms[i].values.front().loss) + "</td><td>" + digits(mean.back()) + "</td></tr>\n";
  }
  if (terms.size() > shown)
    rows += "<tr><td class=\"l\" colspan=\"3\">" + andMore(terms.size(), shown) + "</td></tr>\n";
  if (rows.empty()) return "";
  return "<div class=\"scroll\"><table>\n<tr><th class=\"l\">term, without its weight</th><th>at the "
         "beginning</th><th>at "
         "the end</th></tr>\n" +
         rows + "</table></div>\n";
}

} // namespace

std::string pdc::lossSection(const ReportData& data) {
  std::vector<Point> points = pointsOf(data.run.metrics.losses);
  if (points.size() < 2) return "";
  constexpr double left = 56, right = 1060, top = 10, bottom = 250, width = 1072, height = 284;
  double first = points.front().step, last = points.back().step, low = points[0].least, high = points[0].most;
  for (const Point& point : points) {
    first = std::min(first, point.step);
    last = std::max(last, point.step);
    low = std::min(low, point.least);
    high = std::max(high, point.most);
  }
  if (low > 0 && low < high / 2) low = 0; // the usual case: losses are compared with zero
  if (!(high > low)) high = low + std::max(1e-9, std::abs(low) * 0.1);
  if (!(last > first)) last = first + 1;
  auto x = [&](double step) { return left + (step - first) / (last - first) * (right - left); };
  auto y = [&](double loss) { return bottom - (loss - low) / (high - low) * (bottom - top); };
  std::string body;
  double yStep = niceStep(high - low, 4), xStep = niceStep(last - first, 5);
  for (double value = std::ceil(low / yStep) * yStep; value <= high + yStep / 1e6; value += yStep)
    body += "<path class=\"grid\" d=\"M" + number(left) + " " + number(y(value)) + "H" + number(right) + "\"/>" +
            label(left - 8, y(value) + 4, "t", "end", tickText(value, yStep));
  for (double value = std::ceil(first / xStep) * xStep; value <= last + xStep / 1e6; value += xStep)
    body += label(x(value), bottom + 16, "t", "middle", tickText(value, xStep));
  body += label((left + right) / 2, bottom + 32, "t", "middle", "step");
  std::string upper, lower, curve;
  std::vector<double> mean = smoothed(points);
  for (std::size_t i = 0; i < points.size(); ++i) {
    std::string at = number(x(points[i].step)) + " ";
    upper += (i == 0 ? "M" : "L") + at + number(y(points[i].most));
    lower = "L" + at + number(y(points[i].least)) + lower;
    curve += (i == 0 ? "M" : "L") + at + number(y(mean[i]));
  }
  body += "<path class=\"band\" d=\"" + upper + lower + "Z\"/>\n<path class=\"curve\" d=\"" + curve + "\"/>\n";
  std::string notes;
  const std::vector<RunMetrics::Evaluation>& evaluations = data.run.metrics.evaluations;
  constexpr std::size_t shown = 5; // the last ones
  for (std::size_t i = evaluations.size() - std::min(shown, evaluations.size()); i < evaluations.size(); ++i)
    notes += (notes.empty() ? "" : " · ") + ("after step " + digits(evaluations[i].step)) + ": test loss " +
             digits(evaluations[i].loss) +
             (evaluations[i].metric.empty()
                  ? ""
                  : ", " + escaped(shortened(evaluations[i].metric, 32)) + " " + digits(evaluations[i].value));
  return section("loss", "Loss",
                 "Of " + counted(static_cast<std::int64_t>(data.run.metrics.losses.size()), "step") +
                     ": from the least to the largest of neighbouring steps, and their running mean; " +
                     digits(data.run.metrics.losses.front().loss) + " at the beginning, " +
                     escaped(digits(mean.back())) + " at the end.",
                 "<div class=\"figure\">" + picture(width, height, "training loss by step", body) +
                     (notes.empty() ? "" : "<p class=\"note\">" + notes + "</p>\n") + "</div>\n" +
                     termsTable(data.run.metrics.terms));
}
