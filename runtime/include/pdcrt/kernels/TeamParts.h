// How a value is divided over a team (Team.h), and copies between parts and the whole.
//
// A divided value: its axis is `blocks` blocks, each of which is cut into as many equal parts as there are members;
// member m has part m of every block. An axis of `padded` elements that has no equal parts is one block; each member
// has ⌈padded / members⌉ of it, zeros beyond its end.
#pragma once

#include "pdcrt/Setup.h"
#include "pdcrt/Shape.h"
#include "pdcrt/Stream.h"
#include "pdcrt/View.h"
#include "pdcrt/kernels/StridedCopy.h"

#include <cstddef>
#include <cstdint>

namespace pdcrt {

/// How a value is divided over a team.
struct TeamDivision {
  int axis = 0;
  std::int64_t blocks = 1;
  std::int64_t padded = 0; ///< size of an axis without equal parts; 0: they are equal
  friend bool operator==(const TeamDivision&, const TeamDivision&) = default;
};

/// Moves parts into and out of a whole value: both lie row-major in memory.
class TeamParts {
public:
  TeamParts() = default;
  /// `part` is one member's shape. Throws std::runtime_error where the axis cannot be divided so; so do ofWhole() and
  /// the kernels.
  TeamParts(const Shape& part, const TeamDivision& division, int members);
  static TeamParts ofWhole(const Shape& whole, const TeamDivision& division, int members);

  const Shape& part() const { return part_; }
  const Shape& whole() const { return whole_; }
  /// Whether the parts lie one behind the other in the whole.
  bool inOrder() const { return rows_ == 1 && last_ == share_; }

  /// Member `member`'s part of `whole`, with its padding.
  void take(Stream& q, const std::byte* whole, int member, std::byte* part, std::size_t elementBytes) const;
  /// The part of `member` to its place.
  void place(Stream& q, const std::byte* part, int member, std::byte* whole, std::size_t elementBytes) const;

private:
  std::int64_t shareOf(int member) const { return member == members_ - 1 ? last_ : share_; }

  Shape part_, whole_;
  int members_ = 1;
  std::int64_t rows_ = 1;             ///< before the axis, and its blocks
  std::int64_t share_ = 0, last_ = 0; ///< elements of a row that are a member's; of the last one
  StridedCopy copies_[2];             ///< of a whole row's share to that of a part; of the last member
};

} // namespace pdcrt
