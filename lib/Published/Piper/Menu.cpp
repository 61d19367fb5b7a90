#include "Piper/Menu.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

using namespace pdc;

static constexpr double infinity = std::numeric_limits<double>::infinity();

/// A node that can save memory by its dearer option.
struct PiperMenu::Swap {
  double savedA, savedB, extra;
  std::size_t node;
  int choice;
};

/// What a group (a class, or a node with several options) can add: so much memory saved for so much extra cost.
struct PiperMenu::Item {
  double saved = 0, extra = 0;
  int option = 0; ///< nodes of the class that change, or place in Several::options
};

void PiperMenu::Option::add(const Option& other) {
  cost += other.cost;
  weight += other.weight;
  memoryA += other.memoryA;
  memoryB += other.memoryB;
}

PiperMenu::PiperMenu(const PiperInstance& instance, const NodeSet& stage, std::size_t degree)
    : PiperMenu(instance, stage, degree, nullptr) {}

PiperMenu::PiperMenu(const PiperInstance& instance, const NodeSet& stage, std::size_t degree,
                     std::vector<int>* cheapestChoices) {
  std::vector<Swap> swaps;
  std::vector<Option> options;
  stage.forEach([&](std::size_t v) {
    const PiperInstanceNode& node = instance.nodes[v];
    options.clear();
    double leastCost = infinity, cuts = 0, weight = 0; // of the fastest
    for (const PiperOption& from : node.options[degree]) {
      Option option{from.time, from.weight, from.memoryA, from.memoryB, from.choice};
      for (std::size_t e = 0; e < node.neighbours.size(); ++e)
        if (!stage.contains(node.neighbours[e])) option.cost += from.cuts[e];
      if (option.cost < leastCost) {
        leastCost = option.cost;
        cuts = option.cost - from.time;
        weight = option.weight;
      }
      options.push_back(option);
    }
    cuts_ += cuts;
    movedWeight_ += weight;
    place(v, options, swaps, cheapestChoices);
  });
  groupByMemory(swaps, cheapestChoices != nullptr);
}

/// Without the options that another one equals or beats in everything.
template <class Option>
static std::vector<Option> undominated(const std::vector<Option>& options) {
  auto isAtMost = [](const Option& a, const Option& b) {
    return a.cost <= b.cost && a.weight <= b.weight && a.memoryA <= b.memoryA && a.memoryB <= b.memoryB;
  };
  std::vector<Option> kept;
  for (const Option& option : options) {
    if (std::any_of(kept.begin(), kept.end(), [&](const Option& other) { return isAtMost(other, option); })) continue;
    std::erase_if(kept, [&](const Option& other) { return isAtMost(option, other); });
    kept.push_back(option);
  }
  return kept;
}

void PiperMenu::place(std::size_t node, const std::vector<Option>& options, std::vector<Swap>& swaps,
                      std::vector<int>* choices) {
  std::vector<Option> kept = undominated(options);
  if (choices) choices->push_back(kept.empty() ? 0 : kept.front().choice);
  if (kept.empty()) {
    isOffered_ = false;
  } else if (kept.size() == 1) {
    base_.add(kept.front());
  } else if (kept.size() == 2 && kept[0].weight == kept[1].weight) {
    if (kept[1].cost < kept[0].cost) std::swap(kept[0], kept[1]);
    base_.add(kept[0]);
    swaps.push_back({kept[0].memoryA - kept[1].memoryA, kept[0].memoryB - kept[1].memoryB, kept[1].cost - kept[0].cost,
                     node, kept[1].choice});
    if (choices) choices->back() = kept[0].choice;
  } else {
    for (const Option& option : kept) weightsVary_ |= option.weight != kept[0].weight;
    several_.push_back({node, std::move(kept)});
  }
}

void PiperMenu::groupByMemory(std::vector<Swap>& swaps, bool keepNodes) {
  std::sort(swaps.begin(), swaps.end(), [](const Swap& a, const Swap& b) {
    return std::tie(a.savedA, a.savedB, a.extra, a.node) < std::tie(b.savedA, b.savedB, b.extra, b.node);
  });
  for (const Swap& swap : swaps) {
    if (classes_.empty() || classes_.back().savedA != swap.savedA || classes_.back().savedB != swap.savedB)
      classes_.push_back({swap.savedA, swap.savedB, {0}, {}, {}});
    Class& last = classes_.back();
    last.extra.push_back(last.extra.back() + swap.extra);
    if (!keepNodes) continue;
    last.nodes.push_back(swap.node);
    last.choices.push_back(swap.choice);
  }
}

