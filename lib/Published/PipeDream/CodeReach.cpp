#include "PipeDream/CodeReach.h"

#include <algorithm>

using namespace pdc;

static constexpr double infinity = std::numeric_limits<double>::infinity();

static std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

CodeReach::CodeReach(const CodeStates& states, const std::vector<CodeLevel>& levels)
    : states_(states), inner_(levels[0]), last_(states.size() - 1) {
  if (levels.size() > 1) outer_ = levels[1];
}

/// What a byte of weights costs of devices · time, on `devices` components inside each of `replicas`. An outer stage
/// on all components has all weights: budget() counts their sync.
double CodeReach::slope(int replicas, int devices, bool isFirst) const {
  double inside = devices > 1 ? 4.0 * (devices - 1) / (inner_.bytesPerMs * devices) : 0;
  double outside = replicas > 1 && replicas < outer_.count ? 4.0 * (replicas - 1) / (outer_.bytesPerMs * replicas) : 0;
  return inside + devices * outside / (isFirst ? outer_.inner : 1);
}

/// The devices · time that a stage of `devices` components inside each of `replicas` may take.
double CodeReach::budget(int replicas, int devices) const {
  double ms = replicas * timeMs_;
  if (replicas > 1 && replicas == outer_.count)
    ms -= 4.0 * (replicas - 1) * states_.weights[last_] / (outer_.bytesPerMs * replicas) / outer_.inner;
  return devices * ms;
}

double CodeReach::value(std::size_t state, int replicas, int devices, bool isFirst) const {
  return states_.timeMs[state] + slope(replicas, devices, isFirst) * states_.weights[state];
}

bool CodeReach::mayStart(std::size_t state, int replicas) const {
  return outer_.count > 1 && 2 * states_.cut[state] <= timeMs_ * outer_.bytesPerMs * replicas;
}

bool CodeReach::mayEnd(std::size_t state, int replicas, int end) const {
  return state == last_ || end == replicas || mayStart(state, replicas);
}

std::size_t CodeReach::row(int replicas, int end, int used) const {
  return (at(replicas - 1) * at(outer_.count) + at(end - 1)) * at(inner_.count) + at(used - 1);
}

/// The last state of `before` from which a stage of `devices` leads to `to`.
CodeReach::Step CodeReach::find(const Labelled& before, std::size_t to, Place place, int devices, bool opens) {
  double least = budget(place.replicas, devices), most = least * inner_.bytesPerMs / 2;
  double byte = slope(place.replicas, devices, place.end == place.replicas);
  least = states_.timeMs[to] + byte * states_.weights[to] - least;
  if (before.best.empty() || before.best[at(devices)] < least) return {};
  if (!opens && states_.cut[to] > most) return {};
  for (auto x = before.states.rbegin(); x != before.states.rend(); ++x) {
    if (*looks_ == 0) {
      isExhausted_ = true;
      return {};
    }
    --*looks_;
    if (*x < to && states_.timeMs[*x] + byte * states_.weights[*x] >= least && (opens || states_.cut[*x] <= most) &&
        states_.includes(to, *x))
      return {static_cast<int>(*x), devices, opens};
  }
  return {};
}

/// A stage that ends with `to` at this place.
CodeReach::Step CodeReach::stepTo(std::size_t to, Place place) {
  auto [m, end, used] = place;
  // The first stage of an outer stage pays no cuts inside.
  if (end == m && states_.timeMs[to] + slope(m, used, true) * states_.weights[to] <= budget(m, used))
    return {-1, used, true};
  if (end > m)
    if (Step step = find(closed_[at(end - m) * at(outer_.count) + at(m - 1)], to, place, used, true); step.devices)
      return step;
  for (int q = 1; q < used; ++q)
    if (Step step = find(open_[row(m, end, used - q)], to, place, q, false); step.devices) return step;
  return {};
}

void CodeReach::add(Labelled& list, std::size_t state, int replicas, bool isFirst) {
  if (list.best.empty()) list.best.assign(at(inner_.count) + 1, -infinity);
  list.states.push_back(static_cast<std::uint32_t>(state));
  for (int q = 1; q <= inner_.count; ++q)
    list.best[at(q)] = std::max(list.best[at(q)], value(state, replicas, q, isFirst));
}

/// `before`, `after`: the least devices that the stages before and after the state's end need.
void CodeReach::label(std::size_t state, int before, int after) {
  std::fill(isClosed_.begin(), isClosed_.end(), 0);
  for (int m = 1; m <= outer_.count; ++m) {
    int known = inner_.count + 1; // with fewer outer components
    for (int end = m; end <= outer_.count; ++end)
      for (int used = 1; used < known && !isExhausted_; ++used) {
        int left = (outer_.count - end) * inner_.count + (inner_.count - used) * m;
        if (left < after) break;
        if ((end - m) * inner_.count + used * m < before || !stepTo(state, {m, end, used}).devices) continue;
        known = used;
        add(open_[row(m, end, used)], state, m, end == m);
        if (mayEnd(state, m, end)) isClosed_[at(end)] = 1;
        break;
      }
  }
  auto least = std::find(isClosed_.begin(), isClosed_.end(), 1) - isClosed_.begin();
  for (int m = 1; least + m <= outer_.count; ++m)
    if (mayStart(state, m))
      add(closed_[static_cast<std::size_t>(least) * at(outer_.count) + at(m - 1)], state, m, false);
}

