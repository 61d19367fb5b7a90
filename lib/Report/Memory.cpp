// Memory of the ranks against their limits, and what of it is in use from the start of a run on.
#include "Sections.h"
#include "pdc/Support/Units.h"

#include <algorithm>
#include <array>

using namespace pdc;

static constexpr std::array<const char*, memoryParts.size()> patterns = {"", "dots", "hatch", "", "cross", "lines", ""};

static std::string kindOf(std::size_t part) {
  return std::string("m-") + memoryParts[part].name;
}

static std::string barsOf(const ReportData& data) {
  const std::vector<RankPrediction>& ranks = data.prediction.ranks;
  std::size_t shown = std::min(ranks.size(), most::memoryRanks);
  constexpr double left = 92, right = 820, width = 1072, rowHeight = 30, barHeight = 18;
  double most = 1, limit = 0;
  for (std::size_t r = 0; r < shown; ++r) most = std::max(most, static_cast<double>(ranks[r].peakMemoryBytes));
  for (std::size_t r = 0; r < shown; ++r) limit = std::max(limit, static_cast<double>(ranks[r].memoryLimitBytes));
  bool limitFits = limit <= 4 * most; // else the bars would be too small to read
  if (limitFits) most = std::max(most, limit);
  double scale = (right - left) / most;
  std::string body;
  for (std::size_t r = 0; r < shown; ++r) {
    const RankPrediction& rank = ranks[r];
    double y = static_cast<double>(r) * rowHeight + 4, x = left;
    body += label(left - 10, y + 14, "r", "end", "rank " + std::to_string(r)) +
            box(left, y, right - left, barHeight, "row");
    for (std::size_t i = 0; i < memoryParts.size(); ++i) {
      std::int64_t bytes = rank.memory.*memoryParts[i].bytes;
      if (bytes <= 0) continue;
      double length = static_cast<double>(bytes) * scale;
      std::string hover = std::string(memoryParts[i].name) + " " + sizeText(bytes);
      body += box(x, y, length, barHeight, kindOf(i).c_str(), hover);
      if (*patterns[i]) body += box(x, y, length, barHeight, patterns[i], hover);
      x += length;
    }
    bool over = rank.memoryLimitBytes > 0 && rank.peakMemoryBytes > rank.memoryLimitBytes;
    std::string text = sizeText(rank.peakMemoryBytes);
    if (rank.memoryLimitBytes > 0)
      text += " of " + sizeText(rank.memoryLimitBytes) +
              (over ? ": over the limit"
                    : " (" +
                          percentText(static_cast<double>(rank.peakMemoryBytes) /
                                      static_cast<double>(rank.memoryLimitBytes)) +
                          ")");
    body += label(right + 12, y + 14, over ? "bad" : "", "start", text);
    if (limitFits && rank.memoryLimitBytes > 0) {
      double at = left + static_cast<double>(rank.memoryLimitBytes) * scale;
      body +=
          "<path class=\"limit\" d=\"M" + number(at) + " " + number(y - 3) + "V" + number(y + barHeight + 3) + "\"/>";
    }
    body += "\n";
  }
  return picture(width, static_cast<double>(shown) * rowHeight + 4, "memory of each rank", body);
}

