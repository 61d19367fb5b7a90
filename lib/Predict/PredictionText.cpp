// Predictions for people and for programs.
#include "pdc/Predict/RunTrace.h"
#include "pdc/Predict/TimeParts.h"
#include "pdc/Support/JsonText.h"
#include "pdc/Support/Units.h"

#include <algorithm>
#include <cstdio>
#include <ostream>

using namespace pdc;
using nlohmann::ordered_json;

constexpr std::size_t mostRows = 64;

template <class... Values>
static std::string text(const char* format, Values... values) {
  char line[256];
  std::snprintf(line, sizeof line, format, values...);
  return line;
}

static void printTimes(std::ostream& out, const Prediction& prediction) {
  out << "rank  hosts       ";
  for (const TimePart& part : timeParts) out << text(" %*s", part.width, (std::string(part.brief) + " %").c_str());
  out << "      sum  sent\n";
  auto row = [&](const std::string& rank, const std::string& hosts, const pdcrt::RankUse& use, std::int64_t sent) {
    out << text("%-5s %-12s", rank.c_str(), hosts.c_str());
    std::int64_t sum = 0;
    std::array<std::int64_t, timeParts.size()> shares = hundredthsOf(use);
    for (std::size_t i = 0; i < timeParts.size(); ++i) {
      out << text(" %*.2f", timeParts[i].width, static_cast<double>(shares[i]) / 100);
      sum += shares[i];
    }
    out << text("   %6.2f  ", static_cast<double>(sum) / 100) << sizeText(sent) << "\n";
  };
  std::int64_t sent = 0;
  for (const RankPrediction& rank : prediction.ranks) sent += rank.bytesSent;
  for (std::size_t r = 0; r < std::min(prediction.ranks.size(), mostRows); ++r)
    row(std::to_string(r), prediction.ranks[r].hosts, prediction.ranks[r].use, prediction.ranks[r].bytesSent);
  if (prediction.ranks.size() > mostRows) out << "(" << mostRows << " of " << prediction.ranks.size() << " ranks)\n";
  row("all", "", prediction.use(), sent);
}

