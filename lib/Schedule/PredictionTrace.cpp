// Traces: the predicted one in the runtime's schema (pdcrt/Trace.h; times in microseconds), joined and compared with a
// measured one.
#include "pdc/Schedule/Prediction.h"
#include "pdc/Support/Diagnostics.h"
#include "pdc/Support/DiagnosticsBuilder.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <map>
#include <ostream>

using namespace pdc;
using nlohmann::json;
using pdcrt::ActionKind;

static std::string eventLine(const std::string& name, const char* category, int rank, int row, double startMs,
                             double endMs, const pdcrt::Action& action) {
  char line[256];
  std::snprintf(
      line, sizeof line,
      R"({"name":"%s","cat":"%s","ph":"X","pid":%d,"tid":%d,"ts":%.3f,"dur":%.3f,"args":{"stage":%d,"index":%lld}})"
      ",\n",
      name.c_str(), category, rank, row, startMs * 1e3, (endMs - startMs) * 1e3, action.stage,
      static_cast<long long>(action.index));
  return line;
}

/// The receive that belongs to a send.
static pdcrt::Action receiveOf(const pdcrt::Action& send) {
  ActionKind kind = send.kind == ActionKind::sendForward    ? ActionKind::receiveForward
                    : send.kind == ActionKind::sendBackward ? ActionKind::receiveBackward
                    : send.kind == ActionKind::sendVersion  ? ActionKind::receiveVersion
                                                            : ActionKind::receivePart;
  return {kind, false, send.peer, send.stage, send.index};
}

std::string pdc::traceText(const Plan& plan, const Prediction& prediction, const std::string& measured) {
  std::string result = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  constexpr const char* rows[] = {"compute", "send", "receive", "all-reduce"};
  auto name = [&](const char* what, int rank, int row, const std::string& value) {
    result += std::string(R"({"name":")") + what + R"(","ph":"M","pid":)" + std::to_string(rank) +
              (row >= 0 ? ",\"tid\":" + std::to_string(row) : "") + R"(,"args":{"name":")" + value + "\"}},\n";
  };
  for (std::size_t r = 0; r < prediction.ranks.size(); ++r) {
    name("process_name", static_cast<int>(r), -1, "rank " + std::to_string(r));
    for (int row = 0; row < 4; ++row) name("thread_name", static_cast<int>(r), row, rows[row]);
  }
  std::vector<std::vector<int>> ranksOf(plan.stages.size()); // of each stage
  for (const PlanRank& rank : plan.ranks)
    for (const PlanRank::Host& host : rank.hosts) ranksOf[host.stage].push_back(rank.rank);
  for (const pdcrt::TracedAction& traced : prediction.trace) {
    const pdcrt::Action& action = traced.action;
    auto add = [&](const pdcrt::Action& what, int rank, int row) {
      result += eventLine(toString(what), rows[row], rank, row, traced.startMs, traced.endMs, what);
    };
    if (pdcrt::isComputation(action.kind)) {
      add(action, traced.rank, 0);
    } else if (action.kind == ActionKind::allReduce) {
      for (int rank : ranksOf[action.stage]) add(action, rank, 3);
    } else {
      add(action, traced.rank, 1);
      add(receiveOf(action), traced.peerRank, 2);
    }
  }
  json trace = measured.empty() ? json() : json::parse(measured, nullptr, /*allow_exceptions=*/false);
  if (trace.is_object() && trace.contains("traceEvents"))
    for (json event : trace["traceEvents"]) {
      if (!event.is_object() || !event.contains("pid") || !event["pid"].is_number_integer()) continue;
      event["pid"] = event["pid"].get<std::int64_t>() + static_cast<std::int64_t>(prediction.ranks.size());
      if (event.value("name", "") == "process_name" && event.contains("args") && event["args"].contains("name"))
        event["args"]["name"] = event["args"]["name"].get<std::string>() + " (measured)";
      result += event.dump() + ",\n";
    }
  if (result.ends_with(",\n")) result.resize(result.size() - 2);
  return result + "\n]}\n";
}