double PiperMenu::leastMemory(std::int64_t inFlight) const {
  auto y = static_cast<double>(inFlight);
  double memory = base_.memory(y);
  for (const Class& each : classes_)
    memory -= std::max(0.0, each.saved(y)) * static_cast<double>(each.extra.size() - 1);
  for (const Several& each : several_) {
    double least = infinity;
    for (const Option& option : each.options) least = std::min(least, option.memory(y));
    memory += least;
  }
  return memory;
}

void PiperMenu::setLimit(double memory, std::int64_t mostInFlight) {
  memory_ = memory;
  extraByY_.clear();
  extraByDAndY_.clear();
  std::int64_t fits = 0, fails = mostInFlight + 1;
  if (!isOffered_) fails = 1;
  while (fails - fits > 1) {
    std::int64_t middle = fits + (fails - fits) / 2;
    (leastMemory(middle) <= memory ? fits : fails) = middle;
  }
  mostInFlight_ = fits;
}

double PiperMenu::fastest(std::int64_t degree) const {
  auto d = static_cast<double>(degree);
  double price = base_.price(d);
  for (const Several& each : several_) {
    double least = infinity;
    for (const Option& option : each.options) least = std::min(least, option.price(d));
    price += least;
  }
  return price;
}

/// One run of the knapsack described in the header.
class PiperMenu::Knapsack {
public:
  Knapsack(const PiperMenu& menu, double d, double y) : needed_(menu.base_.memory(y) - menu.memory_) {
    for (const Several& each : menu.several_) addSeveral(each, d, y);
    for (std::size_t c = 0; c < menu.classes_.size(); ++c) addClass(menu, c, y);
  }

  /// Of the smallest extra cost that saves what is needed; infinite if nothing does.
  Bounds bounds() {
    if (needed_ <= 0) return {0, 0};
    if (groups_.size() > fewGroups) {
      relax();
      // Proven up to the rounding of sums.
      if (known_ < infinity) return {std::max(0.0, relaxed_ * (1 - 1e-12)), known_};
    }
    double extra = run();
    return {extra, extra};
  }

  /// That extra cost exactly.
  double run() {
    if (needed_ <= 0) return 0;
    if (groups_.size() > fewGroups) relax();
    std::size_t groups = groups_.size() - (last_ ? 1 : 0);
    if (last_) std::swap(groups_[*last_], groups_.back());
    layers_.push_back({State{}});
    for (std::size_t g = 0; g < groups; ++g) {
      merge(groups_[g].items);
      if (known_ < infinity) dropBeyondBound(g + 1);
    }
    return complete();
  }

  /// After run(): places in Several::options, and numbers of changed nodes per class.
  void read(std::vector<int>& severalChoice, std::vector<int>& classCount) const {
    severalChoice = cheapest_;
    int state = best_;
    for (std::size_t layer = layers_.size(); layer-- > 1;) {
      const State& s = layers_[layer][static_cast<std::size_t>(state)];
      const Group& group = groups_[layer - 1];
      (group.isClass ? classCount : severalChoice)[group.index] = s.option;
      state = s.parent;
    }
    if (last_ && bestCount_ > 0) classCount[groups_.back().index] = bestCount_;
  }

private:
  static constexpr std::size_t fewGroups = 3;

  struct Group {
    bool isClass = false;
    std::size_t index = 0;
    std::vector<Item> items; ///< the first saves nothing and costs nothing
  };
  struct State {
    double saved = 0, extra = 0;
    int parent = 0, option = 0;
  };

