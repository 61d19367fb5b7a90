#include "Piper/Solver.h"

#include "Order/DownSets.h"
#include "Piper/Menu.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <memory>

using namespace pdc;

static constexpr double infinity = std::numeric_limits<double>::infinity();

namespace {

class Search {
public:
  Search(const PiperInstance& instance, const PiperSearchOptions& options) : instance_(instance) {
    if (options.timeLimitS > 0)
      deadline_ =
          Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options.timeLimitS));
    listStates(options.mostStates);
    setMemory(instance.memory);
  }

  /// Whether all down-sets are states.
  bool isComplete() const { return isComplete_; }

  void setMemory(double memory) {
    memory_ = memory;
    for (auto& menu : menus_)
      if (menu) menu->setLimit(memory, instance_.replicas);
  }

  /// Looks for a plan with TPS <= threshold within the memory; see `next()` if there is none.
  bool run(double threshold);

  /// After a run without a plan: no threshold below admits one.
  double next() const { return next_; }
  bool ranOutOfTime() const { return isOutOfTime_; }
  void ignoreTime() { deadline_.reset(); }

  /// After a run with a plan: the one with the fewest devices, in pipeline order.
  PiperSolution solution();

  double workBound() const { return workOf_.back() / static_cast<double>(instance_.devices); }

private:
  using Clock = std::chrono::steady_clock;

  struct Label {
    std::int64_t replicas = 0, devices = 0; ///< D, K
    std::size_t state = 0, label = 0;       ///< where it comes from
    std::size_t degree = 0;
    std::int64_t d = 0;
  };
  /// Degree d serves the labels with up to so many replicas.
  struct Step {
    std::int64_t d, reach;
  };

  void listStates(std::size_t most);
  PiperMenu& menu(std::size_t state, std::size_t place, std::size_t degree);
  void addStages(std::size_t state, std::size_t place, std::size_t degree);
  void findSteps(PiperMenu& menu, std::size_t state, const std::vector<Label>& labels, std::int64_t t);
  std::int64_t largestInFlight(PiperMenu& menu, std::int64_t d, std::int64_t least, std::int64_t most);
  void offer(const Label& label);
  void keepBest(std::size_t state);
  bool isLate() { return isOutOfTime_ = isOutOfTime_ || (deadline_ && Clock::now() > *deadline_); }

  const PiperInstance& instance_;
  std::optional<Clock::time_point> deadline_;
  bool isComplete_ = true, isOutOfTime_ = false;
  std::vector<NodeSet> states_; ///< by size
  std::vector<double> workOf_;
  std::vector<std::vector<std::size_t>> supersets_; ///< of each state
  std::vector<std::size_t> firstMenu_;
  std::vector<std::unique_ptr<PiperMenu>> menus_; ///< by pair of states and degree, made when first needed
  double memory_ = 0;

  // Of one run:
  double threshold_ = 0, next_ = 0;
  std::int64_t devicesLeft_ = 0; ///< bound on what the nodes of the current state need
  std::vector<std::vector<Label>> labels_;
  std::vector<Label> offers_; ///< by D; devices 0: none
  std::vector<std::size_t> offered_;
  std::vector<Step> steps_;
};

} // namespace

void Search::listStates(std::size_t most) {
  if (std::optional<DownSets> all = DownSets::all(instance_.dag, most)) {
    for (std::size_t i = 0; i < all->size(); ++i) states_.push_back((*all)[i]);
  } else {
    isComplete_ = false;
    states_.push_back(NodeSet(instance_.dag.size()));
    for (int v : instance_.dag.order()) {
      states_.push_back(states_.back());
      states_.back().insert(static_cast<std::size_t>(v));
    }
  }
  for (const NodeSet& state : states_) {
    workOf_.push_back(0);
    state.forEach([&](std::size_t v) { workOf_.back() += instance_.work[v]; });
  }
  supersets_.resize(states_.size());
  std::size_t pairs = 0;
  for (std::size_t i = 0; i < states_.size(); ++i) {
    firstMenu_.push_back(pairs * instance_.tensorDegrees.size());
    for (std::size_t j = i + 1; j < states_.size(); ++j)
      if (states_[j].includes(states_[i])) supersets_[i].push_back(j);
    pairs += supersets_[i].size();
  }
  menus_.resize(pairs * instance_.tensorDegrees.size());
}

