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
                     (notes.empty() ? "" : "<p class=\"note\">" + notes + "</p>\n") + "</div>\n");
}
