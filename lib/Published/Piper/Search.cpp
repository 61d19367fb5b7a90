#include "Piper/Search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

using namespace pdc;

static constexpr double infinity = std::numeric_limits<double>::infinity();
static constexpr double rounding = 1e-12;            ///< of sums, relative
static constexpr std::size_t mostMenus = 1 << 18;    ///< kept at a time
static constexpr std::size_t mostMovedLabels = 4000; ///< of a state

PiperSearch::PiperSearch(const PiperInstance& instance, const PiperSearchOptions& options)
    : instance_(instance), states_(PiperStates::make(instance, options.mostStates)), memory_(instance.memory) {
  if (options.timeLimitS > 0)
    deadline_ =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options.timeLimitS));
  std::size_t pairs = 0;
  for (const auto& supersets : states_.supersets) {
    firstMenu_.push_back(pairs * instance_.tensorDegrees.size());
    pairs += supersets.size();
  }
  menus_.resize(pairs * instance_.tensorDegrees.size());
}

void PiperSearch::setMemory(double memory) {
  memory_ = memory;
  for (auto& menu : menus_)
    if (menu) menu->setLimit(memory, instance_.replicas);
}

/// Valid until the next call.
PiperMenu& PiperSearch::menu(std::size_t state, std::size_t place, std::size_t degree) {
  auto& menu = menus_[firstMenu_[state] + place * instance_.tensorDegrees.size() + degree];
  if (menu) return *menu;
  if (++menuCount_ > mostMenus) {
    for (auto& each : menus_) each.reset();
    menuCount_ = 1;
  }
  const NodeSet& all = states_.sets[states_.supersets[state][place]];
  menu = std::make_unique<PiperMenu>(instance_, all - states_.sets[state], degree);
  menu->setLimit(memory_, instance_.replicas);
  return *menu;
}

bool PiperSearch::run(double threshold) {
  threshold_ = threshold;
  next_ = infinity;
  labels_.assign(states_.sets.size(), {});
  labels_.back() = {Label{}};
  fewestDevices_.assign(states_.sets.size(), 0);
  offersByReplicas_.assign(static_cast<std::size_t>(instance_.replicas) + 1, Label{});
  for (std::size_t state = states_.sets.size() - 1; state-- > 0;) {
    double work = states_.work[state], devices = work > 0 ? std::ceil(work / threshold * (1 - rounding)) : 0;
    devicesLeft_ = state == 0 ? 0 : static_cast<std::int64_t>(std::clamp(devices, 1.0, 1e15));
    const std::vector<std::size_t>& supersets = states_.supersets[state];
    for (std::size_t place = 0; place < supersets.size(); ++place) {
      if (labels_[supersets[place]].empty()) continue;
      if (isLate()) return false;
      for (std::size_t degree = 0; degree < instance_.tensorDegrees.size(); ++degree) addStages(state, place, degree);
    }
    if (!keepBest(state)) return false;
  }
  return !labels_.front().empty();
}

/// Splits the stage between the state and one of its supersets off, for all labels of the superset.
void PiperSearch::addStages(std::size_t state, std::size_t place, std::size_t degree) {
  std::size_t from = states_.supersets[state][place];
  const PiperStates::Least &before = states_.least[state][degree], &after = states_.least[from][degree];
  if (after.missing > before.missing || after.memory * (1 - rounding) - before.memory > memory_) return;
  PiperMenu& menu = this->menu(state, place, degree);
  if (menu.mostInFlight() == 0) return;
  findSteps(menu, state, from, degree);
  const std::vector<Label>& labels = labels_[from];
  std::size_t step = 0;
  for (std::size_t l = 0; l < labels.size(); ++l) {
    while (step < steps_.size() && steps_[step].reach < labels[l].replicas) ++step;
    if (step == steps_.size()) break;
    std::int64_t d = steps_[step].d;
    Label label{labels[l].replicas + d, labels[l].devices + d * instance_.tensorDegrees[degree], 0, from, l, degree, d};
    std::int64_t left = instance_.devices - label.devices;
    if (label.replicas > instance_.replicas || left < (state == 0 ? 0 : 1)) continue;
    if (left < devicesLeft_) {
      next_ = std::min(next_, states_.work[state] / static_cast<double>(left));
      continue;
    }
    if (countsMoved_) label.moved = labels[l].moved + menu.moved(d);
    offer(label);
  }
}