PiperMenu& Search::menu(std::size_t state, std::size_t place, std::size_t degree) {
  auto& menu = menus_[firstMenu_[state] + place * instance_.tensorDegrees.size() + degree];
  if (!menu) {
    menu = std::make_unique<PiperMenu>(instance_, states_[supersets_[state][place]] - states_[state], degree);
    menu->setLimit(memory_, instance_.replicas);
  }
  return *menu;
}

bool Search::run(double threshold) {
  threshold_ = threshold;
  next_ = infinity;
  labels_.assign(states_.size(), {});
  labels_.back() = {Label{}};
  offers_.assign(static_cast<std::size_t>(instance_.replicas) + 1, Label{});
  for (std::size_t state = states_.size() - 1; state-- > 0;) {
    double devices = std::ceil(workOf_[state] / threshold * (1 - 1e-12));
    devicesLeft_ = state == 0 ? 0 : static_cast<std::int64_t>(std::clamp(devices, 1.0, 1e15));
    for (std::size_t place = 0; place < supersets_[state].size(); ++place) {
      if (labels_[supersets_[state][place]].empty()) continue;
      if (isLate()) return false;
      for (std::size_t degree = 0; degree < instance_.tensorDegrees.size(); ++degree) addStages(state, place, degree);
    }
    keepBest(state);
  }
  return !labels_.front().empty();
}

void Search::addStages(std::size_t state, std::size_t place, std::size_t degree) {
  PiperMenu& menu = this->menu(state, place, degree);
  if (menu.mostInFlight() == 0) return;
  std::size_t from = supersets_[state][place];
  const std::vector<Label>& labels = labels_[from];
  std::int64_t t = instance_.tensorDegrees[degree];
  findSteps(menu, state, labels, t);
  std::size_t step = 0;
  for (std::size_t l = 0; l < labels.size(); ++l) {
    while (step < steps_.size() && steps_[step].reach < labels[l].replicas) ++step;
    if (step == steps_.size()) break;
    std::int64_t d = steps_[step].d;
    Label label{labels[l].replicas + d, labels[l].devices + d * t, from, l, degree, d};
    std::int64_t left = instance_.devices - label.devices;
    if (label.replicas > instance_.replicas || left < (state == 0 ? 0 : 1)) continue;
    if (left < devicesLeft_)
      next_ = std::min(next_, workOf_[state] / static_cast<double>(left));
    else
      offer(label);
  }
}

