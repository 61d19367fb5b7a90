// From Chrome trace events of a run to what happened. The two ends of a transfer are events of their own there, each
// from its posting to its completion; the transfer was under way from the later posting on.
#include "pdc/Predict/RunTrace.h"
#include "pdc/Support/Diagnostics.h"
#include "pdc/Support/DiagnosticsBuilder.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

using namespace pdc;
using nlohmann::json;
using pdcrt::ActionKind;
using pdcrt::TracedAction;

static std::string textOf(const json& event, const char* key) {
  return event.contains(key) && event[key].is_string() ? event[key].get<std::string>() : "";
}

static double numberOf(const json& event, const char* key) {
  return event.contains(key) && event[key].is_number() ? event[key].get<double>() : NAN;
}

namespace {

class Reader {
public:
  Reader(const Plan& plan, const std::string& file, Diagnostics& diags) : plan_(plan), file_(file), diags_(diags) {}

  Status read(const json& event) {
    if (!event.is_object() || textOf(event, "ph") != "X") return success;
    TracedAction traced;
    std::string error, name = textOf(event, "name");
    double microseconds = numberOf(event, "ts"), duration = numberOf(event, "dur"), rank = numberOf(event, "pid");
    bool timed = std::isfinite(microseconds) && duration >= 0 && std::isfinite(duration);
    if (!timed || !pdcrt::parseAction(name, traced.action, error))
      return diags_.error({file_, name}).help(help)
             << "expected events named like actions, with 'ts' and 'dur'" << (error.empty() ? "" : "; ") << error;
    auto known = static_cast<int>(plan_.stages.size());
    if (traced.action.stage >= known || traced.action.peer >= known || !(rank >= 0) ||
        rank >= static_cast<double>(plan_.ranks.size()))
      return diags_.error({file_, name}).help("give a trace of a run of this plan")
             << "expected one of the plan's " << plan_.ranks.size() << " ranks and " << known
             << " stages, got an event of rank " << rank;
    traced.rank = static_cast<int>(rank);
    traced.startMs = microseconds / 1e3;
    traced.endMs = traced.startMs + duration / 1e3;
    add(traced);
    return success;
  }

  RunTrace finish() {
    for (const auto& [key, transfer] : transfers_)
      if (transfer.rank >= 0 && transfer.peerRank >= 0) events_.push_back(transfer);
    for (const auto& [key, reduction] : reductions_) events_.push_back(reduction);
    double first = INFINITY;
    for (const TracedAction& event : events_) first = std::min(first, event.startMs);
    for (TracedAction& event : events_) {
      event.startMs -= first;
      event.endMs -= first;
    }
    auto order = [](const TracedAction& e) { return std::tuple(e.endMs, e.startMs, e.rank); };
    std::stable_sort(events_.begin(), events_.end(),
                     [&](const TracedAction& a, const TracedAction& b) { return order(a) < order(b); });
    return std::move(events_);
  }

  static constexpr const char* help = "give what a run wrote with --trace";

private:
  void add(const TracedAction& traced) {
    const pdcrt::Action& action = traced.action;
    if (action.wait || pdcrt::isComputation(action.kind) || pdcrt::isTied(action.kind))
      events_.push_back(traced);
    else if (pdcrt::isReduction(action.kind))
      join(reductions_, {action.stage, 0, action.index, static_cast<int>(action.kind)}, traced);
    else
      addEnd(traced);
  }

  void addEnd(TracedAction end) {
    pdcrt::Action& action = end.action;
    bool receives = action.kind == ActionKind::receiveForward || action.kind == ActionKind::receiveBackward;
    if (receives) {
      std::swap(action.stage, action.peer);
      action.kind = action.kind == ActionKind::receiveForward ? ActionKind::sendForward : ActionKind::sendBackward;
      end.peerRank = end.rank;
      end.rank = -1;
    }
    join(transfers_, {action.stage, action.peer, action.index, static_cast<int>(action.kind)}, end);
  }

  using Key = std::tuple<int, int, std::int64_t, int>;
  static void join(std::map<Key, TracedAction>& all, const Key& key, const TracedAction& part) {
    auto [at, isNew] = all.try_emplace(key, part);
    if (isNew) return;
    TracedAction& whole = at->second;
    whole.startMs = std::max(whole.startMs, part.startMs);
    whole.endMs = std::max(whole.endMs, part.endMs);
    whole.rank = whole.rank < 0 ? part.rank : whole.rank;
    whole.peerRank = std::max(whole.peerRank, part.peerRank);
  }

  const Plan& plan_;
  const std::string& file_;
  Diagnostics& diags_;
  std::map<Key, TracedAction> transfers_, reductions_;
  RunTrace events_;
};

} // namespace

Expected<RunTrace> pdc::readTrace(const Plan& plan, const std::string& text, const std::string& file,
                                  Diagnostics& diags) {
  json trace = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!trace.is_object() || !trace.contains("traceEvents") || !trace["traceEvents"].is_array())
    return diags.error({file}).help(Reader::help) << "expected a Chrome trace with 'traceEvents'";
  Reader reader(plan, file, diags);
  for (const json& event : trace["traceEvents"])
    if (!reader.read(event)) return failure;
  return reader.finish();
}