/// Levels of what is in use against the arena, an eighth each.
static std::string courseText(const MemoryCourse& course, std::int64_t arenaBytes) {
  static constexpr const char* levels[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  std::string result;
  for (const MemorySplit& inUse : course.intervals()) {
    double part = arenaBytes > 0 ? static_cast<double>(inUse.total()) / static_cast<double>(arenaBytes) : 0;
    result += levels[std::clamp(static_cast<int>(part * 8), 0, 7)];
  }
  return result;
}

static void printMemory(std::ostream& out, const Prediction& prediction) {
  out << "\nrank  memory    ";
  for (const MemoryPart& part : memoryParts) out << text(" %-10s", part.name);
  out << " most in use\n";
  for (std::size_t r = 0; r < std::min(prediction.ranks.size(), mostRows); ++r) {
    const RankPrediction& rank = prediction.ranks[r];
    out << text("%-5zu %-10s", r, sizeText(rank.peakMemoryBytes).c_str());
    for (const MemoryPart& part : memoryParts) out << text(" %-10s", sizeText(rank.memory.*part.bytes).c_str());
    if (r < prediction.courses.size())
      out << " " << sizeText(prediction.courses[r].peak().total())
          << text(" at %.4g ms", prediction.courses[r].peakMs());
    if (rank.memoryLimitBytes > 0 && rank.peakMemoryBytes > rank.memoryLimitBytes)
      out << "  (over the limit of " << sizeText(rank.memoryLimitBytes) << ")";
    out << "\n";
  }
  if (prediction.courses.empty()) return;
  out << text("\nmemory in use over the run, the most of every %.4g ms, against the arena\n",
              prediction.courses[0].intervalMs());
  for (std::size_t r = 0; r < std::min<std::size_t>(prediction.courses.size(), 16); ++r)
    out << text("%-5zu ", r) << courseText(prediction.courses[r], prediction.ranks[r].peakMemoryBytes) << "\n";
  if (prediction.courses.size() > 16) out << "(16 of " << prediction.ranks.size() << " ranks)\n";
}

/// Every part of the time, of all, and of what was not spent computing.
static void printLosses(std::ostream& out, const Prediction& prediction) {
  pdcrt::RankUse use = prediction.use();
  std::array<std::int64_t, timeParts.size()> all = hundredthsOf(use);
  use.computeMs = 0;
  std::array<std::int64_t, timeParts.size()> lost = hundredthsOf(use);
  out << "\nwhere the time of all ranks went\n     all    of the lost\n";
  std::int64_t sumAll = 0, sumLost = 0;
  for (std::size_t i = 0; i < timeParts.size(); ++i) {
    sumAll += all[i];
    sumLost += lost[i];
    out << text("%7.2f %%", static_cast<double>(all[i]) / 100)
        << (i == 0 ? std::string(11, ' ') : text("  %7.2f %%", static_cast<double>(lost[i]) / 100)) << "  "
        << timeParts[i].name << "\n";
  }
  out << text("%7.2f %%  %7.2f %%\n", static_cast<double>(sumAll) / 100, static_cast<double>(sumLost) / 100);
}

void pdc::print(std::ostream& out, const Plan& plan, const Prediction& prediction) {
  out << text("time per minibatch     %.4g ms in the steady state", prediction.timePerMinibatchMs);
  if (plan.timeMs > 0)
    out << text(", %+.2f %% from the plan's %.4g ms", 100 * (prediction.timePerMinibatchMs / plan.timeMs - 1),
                plan.timeMs);
  out << text("\nrun                    %lld minibatches in %.4g ms\n", static_cast<long long>(prediction.minibatches),
              prediction.finishMs);
  out << text("bubble                 %.2f %% of all ranks' time; %.2f %% between each rank's first and last action\n",
              100 * prediction.bubbleFraction, 100 * prediction.rankIdleFraction);
  out << text("exposed communication  %.2f %% of all ranks' time\n\n", 100 * prediction.exposedCommunicationFraction());
  printTimes(out, prediction);
  printMemory(out, prediction);
  printLosses(out, prediction);
}

static ordered_json splitToJson(const MemorySplit& split) {
  ordered_json object;
  for (const MemoryPart& part : memoryParts) object[part.name] = split.*part.bytes;
  return object;
}

/// By rank: the parts that change, an element per interval.
static ordered_json coursesToJson(const Prediction& prediction) {
  ordered_json ranks = ordered_json::array();
  for (const MemoryCourse& course : prediction.courses) {
    ordered_json rank = {{"peak_bytes", course.peak().total()}, {"peak_ms", course.peakMs()}};
    for (const MemoryPart& part : memoryParts) {
      ordered_json values = ordered_json::array();
      for (const MemorySplit& inUse : course.intervals()) values.push_back(inUse.*part.bytes);
      rank[part.name] = std::move(values);
    }
    ranks.push_back(std::move(rank));
  }
  return {{"interval_ms", prediction.courses.empty() ? 0 : prediction.courses[0].intervalMs()},
          {"ranks", std::move(ranks)}};
}

static ordered_json comparisonToJson(const TraceComparison& comparison) {
  auto pair = [](double predicted, double measured) {
    return ordered_json{
        {"predicted_ms", predicted}, {"measured_ms", measured}, {"error", TraceComparison::error(predicted, measured)}};
  };
  ordered_json actions = ordered_json::array(), shares;
  for (const TraceComparison::Row& row : comparison.rows) {
    ordered_json action = {{"action", row.action}, {"count", row.count}};
    action.update(pair(row.predictedMs, row.measuredMs));
    actions.push_back(std::move(action));
  }
  for (const SharePart& part : shareParts)
    shares[part.key] = {{"predicted", comparison.predictedShares.*part.share},
                        {"measured", comparison.measuredShares.*part.share}};
  return {{"time_per_minibatch", pair(comparison.predictedPerMinibatchMs, comparison.measuredPerMinibatchMs)},
          {"computation_error", comparison.computationError()},
          {"actions", std::move(actions)},
          {"time_fractions", std::move(shares)}};
}

std::string pdc::toJson(const Prediction& prediction, const TraceComparison* comparison) {
  ordered_json memory = ordered_json::array(), bytes = ordered_json::array(), hosts = ordered_json::array(),
               splits = ordered_json::array(), times = ordered_json::array();
  for (const RankPrediction& rank : prediction.ranks) {
    memory.push_back(rank.peakMemoryBytes);
    bytes.push_back(rank.bytesSent);
    hosts.push_back(rank.hosts);
    splits.push_back(splitToJson(rank.memory));
    ordered_json parts;
    for (const TimePart& part : timeParts) parts[part.key] = rank.use.*part.ms;
    times.push_back(std::move(parts));
  }
  pdcrt::RankUse sum = prediction.use();
  double all = std::max(1e-300, prediction.finishMs * static_cast<double>(prediction.ranks.size()));
  ordered_json fractions;
  for (const TimePart& part : timeParts) fractions[part.key] = sum.*part.ms / all;
  ordered_json object = {{"time_per_minibatch_ms", prediction.timePerMinibatchMs},
                         {"bubble_fraction", prediction.bubbleFraction},
                         {"rank_idle_fraction", prediction.rankIdleFraction},
                         {"exposed_communication_fraction", prediction.exposedCommunicationFraction()},
                         {"minibatches", prediction.minibatches},
                         {"finish_ms", prediction.finishMs},
                         {"peak_memory_bytes", std::move(memory)},
                         {"bytes_sent", std::move(bytes)},
                         {"hosts", std::move(hosts)},
                         {"time_fractions", std::move(fractions)},
                         {"time_ms_by_rank", std::move(times)},
                         {"memory_by_rank", std::move(splits)},
                         {"memory_over_time", coursesToJson(prediction)},
                         {"deadlock", prediction.deadlock},
                         {"problem", prediction.problem}};
  if (comparison) object["comparison"] = comparisonToJson(*comparison);
  return pretty(object);
}
