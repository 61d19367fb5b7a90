// Dimensions of a value, and numbers for its axes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

namespace pdcrt {

inline constexpr int maxRank = 8;

/// Dimensions of a value, slowest first. A scalar has none.
struct Shape {
  int rank = 0;
  std::int64_t dims[maxRank] = {};

  constexpr Shape() = default;
  constexpr Shape(std::initializer_list<std::int64_t> list) {
    for (std::int64_t dim : list)
      if (rank < maxRank) dims[rank++] = dim;
  }
  constexpr std::int64_t elements() const {
    std::int64_t product = 1;
    for (int i = 0; i < rank; ++i) product *= dims[i];
    return product;
  }
  friend constexpr bool operator==(const Shape&, const Shape&) = default;
};

/// Some axes, or a number for each; what is beyond maxRank is dropped. In place, as dimensions are: a generated program
/// constructs hundreds, and a list that allocates costs the compiler a cleanup at every place where that may fail.
class Axes {
public:
  constexpr Axes() = default;
  constexpr Axes(std::initializer_list<std::int64_t> list) {
    for (std::int64_t value : list)
      if (count_ < maxRank) values_[count_++] = value;
  }
  constexpr std::size_t size() const { return static_cast<std::size_t>(count_); }
  constexpr bool empty() const { return count_ == 0; }
  constexpr std::int64_t operator[](std::size_t i) const { return values_[i]; }
  constexpr void push_back(std::int64_t value) {
    if (count_ < maxRank) values_[count_++] = value;
  }
  constexpr const std::int64_t* begin() const { return values_; }
  constexpr const std::int64_t* end() const { return values_ + count_; }
  friend constexpr bool operator==(const Axes&, const Axes&) = default;

private:
  int count_ = 0;
  std::int64_t values_[maxRank] = {};
};

} // namespace pdcrt