/// Fills steps_ with the degrees d that serve labels of `from`, ascending in d and reach.
void PiperSearch::findSteps(PiperMenu& menu, std::size_t state, std::size_t from, std::size_t degree) {
  steps_.clear();
  std::int64_t mostReplicas = labels_[from].back().replicas, leastReplicas = labels_[from].front().replicas;
  std::int64_t devices = instance_.devices - fewestDevices_[from], t = instance_.tensorDegrees[degree];
  std::int64_t reached = leastReplicas - 1;
  // TPS is at least leastTime/d.
  double leastTime = states_.least[from][degree].time * (1 - rounding) - states_.least[state][degree].time;
  const std::vector<std::int64_t>& degrees = instance_.dataDegrees;
  auto first = std::partition_point(degrees.begin(), degrees.end(),
                                    [&](std::int64_t d) { return leastTime / static_cast<double>(d) > threshold_; });
  if (first != degrees.begin()) next_ = std::min(next_, leastTime / static_cast<double>(*std::prev(first)));
  for (auto degreeOf = first; degreeOf != degrees.end(); ++degreeOf) {
    std::int64_t d = *degreeOf, left = devices - d * t;
    if (left < (state == 0 ? 0 : 1) || leastReplicas + d > instance_.replicas) return;
    if (left < devicesLeft_) {
      next_ = std::min(next_, states_.work[state] / static_cast<double>(left));
      return;
    }
    double fastest = menu.fastest(d) / static_cast<double>(d);
    if (fastest > threshold_) {
      next_ = std::min(next_, fastest);
      continue;
    }
    std::int64_t least = 1 + (reached + 1 + d - 1) / d, most = 1 + (mostReplicas + d - 1) / d;
    std::int64_t y = largestInFlight(menu, d, least, std::min(most, menu.mostInFlight()));
    if (y == 0) continue;
    reached = d * (y - 1);
    steps_.push_back({d, reached});
    if (reached >= mostReplicas) return;
  }
}

/// The largest y from `least` to `most` for which degree d reaches the threshold; 0 if none does.
std::int64_t PiperSearch::largestInFlight(PiperMenu& menu, std::int64_t d, std::int64_t least, std::int64_t most) {
  if (least > most) return 0;
  double next = 0;
  if (menu.reaches(d, most, threshold_, next)) return most;
  std::int64_t reaches = least - 1, fails = most;
  while (fails - reaches > 1) {
    std::int64_t middle = reaches + (fails - reaches) / 2;
    double here = 0;
    if (menu.reaches(d, middle, threshold_, here)) {
      reaches = middle;
    } else {
      fails = middle;
      next = here;
    }
  }
  next_ = std::min(next_, next);
  return reaches < least ? 0 : reaches;
}

void PiperSearch::offer(const Label& label) {
  if (countsMoved_) {
    offers_.push_back(label);
    return;
  }
  Label& best = offersByReplicas_[static_cast<std::size_t>(label.replicas)];
  if (best.devices == 0) offered_.push_back(static_cast<std::size_t>(label.replicas));
  if (best.devices == 0 || label.devices < best.devices) best = label;
}

/// Makes the undominated offers the state's labels, ascending in replicas; false if they are too many.
bool PiperSearch::keepBest(std::size_t state) {
  std::vector<Label>& kept = labels_[state];
  if (countsMoved_) {
    keepBestThatMove(kept);
  } else {
    std::sort(offered_.begin(), offered_.end());
    for (std::size_t replicas : offered_) {
      Label& label = offersByReplicas_[replicas];
      if (kept.empty() || label.devices < kept.back().devices) kept.push_back(label);
      label = Label{};
    }
    offered_.clear();
  }
  fewestDevices_[state] = instance_.devices;
  for (const Label& label : kept) fewestDevices_[state] = std::min(fewestDevices_[state], label.devices);
  return !countsMoved_ || kept.size() <= mostMovedLabels;
}

void PiperSearch::keepBestThatMove(std::vector<Label>& kept) {
  // Among equals the first offer stays: it has the smallest next state, so the earliest cut.
  std::stable_sort(offers_.begin(), offers_.end(), [](const Label& a, const Label& b) {
    return std::pair(a.replicas, a.devices) < std::pair(b.replicas, b.devices);
  });
  std::map<std::int64_t, double> movedBy; ///< fewest so far with at most so many devices; falls with the devices
  for (const Label& label : offers_) {
    auto above = movedBy.upper_bound(label.devices);
    if (above != movedBy.begin() && std::prev(above)->second <= label.moved * (1 + rounding)) continue;
    while (above != movedBy.end() && above->second >= label.moved) above = movedBy.erase(above);
    movedBy[label.devices] = label.moved;
    kept.push_back(label);
  }
  offers_.clear();
}

const PiperSearch::Label& PiperSearch::best() const {
  const std::vector<Label>& labels = labels_.front();
  if (!countsMoved_) return labels.back();
  double fewest = infinity;
  for (const Label& label : labels) fewest = std::min(fewest, label.moved);
  // Among labels that move the same, devices fall.
  auto last = std::find_if(labels.rbegin(), labels.rend(),
                           [&](const Label& label) { return label.moved <= fewest * (1 + rounding); });
  return *last;
}

PiperSolution PiperSearch::solution() {
  PiperSolution solution;
  solution.memory = memory_;
  const Label* label = &best();
  solution.devices = label->devices;
  for (std::size_t state = 0; state + 1 < states_.sets.size();) {
    const auto& above = states_.supersets[state];
    auto place = static_cast<std::size_t>(std::find(above.begin(), above.end(), label->state) - above.begin());
    std::int64_t y = (label->replicas + label->d - 1) / label->d;
    solution.stages.push_back({states_.sets[label->state] - states_.sets[state], label->degree, label->d, y});
    double tps = menu(state, place, label->degree).cheapest(label->d, y) / static_cast<double>(label->d);
    solution.tps = std::max(solution.tps, tps);
    state = label->state;
    label = &labels_[state][label->label];
  }
  return solution;
}