/// Fills steps_ with the degrees d that serve labels, ascending in d and reach.
void Search::findSteps(PiperMenu& menu, std::size_t state, const std::vector<Label>& labels, std::int64_t t) {
  steps_.clear();
  std::int64_t mostReplicas = labels.back().replicas, leastReplicas = labels.front().replicas;
  std::int64_t devices = instance_.devices - labels.back().devices; // labels ascend in replicas, descend in devices
  std::int64_t reached = leastReplicas - 1;
  for (std::int64_t d : instance_.dataDegrees) {
    std::int64_t left = devices - d * t;
    if (left < (state == 0 ? 0 : 1) || leastReplicas + d > instance_.replicas) return;
    if (left < devicesLeft_) {
      next_ = std::min(next_, workOf_[state] / static_cast<double>(left));
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
std::int64_t Search::largestInFlight(PiperMenu& menu, std::int64_t d, std::int64_t least, std::int64_t most) {
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

void Search::offer(const Label& label) {
  Label& best = offers_[static_cast<std::size_t>(label.replicas)];
  if (best.devices == 0) offered_.push_back(static_cast<std::size_t>(label.replicas));
  if (best.devices == 0 || label.devices < best.devices) best = label;
}

void Search::keepBest(std::size_t state) {
  std::sort(offered_.begin(), offered_.end());
  std::vector<Label>& kept = labels_[state];
  for (std::size_t replicas : offered_) {
    Label& label = offers_[replicas];
    if (kept.empty() || label.devices < kept.back().devices) kept.push_back(label);
    label = Label{};
  }
  offered_.clear();
}

PiperSolution Search::solution() {
  PiperSolution solution;
  solution.memory = memory_;
  const Label* label = &labels_.front().back();
  solution.devices = label->devices;
  for (std::size_t state = 0; state + 1 < states_.size();) {
    const auto& above = supersets_[state];
    auto place = static_cast<std::size_t>(std::find(above.begin(), above.end(), label->state) - above.begin());
    std::int64_t y = (label->replicas + label->d - 1) / label->d;
    solution.stages.push_back({states_[label->state] - states_[state], label->degree, label->d, y});
    double tps = menu(state, place, label->degree).cheapest(label->d, y) / static_cast<double>(label->d);
    solution.tps = std::max(solution.tps, tps);
    state = label->state;
    label = &labels_[state][label->label];
  }
  return solution;
}

/// Shrinks [lower, solution.tps] until the bounds meet or time is up.
static void closeGap(Search& search, PiperSolution& solution) {
  double lower = std::min(search.workBound(), solution.tps);
  for (double growth = 1.01; lower < solution.tps; growth *= growth) {
    // Gallop up from the lower bound until a plan is found, then bisect.
    double middle = lower + (solution.tps - lower) / 2;
    double threshold = growth < 1e6 ? std::min(lower * growth, middle) : middle;
    if (!(threshold < solution.tps)) threshold = lower;
    if (search.run(threshold)) {
      solution = search.solution();
      growth = 1e6;
    } else {
      if (search.ranOutOfTime()) break;
      lower = std::min(search.next(), solution.tps);
    }
  }
  solution.lowerBound = lower;
}

/// Among the plans with that TPS, up to the rounding of sums, one with the least peak memory.
static void savePeakMemory(Search& search, PiperSolution& solution) {
  double tps = solution.tps, bound = solution.lowerBound;
  double lower = 0, upper = solution.memory;
  while (upper - lower > 1) {
    double middle = lower + std::floor((upper - lower) / 2);
    search.setMemory(middle);
    if (search.run(tps * (1 + 1e-12))) {
      solution = search.solution();
      upper = middle;
    } else {
      if (search.ranOutOfTime()) break;
      lower = middle;
    }
  }
  solution.tps = tps;
  solution.lowerBound = bound;
}

std::optional<PiperSolution> pdc::solvePiper(const PiperInstance& instance, const PiperSearchOptions& options) {
  Search search(instance, options);
  bool isFeasible = search.run(infinity);
  if (search.ranOutOfTime()) { // a plan, however late, or the proof that there is none
    Search patient(instance, {0, options.mostStates});
    if (!patient.run(infinity)) return std::nullopt;
    PiperSolution solution = patient.solution();
    solution.lowerBound = std::min(solution.tps, search.workBound());
    return solution;
  }
  if (!isFeasible) return std::nullopt;
  PiperSolution solution = search.solution();
  closeGap(search, solution);
  if (!search.isComplete()) solution.lowerBound = std::min(search.workBound(), solution.tps);
  if (!search.ranOutOfTime()) savePeakMemory(search, solution);
  return solution;
}

std::optional<std::int64_t> pdc::fewestPiperDevices(const PiperInstance& instance, const PiperSearchOptions& options) {
  Search search(instance, {0, options.mostStates});
  if (!search.run(infinity)) return std::nullopt;
  return search.solution().devices;
}

std::optional<double> pdc::leastPiperMemory(const PiperInstance& instance, const PiperSearchOptions& options) {
  Search search(instance, {0, options.mostStates});
  double upper = 0;
  for (const PiperInstanceNode& node : instance.nodes)
    for (const auto& options_ : node.options)
      for (const PiperOption& option : options_)
        upper += option.memoryA * static_cast<double>(instance.replicas) + option.memoryB;
  upper = std::ceil(upper);
  search.setMemory(upper);
  if (!search.run(infinity)) return std::nullopt;
  double lower = -1;
  while (upper - lower > 1) {
    double middle = lower + std::floor((upper - lower) / 2);
    search.setMemory(middle);
    (search.run(infinity) ? upper : lower) = middle;
  }
  return upper;
}
