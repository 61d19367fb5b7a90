// Kernels that bring a value from one form into another together with the other members of a team (Team.h), for
// elements of any type. Each is a pair: start(), and finish() when the result is needed; what a kernel in between
// computes hides the time. `arrived` is memory that both use and nobody else in between.
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
#include <type_traits>

namespace pdcrt {

/// How a value is divided over a team.
struct TeamDivision {
  int axis = 0;
  std::int64_t blocks = 1;
  std::int64_t padded = 0; ///< size of an axis without equal parts; 0: they are equal
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

/// y = the sum (or the mean, the largest, the smallest) of the members' x [+ added]. `added` has the shape of x, or is
/// along an axis of it. Elements of 16 bits are added as float, rounded, and `added` to them. y may be x or `added`;
/// `arrived` may be neither.
class TeamReduce {
public:
  enum class Combine : std::uint8_t { sum, mean, max, min };
  struct Options {
    int members = 2;
    Combine combine = Combine::sum;
    int addedAxis = -1; ///< -1: `added` has the shape of x
    Element element = Element::f32;
  };

  TeamReduce(Setup& setup, const Shape& x, const Options& options);
  static Shape arrived(const Shape& x, const Options& options);

  template <class T>
  void start(Stream& q, std::type_identity_t<View<const T>> x, View<T> arrived) const {
    begin(q, x.data, arrived.data);
  }
  /// `added` may be null.
  template <class T>
  void finish(Stream& q, std::type_identity_t<View<const T>>, std::type_identity_t<View<T>> arrived,
              std::type_identity_t<View<const T>> added, View<T> y) const {
    end(q, arrived.data, added.data, y.data);
  }

private:
  void begin(Stream& q, const void* x, void* arrived) const;
  void end(Stream& q, const void* arrived, const void* added, void* y) const;

  Options options_;
  std::int64_t elements_, addedInner_ = 1, addedSize_;
  int collective_;
};

/// y = the own part of the sum of the members' x.
class TeamScatter {
public:
  struct Options {
    int members = 2;
    TeamDivision to;
    Element element = Element::f32;
  };

  TeamScatter(Setup& setup, const Shape& x, const Options& options);
  /// With room for the parts of x in order, where they are not.
  static Shape arrived(const Shape& x, const Options& options);

  template <class T>
  void start(Stream& q, std::type_identity_t<View<const T>> x, View<T> arrived) const {
    begin(q, x.data, arrived.data);
  }
  template <class T>
  void finish(Stream& q, std::type_identity_t<View<const T>>, std::type_identity_t<View<T>> arrived, View<T> y) const {
    end(q, arrived.data, y.data);
  }

private:
  void begin(Stream& q, const void* x, void* arrived) const;
  void end(Stream& q, const void* arrived, void* y) const;

  Options options_;
  TeamParts parts_;
  int collective_;
};

/// y = the members' parts x together.
class TeamGather {
public:
  struct Options {
    int members = 2;
    TeamDivision from;
    Element element = Element::f32;
  };

  TeamGather(Setup& setup, const Shape& x, const Options& options);
  static Shape arrived(const Shape& x, const Options& options);

  template <class T>
  void start(Stream& q, std::type_identity_t<View<const T>> x, View<T> arrived) const {
    begin(q, x.data, arrived.data);
  }
  /// y overlaps neither x nor `arrived`.
  template <class T>
  void finish(Stream& q, std::type_identity_t<View<const T>> x, std::type_identity_t<View<T>> arrived,
              View<T> y) const {
    end(q, x.data, arrived.data, y.data);
  }

private:
  void begin(Stream& q, const void* x, void* arrived) const;
  void end(Stream& q, const void* x, const void* arrived, void* y) const;

  Options options_;
  TeamParts parts_;
  int collective_;
};

/// y = the own part along another axis, of the value whose part x is.
class TeamExchange {
public:
  struct Options {
    int members = 2;
    TeamDivision from, to; ///< along two axes
    Element element = Element::f32;
  };

  TeamExchange(Setup& setup, const Shape& x, const Options& options);
  /// With room for what x has for each member.
  static Shape arrived(const Shape& x, const Options& options);

  template <class T>
  void start(Stream& q, std::type_identity_t<View<const T>> x, View<T> arrived) const {
    begin(q, x.data, arrived.data);
  }
  /// y overlaps neither x nor `arrived`.
  template <class T>
  void finish(Stream& q, std::type_identity_t<View<const T>>, std::type_identity_t<View<T>> arrived, View<T> y) const {
    end(q, arrived.data, y.data);
  }

private:
  void begin(Stream& q, const void* x, void* arrived) const;
  void end(Stream& q, const void* arrived, void* y) const;

  Options options_;
  TeamParts cut_, joined_; ///< x in what it has for each member; y in what it gets of each
  int collective_;
};

/// y = the own part of x, which all members have. No member hears of another.
class OwnPart {
public:
  struct Options {
    int members = 2;
    TeamDivision to;
  };

  OwnPart(Setup& setup, const Shape& x, const Options& options);

  template <class T>
  void forward(Stream& q, std::type_identity_t<View<const T>> x, View<T> y) const {
    parts_.take(q, reinterpret_cast<const std::byte*>(x.data), q.member(), reinterpret_cast<std::byte*>(y.data),
                sizeof(T));
  }

private:
  TeamParts parts_;
};

} // namespace pdcrt