namespace {

/// Durations of one kind of action of one stage.
struct Mean {
  double sumMs = 0;
  std::int64_t count = 0;
  double ms() const { return count > 0 ? sumMs / static_cast<double>(count) : 0; }
};

/// One trace, ours or measured.
struct Summary {
  std::map<std::string, Mean> actions;
  std::map<std::int64_t, double> inputDone; ///< by minibatch: end of stage 0's backward

  void add(const pdcrt::Action& action, double startMs, double endMs) {
    pdcrt::Action kind = action;
    kind.index = 0;
    kind.peer = -1;
    std::string name = toString(kind); // "1F0", "1SF0>-1"
    name = name.substr(0, name.find('0', std::to_string(action.stage).size()));
    Mean& mean = actions[name];
    mean.sumMs += endMs - startMs;
    ++mean.count;
    if (action.stage == 0 && (action.kind == ActionKind::backward || action.kind == ActionKind::backwardWeight))
      inputDone[action.index] = endMs;
  }

  /// Slope over the middle half.
  double perMinibatchMs() const {
    auto count = static_cast<std::ptrdiff_t>(inputDone.size());
    if (count < 4) return 0;
    auto from = std::next(inputDone.begin(), count / 4), to = std::next(inputDone.begin(), count - 1 - count / 4);
    return to->first > from->first ? (to->second - from->second) / static_cast<double>(to->first - from->first) : 0;
  }
};

} // namespace

Expected<TraceComparison> pdc::compare(const Prediction& prediction, const std::string& measured,
                                       const std::string& file, Diagnostics& diags) {
  json trace = json::parse(measured, nullptr, /*allow_exceptions=*/false);
  if (!trace.is_object() || !trace.contains("traceEvents") || !trace["traceEvents"].is_array()) {
    diags.error({file}).help("give what a run wrote with --trace") << "expected a Chrome trace with 'traceEvents'";
    return failure;
  }
  Summary predicted, real;
  for (const pdcrt::TracedAction& traced : prediction.trace) predicted.add(traced.action, traced.startMs, traced.endMs);
  for (const json& event : trace["traceEvents"]) {
    if (!event.is_object() || event.value("ph", "") != "X" || event.value("cat", "") == "wait") continue;
    pdcrt::Action action;
    std::string error, name = event.value("name", "");
    bool timed = event.contains("ts") && event["ts"].is_number() && event.contains("dur") && event["dur"].is_number();
    if (!timed || !pdcrt::parseAction(name, action, error)) {
      diags.error({file, name}).help("give what a run wrote with --trace")
          << "expected events named like actions, with 'ts' and 'dur'" << (error.empty() ? "" : "; ") << error;
      return failure;
    }
    if (action.kind == ActionKind::receiveForward || action.kind == ActionKind::receiveBackward) continue;
    double startMs = event["ts"].get<double>() / 1e3;
    real.add(action, startMs, startMs + event["dur"].get<double>() / 1e3);
  }
  TraceComparison result;
  for (const auto& [name, mean] : real.actions)
    result.rows.push_back({name, mean.count, predicted.actions[name].ms(), mean.ms()});
  result.predictedPerMinibatchMs = predicted.perMinibatchMs();
  result.measuredPerMinibatchMs = real.perMinibatchMs();
  return result;
}

void pdc::print(std::ostream& out, const TraceComparison& comparison) {
  auto line = [&](const std::string& what, std::int64_t count, double predicted, double measured) {
    char text[160];
    std::snprintf(text, sizeof text, "%-12s %8lld  %12.4f  %12.4f", what.c_str(), static_cast<long long>(count),
                  predicted, measured);
    out << text;
    if (measured > 0) {
      std::snprintf(text, sizeof text, "  %+8.2f %%", 100 * (predicted / measured - 1));
      out << text;
    }
    out << "\n";
  };
  out << "\naction          count  predicted ms   measured ms     error\n";
  for (const TraceComparison::Row& row : comparison.rows) line(row.action, row.count, row.predictedMs, row.measuredMs);
  if (comparison.measuredPerMinibatchMs > 0)
    line("minibatch", 1, comparison.predictedPerMinibatchMs, comparison.measuredPerMinibatchMs);
}
