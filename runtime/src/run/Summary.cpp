// Columns are aligned on the right.
#include "Summary.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <tuple>

namespace pdcrt {
namespace {

std::string fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

std::string mebibytes(double bytes) {
  return fixed(bytes / (1 << 20), 2);
}

std::string pad(const std::string& text, std::size_t width) {
  return text.size() < width ? std::string(width - text.size(), ' ') + text : text;
}

} // namespace

/// What members of teams have sent each other, beside what the plan says: a line for each team, of the member that has
/// sent the most. A rank computes as many minibatches of each of its stages.
static std::string teamTraffic(const RunFiles& files, const std::vector<MeasuredStage>& stages) {
  std::map<int, const MeasuredStage*> most; // by rank of the schedule
  std::map<int, double> planned;
  for (const MeasuredStage& stage : stages) {
    const auto s = static_cast<std::size_t>(stage.host.stage);
    if (files.schedule.stages[s].team == 1) continue;
    const int rank = files.schedule.rankOf(stage.host.stage, stage.host.replica);
    const MeasuredStage*& of = most[rank];
    if (!of || of->teamBytes < stage.teamBytes) of = &stage;
    if (stage.member == 0) planned[rank] += files.predicted[s].teamBytes;
  }
  std::string text;
  for (const auto& [rank, stage] : most)
    if (stage->minibatches > 0)
      text += "team of rank " + std::to_string(rank) + ": a member sends " +
              fixed(static_cast<double>(stage->teamBytes) / static_cast<double>(stage->minibatches), 0) +
              " bytes per minibatch, " + fixed(planned[rank], 0) + " planned\n";
  return text;
}

std::string summaryOf(const RunFiles& files, const MeasuredRun& run) {
  const bool shared = !run.sharing.empty();
  std::vector<std::vector<std::string>> table = {
      {"", "", "ms per minibatch", "", "arena, bytes", "", "process", "sent"},
      {"stage", "rank", "predicted", "measured", "predicted", "allocated", "peak MiB", "MiB"}};
  std::vector<MeasuredStage> stages = run.stages;
  std::sort(stages.begin(), stages.end(), [](const MeasuredStage& a, const MeasuredStage& b) {
    return std::tuple(a.host.stage, a.host.replica, a.member) < std::tuple(b.host.stage, b.host.replica, b.member);
  });
  for (const MeasuredStage& stage : stages) {
    const PredictedStage& predicted = files.predicted[static_cast<std::size_t>(stage.host.stage)];
    const double seconds = shared ? stage.processorSeconds : stage.wallSeconds;
    const ScheduleStage& of = files.schedule.stages[static_cast<std::size_t>(stage.host.stage)];
    table.push_back(
        {std::to_string(stage.host.stage) + (of.replicas > 1 ? "." + std::to_string(stage.host.replica) : "") +
             (of.team > 1 ? ":" + std::to_string(stage.member) : ""),
         std::to_string(stage.rank), predicted.computeMs > 0 ? fixed(predicted.computeMs, 3) : "-",
         stage.minibatches > 0 ? fixed(seconds * 1e3 / static_cast<double>(stage.minibatches), 3) : "-",
         predicted.memoryBytes > 0 ? fixed(predicted.memoryBytes, 0) : "-", std::to_string(stage.arenaBytes),
         mebibytes(static_cast<double>(stage.peakBytes)), mebibytes(static_cast<double>(stage.bytesSent))});
  }
  std::vector<std::size_t> widths(table[1].size());
  for (std::size_t row = 1; row < table.size(); ++row)
    for (std::size_t column = 0; column < widths.size(); ++column)
      widths[column] = std::max(widths[column], table[row][column].size());
  // The two headings that span two columns each need room for themselves.
  for (std::size_t column : {2u, 4u})
    if (const std::size_t room = widths[column] + widths[column + 1] + 2; room < table[0][column].size())
      widths[column] += table[0][column].size() - room;

  std::string text;
  for (std::size_t row = 0; row < table.size(); ++row) {
    std::string line;
    for (std::size_t column = 0; column < widths.size(); ++column) {
      std::size_t width = widths[column];
      if (row == 0 && (column == 2 || column == 4)) width += 2 + widths[column + 1];
      if (row == 0 && (column == 3 || column == 5)) continue;
      line += (column ? "  " : "") + pad(table[row][column], width);
    }
    text += line + "\n";
  }
  if (run.secondsPerMinibatch > 0)
    text +=
        "pipeline: " + (files.timeMs > 0 ? fixed(files.timeMs, 3) + " ms per minibatch predicted, " : std::string()) +
        fixed(run.secondsPerMinibatch * 1e3, 3) + " ms measured\n";
  text += teamTraffic(files, stages);
  std::map<int, std::uint64_t> sent; // by rank
  for (const MeasuredStage& stage : stages) sent[stage.rank] = stage.bytesSent;
  for (const auto& [rank, bytes] : sent)
    if (files.encodesEdges)
      text += "rank " + std::to_string(rank) + " has sent " + std::to_string(bytes) + " bytes, with encoded edges\n";
  std::int64_t other = 0;
  for (const MeasuredStage& stage : stages) other = std::max(other, stage.otherBytes);
  if (other > 0)
    text += "beside its arenas a GPU holds " + mebibytes(static_cast<double>(other)) +
            " MiB: context, code, libraries, other programs (reserved_bytes of a cluster file)\n";
  for (const std::string& line : run.sharing)
    text += "note: " + line + ", so stage times are processor time, and the pipeline cannot overlap them all\n";
  if (run.oneProcess && run.stages.size() > 1)
    text += "note: the ranks are threads of one process, whose peak is given\n";
  return text;
}

} // namespace pdcrt
