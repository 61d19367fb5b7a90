// Who does what when: the beginning of a run as predicted; and, after a run, the same minibatches from the middle of
// the run as predicted and as measured, on one scale.
#include "Sections.h"

#include <algorithm>
#include <cmath>
#include <map>

using namespace pdc;
using pdcrt::ActionKind;
using pdcrt::TracedAction;

namespace {

constexpr double left = 92, width = 1072, laneHeight = 20, transferHeight = 5, stripHeight = 4, rowHeight = 36,
                 top = 24;

struct Window {
  double fromMs = 0, toMs = 0;
  double length() const { return toMs - fromMs; }
};

const char* kindOf(const pdcrt::Action& action) {
  if (action.wait) return "wait";
  switch (action.kind) {
  case ActionKind::forward: return "f";
  case ActionKind::backward: return "b";
  case ActionKind::backwardInput: return "i";
  case ActionKind::backwardWeight: return "w";
  case ActionKind::update: return "u";
  case ActionKind::evaluate: return "e";
  case ActionKind::sendForward: return "sf";
  case ActionKind::sendBackward: return "sb";
  case ActionKind::allReduce:
  case ActionKind::reduceScatter:
  case ActionKind::allGather:
  case ActionKind::unshard:
  case ActionKind::gradientNorm: return "a";
  default: return "sv";
  }
}

/// Parts of what a phase takes.
struct TeamShares {
  double exposed = 0; ///< in which members wait for each other
  double hidden = 0;  ///< that collectives take beside what is computed
};

TeamShares teamSharesOf(const Plan& plan, const pdcrt::Action& action) {
  const PlanStage& stage = plan.stages[static_cast<std::size_t>(action.stage)];
  const bool isForward = action.kind == ActionKind::forward;
  const bool isBackward = action.kind == ActionKind::backward || action.kind == ActionKind::backwardInput ||
                          action.kind == ActionKind::backwardWeight;
  const double ms = isForward ? stage.forwardMs : stage.inputGradientMs + stage.weightGradientMs;
  if ((!isForward && !isBackward) || ms <= 0) return {};
  const double exposed = isForward ? stage.forwardTeamMs : stage.backwardTeamMs;
  const double hidden = isForward ? stage.forwardHiddenTeamMs : stage.backwardHiddenTeamMs;
  return {.exposed = std::min(exposed / ms, 1.0), .hidden = std::min(hidden / ms, 1.0)};
}

/// The part of a trace that lies in a window.
class Chart {
public:
  Chart(const ReportData& data, Window window)
      : data_(data), window_(window), ranks_(std::min(data.plan.ranks.size(), most::timelineRanks)),
        scale_((width - left) / window.length()) {}

  /// `isPredicted`: the plan says how much of what is computed is waiting for the team.
  std::string draw(const RunTrace& trace, const std::string& description, bool isPredicted) {
    isPredicted_ = isPredicted;
    std::string body = axis();
    for (std::size_t r = 0; r < ranks_; ++r) {
      double y = top + static_cast<double>(r) * rowHeight;
      body += label(left - 10, y + 14, "r", "end", "rank " + std::to_string(r));
      body += box(left, y, width - left, laneHeight, "row");
    }
    std::size_t boxes = 0;
    for (const TracedAction& traced : trace)
      if (boxes < 2 * most::timelineBoxes && draw(traced, body)) ++boxes;
    return picture(width, top + static_cast<double>(ranks_) * rowHeight + 4, description, body);
  }

private:
  bool draw(const TracedAction& traced, std::string& body) const {
    const pdcrt::Action& action = traced.action;
    bool receives = action.kind == ActionKind::receiveVersion || action.kind == ActionKind::receivePart;
    if (traced.rank >= static_cast<int>(ranks_) || traced.rank < 0 || (receives && !action.wait)) return false;
    double from = std::max(traced.startMs, window_.fromMs), to = std::min(traced.endMs, window_.toMs);
    if (!(to > from)) return false;
    bool inLane = pdcrt::isComputation(action.kind) || action.wait;
    double x = left + (from - window_.fromMs) * scale_, length = (to - from) * scale_;
    if (action.wait && length < 1) return false;
    double y = top + traced.rank * rowHeight + (inLane ? 0 : laneHeight + 2);
    double height = inLane ? laneHeight : transferHeight;
    std::string hover = toString(action) + ", " + timeText(traced.endMs - traced.startMs);
    // A gap of a pixel between neighbours, where they are wide enough.
    double shown = inLane && !action.wait && length > 4 ? length - 1 : length;
    const char* kind = kindOf(action);
    body += box(x, y, shown, height, kind, hover);
    if (action.kind == ActionKind::backwardWeight && !action.wait) body += box(x, y, shown, height, "hatch", hover);
    if (isPredicted_ && !action.wait) body += drawTeam(traced, y);
    std::string text = std::to_string(action.index);
    if (pdcrt::isComputation(action.kind) && shown > 7 * static_cast<double>(text.size()) + 4)
      body += label(x + shown / 2, y + 14, (std::string("n n") + kind).c_str(), "middle", text);
    body += "\n";
    return true;
  }

