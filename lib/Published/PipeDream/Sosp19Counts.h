// Sets of component counts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace pdc::sosp19 {

/// The counts 0 … most that are possible, as bits.
class Counts {
public:
  Counts() = default;
  explicit Counts(std::int64_t most) : words_(static_cast<std::size_t>(most) / 64 + 1, 0) {}

  bool holds(std::int64_t m) const { return words_[static_cast<std::size_t>(m) / 64] >> (m % 64) & 1; }
  void insert(std::int64_t m) { words_[static_cast<std::size_t>(m) / 64] |= std::uint64_t{1} << (m % 64); }
  bool empty() const {
    return std::all_of(words_.begin(), words_.end(), [](std::uint64_t word) { return word == 0; });
  }
  std::size_t words() const { return words_.size(); }

  /// Adds c + m for each c of `other`; what is too large is dropped. `other` may be this set only if m > 0.
  void addShifted(const Counts& other, std::int64_t m) {
    std::size_t words = static_cast<std::size_t>(m) / 64, bits = static_cast<std::size_t>(m) % 64;
    for (std::size_t i = words_.size(); i-- > words;) {
      words_[i] |= other.words_[i - words] << bits;
      if (bits > 0 && i > words) words_[i] |= other.words_[i - words - 1] >> (64 - bits);
    }
  }

  /// Adds c + m for each c of `other` and each m from first to last, by doubling.
  void addInterval(const Counts& other, std::int64_t first, std::int64_t last) {
    if (first > last) return;
    if (first == last) return addShifted(other, first);
    Counts spread = other;
    std::int64_t width = 1;
    for (; 2 * width <= last - first + 1; width *= 2) spread.addShifted(Counts(spread), width);
    addShifted(spread, first);
    addShifted(spread, last - width + 1);
  }

private:
  std::vector<std::uint64_t> words_;
};

} // namespace pdc::sosp19
