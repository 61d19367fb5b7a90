// A predicted and a measured trace, held against each other.
#include "pdc/Predict/RunTrace.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <ostream>
#include <tuple>

using namespace pdc;
using pdcrt::ActionKind;
using pdcrt::TracedAction;

/// "1F", "1SF>2": an action without its minibatch.
static std::string nameWithoutIndex(pdcrt::Action action) {
  action.index = 0;
  std::string name = toString(action);
  name.erase(name.find('0', std::to_string(action.stage).size()), 1);
  return name;
}

static bool endsMinibatch(const pdcrt::Action& action) {
  return action.stage == 0 && (action.kind == ActionKind::backward || action.kind == ActionKind::backwardWeight);
}

namespace {

struct Span {
  double fromMs = 0, toMs = 0;
  double within(double a, double b) const { return std::max(0.0, std::min(b, toMs) - std::max(a, fromMs)); }
};

/// One trace, ours or measured.
class Summary {
public:
  Summary(const RunTrace& trace, std::size_t ranks) : trace_(trace), ranks_(static_cast<double>(ranks)) {
    for (const TracedAction& traced : trace_) {
      if (traced.action.wait) continue;
      add(traced);
      if (endsMinibatch(traced.action)) inputDone_[traced.action.index] = traced.endMs;
    }
    auto count = static_cast<std::ptrdiff_t>(inputDone_.size());
    if (count < 4) return;
    from_ = std::next(inputDone_.begin(), count / 4);
    to_ = std::next(inputDone_.begin(), count - 1 - count / 4);
  }

  struct Mean {
    double sumMs = 0;
    std::int64_t count = 0;
    bool isComputation = false;
    double ms() const { return count > 0 ? sumMs / static_cast<double>(count) : 0; }
  };
  const std::map<std::string, Mean>& actions() const { return actions_; }
  double meanMs(const std::string& action) const {
    auto found = actions_.find(action);
    return found == actions_.end() ? 0 : found->second.ms();
  }

  /// Slope over the middle half.
  double perMinibatchMs() const {
    if (inputDone_.size() < 4 || to_->first <= from_->first) return 0;
    return (to_->second - from_->second) / static_cast<double>(to_->first - from_->first);
  }

  TimeShares shares() const {
    TimeShares shares;
    if (perMinibatchMs() <= 0) return shares;
    Span window{from_->second, to_->second};
    double all = ranks_ * (window.toMs - window.fromMs);
    for (const TracedAction& traced : trace_)
      if (traced.action.wait)
        addWait(traced, window, all, shares);
      else if (pdcrt::isComputation(traced.action.kind))
        shares.compute += window.within(traced.startMs, traced.endMs) / all;
    shares.other = std::max(0.0, 1 - shares.compute - shares.transfers - shares.allReduce - shares.waiting);
    return shares;
  }

private:
  using Key = std::tuple<int, int, std::int64_t, ActionKind>;
  /// The transfer or all-reduce that an action starts or waits for.
  static Key keyOf(const pdcrt::Action& action) {
    bool receives = action.kind == ActionKind::receiveForward || action.kind == ActionKind::receiveBackward;
    if (action.kind == ActionKind::gradientNorm) return {0, -1, action.index, action.kind}; // one for all stages
    if (pdcrt::isReduction(action.kind)) return {action.stage, -1, action.index, action.kind};
    if (!receives) return {action.stage, action.peer, action.index, action.kind};
    return {action.peer, action.stage, action.index,
            action.kind == ActionKind::receiveForward ? ActionKind::sendForward : ActionKind::sendBackward};
  }

  void add(const TracedAction& traced) {
    bool isReceive = traced.action.kind == ActionKind::receiveVersion || traced.action.kind == ActionKind::receivePart;
    if (isReceive) return; // of shared parameters, which are told as their sends, too
    Mean& mean = actions_[nameWithoutIndex(traced.action)];
    mean.sumMs += traced.endMs - traced.startMs;
    ++mean.count;
    mean.isComputation = pdcrt::isComputation(traced.action.kind);
    if (!mean.isComputation) started_[keyOf(traced.action)] = traced.startMs;
  }

  /// Splits a wait at what it waited for having started.
  void addWait(const TracedAction& wait, const Span& window, double all, TimeShares& shares) const {
    auto found = started_.find(keyOf(wait.action));
    double started = found == started_.end() ? wait.startMs : found->second;
    double split = std::clamp(started, wait.startMs, wait.endMs);
    shares.waiting += window.within(wait.startMs, split) / all;
    double& exposed = pdcrt::isReduction(wait.action.kind) ? shares.allReduce : shares.transfers;
    exposed += window.within(split, wait.endMs) / all;
  }

  const RunTrace& trace_;
  double ranks_;
  std::map<std::string, Mean> actions_;
  std::map<Key, double> started_;
  std::map<std::int64_t, double> inputDone_; ///< by minibatch: end of stage 0's backward
  std::map<std::int64_t, double>::const_iterator from_, to_;
};

} // namespace

double TraceComparison::computationError() const {
  double errors = 0, all = 0;
  for (const Row& row : rows) {
    if (!row.isComputation || row.measuredMs <= 0) continue;
    double ms = row.measuredMs * static_cast<double>(row.count);
    errors += std::abs(error(row.predictedMs, row.measuredMs)) * ms;
    all += ms;
  }
  return all > 0 ? errors / all : 0;
}

TraceComparison pdc::compare(const Plan& plan, const Prediction& prediction, const RunTrace& measured) {
  Summary predicted(prediction.trace, plan.ranks.size()), real(measured, plan.ranks.size());
  TraceComparison result;
  for (const auto& [name, mean] : real.actions())
    if (predicted.actions().contains(name))
      result.rows.push_back({name, mean.count, predicted.meanMs(name), mean.ms(), mean.isComputation});
  result.predictedPerMinibatchMs = predicted.perMinibatchMs();
  result.measuredPerMinibatchMs = real.perMinibatchMs();
  result.predictedShares = predicted.shares();
  result.measuredShares = real.shares();
  return result;
}

void pdc::print(std::ostream& out, const TraceComparison& comparison) {
  auto print = [&](const char* format, auto... values) {
    char text[160];
    std::snprintf(text, sizeof text, format, values...);
    out << text;
  };
  auto line = [&](const std::string& what, std::int64_t count, double predicted, double measured) {
    print("%-12s %8lld  %12.4f  %12.4f", what.c_str(), static_cast<long long>(count), predicted, measured);
    if (measured > 0) print("  %+8.2f %%", 100 * TraceComparison::error(predicted, measured));
    out << "\n";
  };
  out << "\naction          count  predicted ms   measured ms     error\n";
  for (const TraceComparison::Row& row : comparison.rows) line(row.action, row.count, row.predictedMs, row.measuredMs);
  print("mean error of the computations, weighted by their time: %.2f %%\n", 100 * comparison.computationError());
  if (comparison.measuredPerMinibatchMs <= 0) return;
  line("minibatch", 1, comparison.predictedPerMinibatchMs, comparison.measuredPerMinibatchMs);
  out << "\npredicted   measured   of all ranks' time, in the middle half of the minibatches\n";
  for (const SharePart& part : shareParts)
    print("%7.2f %%  %7.2f %%  %s\n", 100 * comparison.predictedShares.*part.share,
          100 * comparison.measuredShares.*part.share, part.name);
}