std::vector<CodeOuterStage> CodeReach::trace(Place place) {
  std::vector<CodeOuterStage> stages = {{.replicas = place.replicas, .inside = {}}};
  for (std::size_t to = last_;;) {
    Step step = stepTo(to, place);
    if (!step.devices) return {}; // the limit
    std::vector<CodeCut>& inside = stages.front().inside;
    inside.insert(inside.begin(), {to, step.devices});
    if (step.from < 0) return stages;
    to = at(step.from);
    if (!step.opens) {
      place.used -= step.devices;
      continue;
    }
    int end = place.end - place.replicas;
    for (place = {0, end, 0}; place.used == 0;) { // some stage that ends there, the one with the fewest copies
      if (++place.replicas > end) return {};
      if (!mayEnd(to, place.replicas, end)) continue;
      for (int used = 1; used <= inner_.count && place.used == 0; ++used)
        if (stepTo(to, {place.replicas, end, used}).devices) place.used = used;
    }
    stages.insert(stages.begin(), {.replicas = place.replicas, .inside = {}});
  }
}

/// Adds what is left of `count` to the stage that makes the slowest one the fastest. `timeOf(stage, replicas)`.
template <class Replicas, class TimeOf>
static double giveTheRest(std::size_t stages, int count, Replicas&& replicas, TimeOf&& timeOf) {
  int left = count;
  for (std::size_t s = 0; s < stages; ++s) left -= replicas(s);
  double best = infinity;
  std::size_t taker = 0;
  for (std::size_t s = 0; s < stages; ++s) {
    double slowest = 0;
    for (std::size_t k = 0; k < stages; ++k) slowest = std::max(slowest, timeOf(k, replicas(k) + (k == s ? left : 0)));
    if (slowest < best) best = slowest, taker = s;
  }
  replicas(taker) += left;
  return best;
}

/// Uses every component; the time of the plan, in the order of operations of CodeSearch.
double CodeReach::settle(std::vector<CodeOuterStage>& stages) const {
  auto stageOf = [&](int begin, std::size_t from, std::size_t to, double insideMs, int inner) {
    bool isFirst = begin == static_cast<int>(from) - 1; // places, 0: the empty set
    CodeStage stage{.insideMs = insideMs, .weights = states_.weights[to]};
    if (from > 0) stage.weights -= states_.weights[from - 1];
    if (isFirst)
      stage.share = inner;
    else
      stage.edge = std::max(states_.cut[from - 1], states_.cut[to]);
    return stage;
  };
  std::vector<CodeStage> outer;
  int begin = -1;
  for (CodeOuterStage& whole : stages) {
    std::vector<CodeStage> inside;
    int from = begin;
    for (const CodeCut& cut : whole.inside) {
      inside.push_back(stageOf(begin, at(from + 1), cut.end, computeMs(states_, from, cut.end), inner_.inner));
      from = static_cast<int>(cut.end);
    }
    double ms = giveTheRest(
        inside.size(), inner_.count, [&](std::size_t s) -> int& { return whole.inside[s].replicas; },
        [&](std::size_t s, int m) { return inside[s].timeMs(m, inner_.bytesPerMs); });
    outer.push_back(stageOf(-1, at(begin + 1), whole.inside.back().end, ms, outer_.inner));
    begin = from;
  }
  if (outer_.count == 1) return outer[0].insideMs;
  return giveTheRest(
      outer.size(), outer_.count, [&](std::size_t s) -> int& { return stages[s].replicas; },
      [&](std::size_t s, int m) { return outer[s].timeMs(m, outer_.bytesPerMs); });
}

CodeReach::Answer CodeReach::plan(double timeMs, const CodeFastStates& fast, std::size_t& looks) {
  timeMs_ = timeMs * (1 + 1e-12); // sums of the same numbers in different order
  looks_ = &looks;
  isExhausted_ = false;
  open_.assign(row(outer_.count, outer_.count, inner_.count) + 1, {});
  closed_.assign(at(outer_.count + 1) * at(outer_.count), {});
  isClosed_.assign(at(outer_.count) + 1, 0);
  for (std::size_t i = 0; i < fast.states.size() && !isExhausted_; ++i)
    label(fast.states[i], fast.fromStart[i], fast.toEnd[i]);
  if (isExhausted_) return {};
  for (int end = 1; end <= outer_.count; ++end)
    for (int m = 1; m <= end; ++m)
      for (int used = 1; used <= inner_.count; ++used) {
        if (!stepTo(last_, {m, end, used}).devices) continue;
        Answer answer{.stages = trace({m, end, used})};
        if (answer.stages.empty()) return {};
        answer.timeMs = settle(answer.stages);
        answer.kind = answer.timeMs <= timeMs * (1 + 1e-11) ? Answer::Kind::found : Answer::Kind::unknown;
        return answer;
      }
  return {.kind = isExhausted_ ? Answer::Kind::unknown : Answer::Kind::none};
}
