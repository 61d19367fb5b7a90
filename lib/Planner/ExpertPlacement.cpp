#include "pdc/Planner/ExpertPlacement.h"

#include <algorithm>
#include <numeric>

using namespace pdc;

namespace {

constexpr std::int64_t mostSteps = 1'000'000;

class PlacementSearch {
public:
  PlacementSearch(const std::vector<std::int64_t>& counts, std::int64_t members)
      : counts_(counts), members_(static_cast<std::size_t>(members)), each_(counts.size() / members_),
        experts_(counts.size()), before_(counts.size() + 1), sums_(members_), filled_(members_), at_(counts.size()) {
    std::iota(experts_.begin(), experts_.end(), 0);
    std::stable_sort(experts_.begin(), experts_.end(),
                     [&](std::int32_t a, std::int32_t b) { return countOf(a) > countOf(b); });
    for (std::size_t i = 0; i < experts_.size(); ++i) before_[i + 1] = before_[i] + load(i);
  }

  ExpertPlacement run() {
    placeLargestFirst();
    while (swapOnce()) {
    }
    best_ = at_;
    fullest_ = *std::max_element(sums_.begin(), sums_.end());
    const std::int64_t bound = lowerBound();
    std::fill(sums_.begin(), sums_.end(), 0), std::fill(filled_.begin(), filled_.end(), 0);
    if (fullest_ > bound) search(0, bound);
    ExpertPlacement made{.order = {}, .fullest = fullest_, .lowerBound = steps_ > mostSteps ? bound : fullest_};
    for (std::size_t member = 0; member < members_; ++member) {
      const auto begin = static_cast<std::ptrdiff_t>(made.order.size());
      for (std::size_t i = 0; i < experts_.size(); ++i)
        if (best_[i] == member) made.order.push_back(experts_[i]);
      std::sort(made.order.begin() + begin, made.order.end());
    }
    return made;
  }

private:
  std::int64_t countOf(std::int32_t expert) const { return counts_[static_cast<std::size_t>(expert)]; }
  /// Of the i-th largest expert.
  std::int64_t load(std::size_t i) const { return countOf(experts_[i]); }
  std::int64_t sumOf(std::size_t begin, std::size_t end) const { return before_[end] - before_[begin]; }
  std::int64_t smallest(std::size_t count) const { return sumOf(experts_.size() - count, experts_.size()); }

  void put(std::size_t i, std::size_t member) { at_[i] = member, sums_[member] += load(i), ++filled_[member]; }
  void take(std::size_t i) { sums_[at_[i]] -= load(i), --filled_[at_[i]]; }

  /// Each expert to the emptiest member that has room.
  void placeLargestFirst() {
    for (std::size_t i = 0; i < experts_.size(); ++i) {
      std::size_t emptiest = members_;
      for (std::size_t m = 0; m < members_; ++m)
        if (filled_[m] < each_ && (emptiest == members_ || sums_[m] < sums_[emptiest])) emptiest = m;
      put(i, emptiest);
    }
  }

  /// The swap of an expert of the fullest member that leaves the two of them most even; false: none does.
  bool swapOnce() {
    const auto fullest = static_cast<std::size_t>(std::max_element(sums_.begin(), sums_.end()) - sums_.begin());
    std::int64_t least = sums_[fullest];
    std::size_t first = 0, second = 0;
    for (std::size_t i = 0; i < experts_.size(); ++i)
      for (std::size_t j = 0; j < experts_.size() && at_[i] == fullest; ++j) {
        if (at_[j] == fullest) continue;
        const std::int64_t moved = load(i) - load(j), larger = std::max(sums_[fullest] - moved, sums_[at_[j]] + moved);
        if (larger < least) least = larger, first = i, second = j;
      }
    if (least == sums_[fullest]) return false;
    const std::size_t a = at_[first], b = at_[second];
    take(first), take(second), put(first, b), put(second, a);
    return true;
  }

  std::int64_t lowerBound() const {
    const auto members = static_cast<std::int64_t>(members_);
    std::int64_t bound = (before_.back() + members - 1) / members;
    for (std::size_t j = 0; j < each_; ++j) {
      const std::size_t last = members_ * j;
      if (last >= experts_.size()) break;
      bound = std::max(bound, sumOf(last - j, last + 1) + smallest(each_ - j - 1));
    }
    return bound;
  }

  /// Whether experts from the i-th on may fit so that all members stay below the best.
  bool mayFit(std::size_t i) const {
    std::int64_t room = 0;
    for (std::size_t m = 0; m < members_; ++m) {
      const std::size_t free = each_ - filled_[m];
      if (sums_[m] + smallest(free) >= fullest_) return false;
      room += std::min(fullest_ - 1 - sums_[m], sumOf(i, i + free));
    }
    return room >= sumOf(i, experts_.size());
  }

  /// Places experts from the i-th on; false: the search is over.
  bool search(std::size_t i, std::int64_t bound) {
    if (++steps_ > mostSteps) return false;
    if (i == experts_.size()) {
      fullest_ = *std::max_element(sums_.begin(), sums_.end());
      best_ = at_;
      return fullest_ > bound;
    }
    if (!mayFit(i)) return true;
    // The emptiest members first. Of members that are alike one is enough.
    std::vector<std::size_t> order(members_);
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return sums_[a] != sums_[b] ? sums_[a] < sums_[b] : filled_[a] != filled_[b] ? filled_[a] < filled_[b] : a < b;
    });
    for (std::size_t n = 0; n < members_; ++n) {
      const std::size_t member = order[n];
      const bool isLikeBefore =
          n > 0 && sums_[member] == sums_[order[n - 1]] && filled_[member] == filled_[order[n - 1]];
      if (filled_[member] == each_ || isLikeBefore || sums_[member] + load(i) >= fullest_) continue;
      put(i, member);
      const bool goesOn = search(i + 1, bound);
      take(i);
      if (!goesOn) return false;
    }
    return true;
  }

  const std::vector<std::int64_t>& counts_;
  const std::size_t members_, each_;
  std::vector<std::int32_t> experts_;  ///< the largest first
  std::vector<std::int64_t> before_;   ///< sums of the counts of so many largest
  std::vector<std::int64_t> sums_;     ///< by member
  std::vector<std::size_t> filled_;    ///< by member: how many experts it has
  std::vector<std::size_t> at_, best_; ///< the member of the i-th largest
  std::int64_t fullest_ = 0, steps_ = 0;
};

} // namespace

ExpertPlacement pdc::placeExperts(const std::vector<std::int64_t>& counts, std::int64_t members) {
  return PlacementSearch(counts, members).run();
}

std::int64_t pdc::fullestMember(const std::vector<std::int64_t>& counts, const std::vector<std::int32_t>& order,
                                std::int64_t members) {
  const std::size_t each = order.size() / static_cast<std::size_t>(members);
  std::int64_t fullest = 0;
  for (std::size_t begin = 0; begin < order.size(); begin += each) {
    std::int64_t sum = 0;
    for (std::size_t i = begin; i < begin + each; ++i) sum += counts[static_cast<std::size_t>(order[i])];
    fullest = std::max(fullest, sum);
  }
  return fullest;
}
