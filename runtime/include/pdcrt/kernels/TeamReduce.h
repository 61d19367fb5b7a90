// An all-reduce of the members of a team (Team.h).
//
// The kernel is a pair: start(), and finish() when the result is needed; what is computed in between hides the time.
// What makes x may hide some too: after follow() parts of x are sent while others are made.
// `arriving` is memory of arriving() elements that both use, and nobody else in between.
#pragma once

#include "pdcrt/Setup.h"
#include "pdcrt/Shape.h"
#include "pdcrt/Stream.h"
#include "pdcrt/View.h"

#include <cstdint>
#include <type_traits>

namespace pdcrt {

/// y = the sum (or the mean, the largest, the smallest) of the members' x [+ added]. `added` has the shape of x, or is
/// along an axis of it. Elements of 16 bits are added as float, rounded, and `added` to them. y may be x or `added`;
/// `arriving` may be neither.
class TeamReduce {
public:
  enum class Combine : std::uint8_t { sum, mean, max, min };
  struct Options {
    Shape operand; ///< x
    int members = 2;
    Combine combine = Combine::sum;
    int addedAxis = -1;     ///< -1: `added` has the shape of x
    std::int64_t lanes = 1; ///< neighbours along that axis that lie together, behind all other axes (lanes of channels)
    Element element = Element::f32;
  };

  TeamReduce(Setup& setup, const Options& options);
  static std::int64_t arriving(const Options& options);

  /// Before the kernel that makes x.
  template <class T>
  void follow(Stream& q, std::type_identity_t<View<const T>> x, View<T> arriving) const {
    beginWith(q, x.data, arriving.data);
  }
  template <class T>
  void start(Stream& q, std::type_identity_t<View<const T>> x, View<T> arriving) const {
    begin(q, x.data, arriving.data);
  }
  /// `added` may be null.
  template <class T>
  void finish(Stream& q, std::type_identity_t<View<const T>>, std::type_identity_t<View<T>> arriving,
              std::type_identity_t<View<const T>> added, View<T> y) const {
    end(q, arriving.data, added.data, y.data);
  }

  template <class T>
  void finish(Stream& q, std::type_identity_t<View<const T>> x, std::type_identity_t<View<T>> arriving,
              View<T> y) const {
    finish(q, x, arriving, {}, y);
  }

private:
  void beginWith(Stream& q, const void* x, void* arriving) const;
  void begin(Stream& q, const void* x, void* arriving) const;
  void end(Stream& q, const void* arriving, const void* added, void* y) const;

  Options options_;
  std::int64_t elements_, addedSize_, addedInner_ = 1, addedLanes_;
  int collective_;
};

} // namespace pdcrt