/// Steps of one rank, stacked: each part as an area.
static std::string courseOf(const ReportData& data, int rank, double endMs, double x0, double y0, double width,
                            double height) {
  std::vector<const MemorySample*> samples;
  for (const MemorySample& sample : data.prediction.memory)
    if (sample.rank == rank && sample.ms <= endMs) samples.push_back(&sample);
  auto arena = static_cast<double>(data.prediction.ranks[rank].peakMemoryBytes);
  if (samples.empty() || arena <= 0) return "";
  std::size_t each = (samples.size() + most::points - 1) / most::points; // of too many, every so manyth
  std::string body = box(x0, y0, width, height, "row");
  std::vector<double> floor(samples.size(), 0);
  for (std::size_t part = 0; part < memoryParts.size(); ++part) {
    if (data.prediction.ranks[rank].memory.*memoryParts[part].bytes <= 0) continue;
    std::string up, down; // along the upper edge to the right, and back along the lower one
    double lastTop = 0, lastBottom = 0;
    for (std::size_t i = 0; i < samples.size(); i += each) {
      double x = x0 + samples[i]->ms / endMs * width, low = floor[i];
      double high = low + static_cast<double>(samples[i]->inUse.*memoryParts[part].bytes);
      double topY = y0 + height * (1 - high / arena), bottomY = y0 + height * (1 - low / arena);
      if (i == 0)
        up = "M" + number(x) + " " + number(topY);
      else if (topY != lastTop)
        up += "H" + number(x) + "V" + number(topY);
      if (i > 0 && bottomY != lastBottom) down = "H" + number(x) + "V" + number(lastBottom) + down;
      lastTop = topY;
      lastBottom = bottomY;
      floor[i] = high;
    }
    std::string path = up + "H" + number(x0 + width) + "V" + number(lastBottom) + down + "H" + number(x0) + "Z";
    body += "<path class=\"" + kindOf(part) + "\" d=\"" + path + "\"/>";
    if (*patterns[part]) body += std::string("<path class=\"") + patterns[part] + "\" d=\"" + path + "\"/>";
  }
  return body + "\n";
}

static std::string coursesOf(const ReportData& data) {
  double end = beginningMs(data);
  std::size_t shown = std::min(data.prediction.ranks.size(), most::courses);
  if (!(end > 0)) return "";
  constexpr double left = 92, width = 1072, height = 56, rowHeight = 74, top = 24;
  double step = niceStep(end, 6), bottom = top + static_cast<double>(shown) * rowHeight;
  std::string body;
  for (int i = 0; i * step <= end * (1 + 1e-9); ++i) {
    double x = left + i * step / end * (width - left);
    body += "<path class=\"grid\" d=\"M" + number(x) + " " + number(top - 4) + "V" + number(bottom - 10) + "\"/>" +
            label(std::min(x, width - 2), top - 9, "t",
                  i == 0           ? "start"
                  : x > width - 30 ? "end"
                                   : "middle",
                  tickText(i * step, step) + (i == 0 ? " ms" : ""));
  }
  for (std::size_t r = 0; r < shown; ++r) {
    double y = top + static_cast<double>(r) * rowHeight;
    body += label(left - 10, y + 26, "r", "end", "rank " + std::to_string(r)) +
            label(left - 10, y + 41, "t", "end", sizeText(data.prediction.ranks[r].peakMemoryBytes)) +
            courseOf(data, static_cast<int>(r), end, left, y, width - left, height);
  }
  std::string more = andMore(data.prediction.ranks.size(), shown);
  return "<div class=\"figure\"><h3>In use from the start on <small>each row is as high as the rank's "
         "arena</small></h3>\n" +
         picture(width, bottom, "memory in use over time", body) +
         (more.empty() ? "" : "<p class=\"note\">" + more + " ranks</p>\n") + "</div>\n";
}

std::string pdc::memorySection(const ReportData& data) {
  if (data.prediction.ranks.empty()) return "";
  std::string more = andMore(data.prediction.ranks.size(), most::memoryRanks);
  std::string body = legend({{"m-weights", "weights"},
                             {"m-optimizer dots", "optimizer state"},
                             {"m-versions hatch", "older weight versions"},
                             {"m-stash", "stash of minibatches in flight"},
                             {"m-gradients cross", "gradients"},
                             {"m-buffers lines", "transfer buffers"},
                             {"m-workspace", "workspace"}}) +
                     "<div class=\"figure\">" + barsOf(data) +
                     (more.empty() ? "" : "<p class=\"note\">" + more + " ranks</p>\n") + "</div>\n" + coursesOf(data);
  return section("memory", "Memory",
                 "The arena of each rank, as the compiler lays it out, against what its device has.", body);
}