  void addSeveral(const Several& each, double d, double y) {
    std::size_t first = 0;
    for (std::size_t o = 1; o < each.options.size(); ++o) {
      const Option &a = each.options[o], &b = each.options[first];
      if (std::pair(a.price(d), a.memory(y)) < std::pair(b.price(d), b.memory(y))) first = o;
    }
    const Option& base = each.options[first];
    needed_ += base.memory(y);
    cheapest_.push_back(static_cast<int>(first));
    Group group{false, cheapest_.size() - 1, {{0, 0, static_cast<int>(first)}}};
    for (std::size_t o = 0; o < each.options.size(); ++o) {
      double saved = base.memory(y) - each.options[o].memory(y);
      if (saved > 0) group.items.push_back({saved, each.options[o].price(d) - base.price(d), static_cast<int>(o)});
    }
    if (group.items.size() > 1) groups_.push_back(std::move(group));
  }

  void addClass(const PiperMenu& menu, std::size_t index, double y) {
    const Class& each = menu.classes_[index];
    double saved = each.saved(y);
    if (saved <= 0) return;
    Group group{true, index, {}};
    for (std::size_t c = 0; c < each.extra.size(); ++c)
      group.items.push_back({saved * static_cast<double>(c), each.extra[c], static_cast<int>(c)});
    if (!last_ || groups_[*last_].items.size() < group.items.size()) last_ = groups_.size();
    groups_.push_back(std::move(group));
  }

  void merge(const std::vector<Item>& items) {
    const std::vector<State>& states = layers_.back();
    std::vector<State> all;
    all.reserve(states.size() * items.size());
    for (std::size_t s = 0; s < states.size(); ++s)
      for (const Item& item : items)
        all.push_back({std::min(needed_, states[s].saved + item.saved), states[s].extra + item.extra,
                       static_cast<int>(s), item.option});
    std::sort(all.begin(), all.end(), [](const State& a, const State& b) {
      return std::tie(b.saved, a.extra, a.parent, a.option) < std::tie(a.saved, b.extra, b.parent, b.option);
    });
    std::vector<State> kept;
    for (const State& state : all)
      if (kept.empty() || state.extra < kept.back().extra) kept.push_back(state);
    layers_.push_back(std::move(kept));
  }

  /// The steps of the lower convex hull of each group, the cheapest per saved byte first; λ is the slope of the step
  /// that completes what is needed.
  void relax() {
    struct Step {
      double slope, saved, extra;
    };
    std::vector<Step> steps;
    for (const Group& group : groups_) {
      std::vector<Item> items = group.items;
      std::sort(items.begin(), items.end(),
                [](const Item& a, const Item& b) { return std::pair(a.saved, a.extra) < std::pair(b.saved, b.extra); });
      std::vector<Item> hull;
      auto slope = [](const Item& a, const Item& b) { return (b.extra - a.extra) / (b.saved - a.saved); };
      for (const Item& item : items) {
        if (!hull.empty() && item.saved == hull.back().saved) continue;
        while (hull.size() > 1 && slope(hull[hull.size() - 2], hull.back()) >= slope(hull.back(), item))
          hull.pop_back();
        hull.push_back(item);
      }
      for (std::size_t i = 1; i < hull.size(); ++i)
        steps.push_back(
            {slope(hull[i - 1], hull[i]), hull[i].saved - hull[i - 1].saved, hull[i].extra - hull[i - 1].extra});
    }
    std::stable_sort(steps.begin(), steps.end(), [](const Step& a, const Step& b) { return a.slope < b.slope; });
    double saved = 0, known = 0;
    for (const Step& step : steps) {
      if (saved >= needed_) break;
      relaxed_ = known + step.extra * std::min(1.0, (needed_ - saved) / step.saved);
      saved += step.saved;
      known += step.extra;
      lambda_ = step.slope;
    }
    if (saved >= needed_) known_ = known; // else for rounding only, as something fits
  }

  void sumLagrangianMinima() {
    rest_.assign(groups_.size() + 1, 0);
    for (std::size_t g = groups_.size(); g-- > 0;) {
      double least = 0;
      for (const Item& item : groups_[g].items) least = std::min(least, item.extra - lambda_ * item.saved);
      rest_[g] = rest_[g + 1] + least;
    }
  }

  void dropBeyondBound(std::size_t nextGroup) {
    if (rest_.empty()) sumLagrangianMinima();
    double limit = known_ * (1 + 1e-9);
    std::erase_if(layers_.back(), [&](const State& state) {
      return state.extra + lambda_ * (needed_ - state.saved) + rest_[nextGroup] > limit;
    });
  }

