// The predicted trace in the runtime's schema (runtime/src/measure/Trace.h; times in microseconds), joined with a
// measured one.
#include "pdc/Predict/RunTrace.h"

#include <nlohmann/json.hpp>

#include <cstdio>

using namespace pdc;
using nlohmann::json;
using pdcrt::ActionKind;

/// The receive that belongs to a send.
static pdcrt::Action receiveOf(const pdcrt::Action& send) {
  ActionKind kind = send.kind == ActionKind::sendForward    ? ActionKind::receiveForward
                    : send.kind == ActionKind::sendBackward ? ActionKind::receiveBackward
                    : send.kind == ActionKind::sendVersion  ? ActionKind::receiveVersion
                                                            : ActionKind::receivePart;
  return {kind, false, send.peer, send.stage, send.index};
}

namespace {

/// Writes events, one on a line.
class Writer {
public:
  explicit Writer(const Plan& plan) : ranksOf_(plan.stages.size()) {
    for (const PlanRank& rank : plan.ranks)
      for (const PlanRank::Host& host : rank.hosts) ranksOf_[host.stage].push_back(rank.rank);
  }

  void nameRank(int rank) {
    name("process_name", rank, "", "rank " + std::to_string(rank));
    for (int row = 0; row < 4; ++row) name("thread_name", rank, ",\"tid\":" + std::to_string(row), rows[row]);
  }

  void add(const pdcrt::TracedAction& traced) {
    const pdcrt::Action& action = traced.action;
    auto event = [&](const pdcrt::Action& what, int rank, int row) {
      line(
          R"({"name":"%s","cat":"%s","ph":"X","pid":%d,"tid":%d,"ts":%.3f,"dur":%.3f,"args":{"stage":%d,"index":%lld}})",
          toString(what).c_str(), what.wait ? "wait" : rows[row], rank, row, traced.startMs * 1e3,
          (traced.endMs - traced.startMs) * 1e3, what.stage, static_cast<long long>(what.index));
    };
    if (pdcrt::isComputation(action.kind) || action.wait) {
      event(action, traced.rank, 0);
    } else if (pdcrt::isReduction(action.kind)) {
      for (std::size_t stage = 0; stage < ranksOf_.size(); ++stage)
        if (action.kind == ActionKind::gradientNorm || static_cast<int>(stage) == action.stage)
          for (int rank : ranksOf_[stage])
            event({action.kind, false, static_cast<int>(stage), -1, action.index}, rank, 3);
    } else {
      event(action, traced.rank, 1);
      event(receiveOf(action), traced.peerRank, 2);
    }
  }

  void add(const MemorySample& sample) {
    std::string parts;
    for (const MemoryPart& part : memoryParts)
      parts +=
          std::string(parts.empty() ? "" : ",") + '"' + part.name + "\":" + std::to_string(sample.inUse.*part.bytes);
    line(R"({"name":"memory","ph":"C","pid":%d,"ts":%.3f,"args":{%s}})", sample.rank, sample.ms * 1e3, parts.c_str());
  }

  /// An event of a measured trace, as a process of its own.
  void addMeasured(json event, std::int64_t firstProcess) {
    if (!event.is_object() || !event.contains("pid") || !event["pid"].is_number_integer()) return;
    event["pid"] = event["pid"].get<std::int64_t>() + firstProcess;
    if (event.contains("name") && event["name"] == "process_name" && event.contains("args") &&
        event["args"].is_object() && event["args"].contains("name") && event["args"]["name"].is_string())
      event["args"]["name"] = event["args"]["name"].get<std::string>() + " (measured)";
    text_ += event.dump() + ",\n";
  }

  std::string text() {
    if (text_.ends_with(",\n")) text_.resize(text_.size() - 2);
    return "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n" + text_ + "\n]}\n";
  }

private:
  static constexpr const char* rows[] = {"compute", "send", "receive", "all-reduce"};

  template <class... Values>
  void line(const char* format, Values... values) {
    char buffer[512];
    std::snprintf(buffer, sizeof buffer, format, values...);
    text_ += std::string(buffer) + ",\n";
  }

  void name(const char* what, int rank, const std::string& row, const std::string& value) {
    line(R"({"name":"%s","ph":"M","pid":%d%s,"args":{"name":"%s"}})", what, rank, row.c_str(), value.c_str());
  }

  std::vector<std::vector<int>> ranksOf_; ///< by stage
  std::string text_;
};

} // namespace

std::string pdc::traceText(const Plan& plan, const Prediction& prediction, const std::string& measured) {
  Writer writer(plan);
  for (std::size_t r = 0; r < prediction.ranks.size(); ++r) writer.nameRank(static_cast<int>(r));
  for (const pdcrt::TracedAction& traced : prediction.trace) writer.add(traced);
  for (const MemorySample& sample : prediction.memory) writer.add(sample);
  json trace = measured.empty() ? json() : json::parse(measured, nullptr, /*allow_exceptions=*/false);
  if (trace.is_object() && trace.contains("traceEvents"))
    for (const json& event : trace["traceEvents"])
      writer.addMeasured(event, static_cast<std::int64_t>(prediction.ranks.size()));
  return writer.text();
}