  /// The end of a phase in which members wait for each other, and a strip for what is hidden before it. Where what is
  /// sent is told apart no further, both are drawn at the end.
  std::string drawTeam(const TracedAction& traced, double y) const {
    const TeamShares shares = teamSharesOf(data_.plan, traced.action);
    const double lengthMs = traced.endMs - traced.startMs, waitsFromMs = traced.endMs - shares.exposed * lengthMs;
    std::string body;
    const auto part = [&](double fromMs, double toMs, const char* kind, const std::string& hover) {
      const double from = std::max(fromMs, window_.fromMs), to = std::min(toMs, window_.toMs);
      const double below = kind == std::string("mh") ? laneHeight - stripHeight : 0;
      if (to > from)
        body += box(left + (from - window_.fromMs) * scale_, y + below, (to - from) * scale_, laneHeight - below, kind,
                    hover);
    };
    if (shares.exposed > 0)
      part(waitsFromMs, traced.endMs, "m", "waits within the team " + timeText(shares.exposed * lengthMs));
    if (shares.hidden > 0)
      part(std::max(traced.startMs, waitsFromMs - shares.hidden * lengthMs), waitsFromMs, "mh",
           "hidden of the team " + timeText(shares.hidden * lengthMs));
    return body;
  }

  std::string axis() const {
    std::string body;
    double step = niceStep(window_.length(), 6), bottom = top + static_cast<double>(ranks_) * rowHeight;
    for (int i = 0; i * step <= window_.length() * (1 + 1e-9); ++i) {
      double x = left + i * step * scale_;
      body += "<path class=\"grid\" d=\"M" + number(x) + " " + number(top - 4) + "V" + number(bottom) + "\"/>";
      body += label(std::min(x, width - 2), top - 9, "t",
                    i == 0           ? "start"
                    : x > width - 30 ? "end"
                                     : "middle",
                    tickText(i * step, step) + (i == 0 ? " ms" : ""));
    }
    return body + "\n";
  }

  const ReportData& data_;
  Window window_;
  std::size_t ranks_;
  double scale_;
  bool isPredicted_ = true;
};

/// By minibatch, when stage 0 was done with it.
std::map<std::int64_t, double> inputDone(const RunTrace& trace) {
  std::map<std::int64_t, double> done;
  for (const TracedAction& traced : trace) {
    ActionKind kind = traced.action.kind;
    if (traced.action.stage == 0 && !traced.action.wait &&
        (kind == ActionKind::backward || kind == ActionKind::backwardWeight))
      done[traced.action.index] = traced.endMs;
  }
  return done;
}

/// Minibatches that a picture of the steady state shows.
std::int64_t shownMinibatches(const pdcrt::Schedule& schedule) {
  std::int64_t period = pdcrt::periodMinibatches(schedule);
  return std::clamp<std::int64_t>(2 * period, 6, 24) / period * period > 0
             ? std::clamp<std::int64_t>(2 * period, 6, 24) / period * period
             : 24;
}

/// From stage 0's end of minibatch first - 1 to that of first + count - 1; empty if the trace lacks them.
Window windowOf(const std::map<std::int64_t, double>& done, std::int64_t first, std::int64_t count) {
  auto from = done.find(first - 1), to = done.find(first + count - 1);
  if (from == done.end() || to == done.end()) return {};
  return {from->second, to->second};
}

std::string figure(const char* title, const std::string& more, const std::string& body) {
  return std::string("<div class=\"figure\"><h3>") + title + " <small>" + escaped(more) + "</small></h3>\n" + body +
         "</div>\n";
}

/// The same minibatches, predicted and measured.
std::string steadyCharts(const ReportData& data) {
  std::map<std::int64_t, double> predicted = inputDone(data.prediction.trace), measured = inputDone(data.run.trace);
  std::int64_t count = shownMinibatches(data.schedule), period = pdcrt::periodMinibatches(data.schedule);
  auto common = static_cast<std::int64_t>(std::min(predicted.size(), measured.size()));
  std::int64_t first = std::max<std::int64_t>(1, common / 2 / period * period);
  Window ours = windowOf(predicted, first, count), real = windowOf(measured, first, count);
  if (ours.length() <= 0 || real.length() <= 0) return "";
  double length = std::max(ours.length(), real.length());
  ours.toMs = ours.fromMs + length;
  real.toMs = real.fromMs + length;
  std::string which = "from the middle of the run, minibatch " + std::to_string(first) + " on";
  return figure("Predicted", which, Chart(data, ours).draw(data.prediction.trace, "predicted timeline", true)) +
         figure("Measured", which + ", on the same scale",
                Chart(data, real).draw(data.run.trace, "measured timeline", false));
}

} // namespace