  double complete() {
    const std::vector<State>& states = layers_.back();
    double least = infinity;
    for (std::size_t s = 0; s < states.size(); ++s) {
      std::size_t count = 0;
      double missing = needed_ - states[s].saved;
      if (missing > 0) {
        if (!last_) continue;
        const std::vector<Item>& items = groups_.back().items;
        auto reaches = [&](const Item& item) { return item.saved >= missing; };
        count = static_cast<std::size_t>(std::clamp(std::ceil(missing / items[1].saved) - 1, 1.0, 1e9));
        while (count < items.size() && !reaches(items[count])) ++count;
        if (count >= items.size()) continue;
      }
      double extra = states[s].extra + (count ? groups_.back().items[count].extra : 0);
      if (extra >= least) continue;
      least = extra;
      best_ = static_cast<int>(s);
      bestCount_ = static_cast<int>(count);
    }
    return least;
  }

  double needed_;                   ///< memory to be saved, compared to the cheapest options
  std::vector<int> cheapest_;       ///< of each of the menu's several_
  std::vector<Group> groups_;       ///< the largest class last, once run() began
  std::optional<std::size_t> last_; ///< the largest class
  std::vector<std::vector<State>> layers_;
  double lambda_ = 0, relaxed_ = 0, known_ = infinity; ///< of relax(): dual solution, value, value rounded up
  std::vector<double> rest_;                           ///< Lagrangian minima of the groups from each on
  int best_ = 0, bestCount_ = 0;
};

void PiperMenu::solve(std::int64_t d, std::int64_t y, Bounds& bounds) const {
  bounds.lower = bounds.upper = Knapsack(*this, static_cast<double>(d), static_cast<double>(y)).run();
}

PiperMenu::Bounds& PiperMenu::boundsOfExtra(std::int64_t d, std::int64_t y) {
  if (weightsVary_) return extraByDAndY_[{d, y}];
  auto index = static_cast<std::size_t>(y);
  if (extraByY_.size() <= index) extraByY_.resize(index + 1);
  return extraByY_[index];
}

double PiperMenu::cheapest(std::int64_t d, std::int64_t y) {
  if (y > mostInFlight_) return infinity;
  Bounds& extra = boundsOfExtra(d, y);
  if (extra.lower < 0 || extra.lower < extra.upper) solve(d, y, extra);
  return fastest(d) + extra.lower;
}

bool PiperMenu::reaches(std::int64_t d, std::int64_t y, double tps, double& next) {
  next = infinity;
  if (y > mostInFlight_) return false;
  auto tpsFor = [&, least = fastest(d)](double extra) { return (least + extra) / static_cast<double>(d); };
  Bounds& extra = boundsOfExtra(d, y);
  if (extra.lower < 0) extra = Knapsack(*this, static_cast<double>(d), static_cast<double>(y)).bounds();
  if (tpsFor(extra.lower) <= tps && tpsFor(extra.upper) > tps) solve(d, y, extra);
  if (tpsFor(extra.upper) <= tps) return true;
  next = tpsFor(extra.lower);
  return false;
}

std::vector<int> PiperMenu::choose(const PiperInstance& instance, const NodeSet& stage, std::size_t degree,
                                   double memory, std::int64_t d, std::int64_t y) {
  std::vector<int> choices;
  PiperMenu menu(instance, stage, degree, &choices);
  menu.memory_ = memory;
  Knapsack knapsack(menu, static_cast<double>(d), static_cast<double>(y));
  knapsack.run();
  std::vector<int> severalChoice, classCount(menu.classes_.size(), 0);
  knapsack.read(severalChoice, classCount);

  std::vector<std::size_t> placeOf(instance.nodes.size(), 0);
  std::size_t place = 0;
  stage.forEach([&](std::size_t v) { placeOf[v] = place++; });
  for (std::size_t i = 0; i < menu.several_.size(); ++i) {
    const Several& each = menu.several_[i];
    choices[placeOf[each.node]] = each.options[static_cast<std::size_t>(severalChoice[i])].choice;
  }
  for (std::size_t c = 0; c < menu.classes_.size(); ++c)
    for (int i = 0; i < classCount[c]; ++i) {
      auto changed = static_cast<std::size_t>(i);
      choices[placeOf[menu.classes_[c].nodes[changed]]] = menu.classes_[c].choices[changed];
    }
  return choices;
}
