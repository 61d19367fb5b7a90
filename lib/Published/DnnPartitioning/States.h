// The down-sets of an instance, in tables that the search runs over: what the first devices of a pipeline hold together
// is always one of them.
#pragma once

#include "DnnPartitioning/Instance.h"

#include <chrono>
#include <optional>
#include <span>

namespace pdc::placement {

using Clock = std::chrono::steady_clock;

/// What may be spent on a search.
struct Limits {
  std::size_t states = 1'000'000; ///< down-sets
  std::size_t steps = 16'000'000; ///< from one to another by a class more
  Clock::time_point deadline = Clock::time_point::max();
};

class States {
public:
  /// A class that may be added to a state, and the state that it leads to.
  struct Step {
    std::uint32_t to = 0;
    int added = 0;
    bool neverLess = false; ///< cut(to) - cut(from) <= time(added): see Search.h
  };

  /// All of them by size, the empty one first and the full one last. Nothing if they exceed the limits.
  static std::optional<States> all(const Instance& instance, const Limits& limits);

  std::size_t size() const { return cut_.size(); }
  std::uint32_t full() const { return static_cast<std::uint32_t>(size() - 1); }
  bool contains(std::uint32_t state, int c) const {
    return words(state)[static_cast<std::size_t>(c) / 64] >> (c % 64) & 1;
  }
  /// Ascending by the class added.
  std::span<const Step> steps(std::uint32_t state) const {
    return {steps_.data() + firstStep_[state], steps_.data() + firstStep_[state + 1]};
  }
  Amount time(std::uint32_t state) const { return time_[state]; } ///< Σ time of the classes inside
  Amount cut(std::uint32_t state) const { return cut_[state]; }
  /// Whether the tensor has members in the state.
  bool touches(std::uint32_t state, std::size_t tensor) const {
    const std::uint64_t* mask = tensorMasks_.data() + tensor * wordsPerSet_;
    for (std::size_t w = 0; w < wordsPerSet_; ++w)
      if (words(state)[w] & mask[w]) return true;
    return false;
  }
  /// The tensors that each class makes or uses.
  const std::vector<int>& tensorsOf(int c) const { return tensorsOf_[static_cast<std::size_t>(c)]; }

private:
  explicit States(const Instance& instance);
  bool enumerate(const Limits& limits);
  std::uint32_t find(const std::uint64_t* set);
  void rehash();
  Amount cutChange(std::uint32_t state, int added) const;
  const std::uint64_t* words(std::uint32_t state) const { return words_.data() + state * wordsPerSet_; }

  const Instance* instance_;
  std::size_t wordsPerSet_;
  std::vector<std::vector<int>> before_, after_, tensorsOf_;
  std::vector<std::uint64_t> tensorMasks_;
  std::vector<std::uint64_t> words_;
  std::vector<Amount> time_, cut_;
  std::vector<std::size_t> firstStep_;
  std::vector<Step> steps_;
  std::vector<std::uint32_t> buckets_; ///< open addressing; state + 1, or 0
};

} // namespace pdc::placement
