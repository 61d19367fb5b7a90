// Enumeration by size: every state of size s + 1 is a state of size s and one class more, found again by its hash.
// O(states · (steps per state) · words).
#include "DnnPartitioning/States.h"

#include <algorithm>

using namespace pdc;
using namespace pdc::placement;

static std::size_t at(std::int64_t index) {
  return static_cast<std::size_t>(index);
}

States::States(const Instance& instance)
    : instance_(&instance), wordsPerSet_((instance.classes.size() + 63) / 64), before_(instance.classes.size()),
      after_(instance.classes.size()), tensorsOf_(instance.classes.size()) {
  for (auto [from, to] : instance.edges) {
    before_[at(to)].push_back(from);
    after_[at(from)].push_back(to);
  }
  tensorMasks_.resize(instance.tensors.size() * wordsPerSet_, 0);
  for (std::size_t t = 0; t < instance.tensors.size(); ++t)
    for (int c : instance.tensors[t].classes) {
      tensorsOf_[at(c)].push_back(static_cast<int>(t));
      tensorMasks_[t * wordsPerSet_ + at(c) / 64] |= std::uint64_t{1} << (c % 64);
    }
}

std::optional<States> States::all(const Instance& instance, const Limits& limits) {
  States states(instance);
  if (!states.enumerate(limits)) return std::nullopt;
  states.buckets_ = {};
  return states;
}

static std::size_t hashOf(const std::uint64_t* set, std::size_t words) {
  std::uint64_t hash = 0x9e3779b97f4a7c15;
  for (std::size_t w = 0; w < words; ++w) {
    hash = (hash ^ set[w]) * 0xff51afd7ed558ccd;
    hash ^= hash >> 32;
  }
  return hash;
}

void States::rehash() {
  buckets_.assign(std::max<std::size_t>(1024, 2 * buckets_.size()), 0);
  for (std::uint32_t state = 0; state < words_.size() / wordsPerSet_; ++state) {
    std::size_t slot = hashOf(words(state), wordsPerSet_) & (buckets_.size() - 1);
    while (buckets_[slot]) slot = (slot + 1) & (buckets_.size() - 1);
    buckets_[slot] = state + 1;
  }
}

/// The number of a set, which is added if it is new.
std::uint32_t States::find(const std::uint64_t* set) {
  auto count = static_cast<std::uint32_t>(words_.size() / wordsPerSet_);
  if (2 * (count + std::size_t{1}) > buckets_.size()) rehash();
  std::size_t slot = hashOf(set, wordsPerSet_) & (buckets_.size() - 1);
  while (buckets_[slot]) {
    if (std::equal(set, set + wordsPerSet_, words(buckets_[slot] - 1))) return buckets_[slot] - 1;
    slot = (slot + 1) & (buckets_.size() - 1);
  }
  buckets_[slot] = count + 1;
  words_.insert(words_.end(), set, set + wordsPerSet_);
  return count;
}

Amount States::cutChange(std::uint32_t state, int added) const {
  Amount change = 0;
  for (int t : tensorsOf(added)) {
    const std::uint64_t* mask = tensorMasks_.data() + at(t) * wordsPerSet_;
    bool wasOutside = true, isInside = true;
    for (std::size_t w = 0; w < wordsPerSet_; ++w) {
      std::uint64_t inside = words(state)[w], withAdded = inside;
      if (w == at(added) / 64) withAdded |= std::uint64_t{1} << (added % 64);
      wasOutside = wasOutside && !(inside & mask[w]);
      isInside = isInside && !(mask[w] & ~withAdded);
    }
    if (wasOutside) change += instance_->tensors[at(t)].cost;
    if (isInside) change -= instance_->tensors[at(t)].cost;
  }
  return change;
}

bool States::enumerate(const Limits& limits) {
  std::vector<std::uint64_t> set(wordsPerSet_, 0);
  find(set.data());
  time_ = {0};
  cut_ = {0};
  // What may be added to each state; made when the state is found, dropped when its steps are known.
  std::vector<std::vector<int>> addable(1);
  for (std::size_t c = 0; c < before_.size(); ++c)
    if (before_[c].empty()) addable[0].push_back(static_cast<int>(c));

  for (std::uint32_t state = 0; state < cut_.size(); ++state) {
    std::vector<int> open = std::move(addable[state]);
    firstStep_.push_back(steps_.size());
    if (steps_.size() + open.size() > limits.steps) return false;
    if (state % 1024 == 1023 && Clock::now() > limits.deadline) return false;
    for (int c : open) {
      std::copy_n(words(state), wordsPerSet_, set.data());
      set[at(c) / 64] |= std::uint64_t{1} << (c % 64);
      std::uint32_t to = find(set.data());
      Amount change = cutChange(state, c), time = instance_->classes[at(c)].time;
      steps_.push_back({to, c, change <= time});
      if (to < cut_.size()) continue;
      if (cut_.size() == limits.states) return false;
      time_.push_back(time_[state] + time);
      cut_.push_back(cut_[state] + change);
      std::vector<int> next;
      std::copy_if(open.begin(), open.end(), std::back_inserter(next), [c](int other) { return other != c; });
      for (int later : after_[at(c)])
        if (std::all_of(before_[at(later)].begin(), before_[at(later)].end(),
                        [&](int b) { return set[at(b) / 64] >> (b % 64) & 1; }))
          next.push_back(later);
      std::sort(next.begin(), next.end());
      addable.push_back(std::move(next));
    }
  }
  firstStep_.push_back(steps_.size());
  return true;
}