double pdc::beginningMs(const ReportData& data) {
  std::map<std::int64_t, double> done = inputDone(data.prediction.trace);
  std::int64_t period = pdcrt::periodMinibatches(data.schedule);
  std::int64_t last = data.schedule.minibatchesPerUpdate > 0
                          ? 2 * data.schedule.minibatchesPerUpdate - 1
                          : std::min<std::int64_t>(pdcrt::minibatchesInFlight(data.schedule), 24) +
                                std::min<std::int64_t>(std::max<std::int64_t>(2 * period, 4), 24);
  double end = data.prediction.finishMs;
  if (auto found = done.find(last); found != done.end()) end = std::min(end, found->second);
  // No more than can be drawn.
  std::vector<double> ends;
  for (const TracedAction& traced : data.prediction.trace)
    if (traced.rank < static_cast<int>(most::timelineRanks) && pdcrt::isComputation(traced.action.kind) &&
        !traced.action.wait)
      ends.push_back(traced.endMs);
  if (ends.size() > most::timelineBoxes / 2) {
    std::nth_element(ends.begin(), ends.begin() + most::timelineBoxes / 2, ends.end());
    end = std::min(end, ends[most::timelineBoxes / 2]);
  }
  return end;
}

std::string pdc::timelineSection(const ReportData& data) {
  double end = beginningMs(data);
  if (!(end > 0)) return "";
  bool splits = std::any_of(data.prediction.trace.begin(), data.prediction.trace.end(),
                            [](const TracedAction& t) { return t.action.kind == ActionKind::backwardWeight; });
  std::vector<std::pair<const char*, const char*>> entries = {{"f", "forward"}};
  if (splits)
    entries.insert(entries.end(), {{"i", "backward, of inputs"}, {"w hatch", "of weights"}});
  else
    entries.push_back({"b", "backward"});
  const auto& stages = data.plan.stages;
  if (std::ranges::any_of(stages, [](const PlanStage& stage) { return stage.exposedTeamMs() > 0; }))
    entries.push_back({"m", "waits within the team"});
  if (std::ranges::any_of(stages, [](const PlanStage& stage) { return stage.hiddenTeamMs() > 0; }))
    entries.push_back({"mh", "hidden collectives of the team (strip)"});
  entries.insert(entries.end(), {{"u", "update"},
                                 {"wait", "waiting"},
                                 {"sf", "sends values (thin)"},
                                 {"sb", "sends gradients (thin)"},
                                 {"a", "all-reduce (thin)"}});
  std::string body = legend(entries);
  body += figure("Predicted", "from the start",
                 Chart(data, {0, end}).draw(data.prediction.trace, "predicted timeline", true));
  if (data.isMeasured()) body += steadyCharts(data);
  if (std::string more = andMore(data.plan.ranks.size(), most::timelineRanks); !more.empty())
    body += "<p class=\"note\">" + more + " ranks; pdc-sim --trace writes all of them, for Perfetto.</p>\n";
  return section("timeline", "Timeline",
                 "Each row is a rank; numbers are minibatches. The thin bars below a row are what it sends meanwhile.",
                 body);
}
