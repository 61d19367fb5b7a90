// An all-to-all of the members of a team (Team.h), for elements of any type.
//
// The kernel is a pair: start(), and finish() when the result is needed; what is computed in between hides the time.
// `arriving` is memory of arriving() elements that both use, and nobody else in between.
#pragma once

#include "pdcrt/Setup.h"
#include "pdcrt/Shape.h"
#include "pdcrt/Stream.h"
#include "pdcrt/View.h"
#include "pdcrt/kernels/TeamParts.h"

#include <cstdint>
#include <type_traits>

namespace pdcrt {

/// y = the own part along another axis, of the value whose part x is.
class TeamExchange {
public:
  struct Options {
    Shape operand; ///< x
    int members = 2;
    TeamDivision from, to; ///< along two axes
    Element element = Element::f32;
  };

  TeamExchange(Setup& setup, const Options& options);
  /// With room for what x has for each member.
  static std::int64_t arriving(const Options& options);

  template <class T>
  void start(Stream& q, std::type_identity_t<View<const T>> x, View<T> arriving) const {
    begin(q, x.data, arriving.data);
  }
  /// y overlaps neither x nor `arriving`.
  template <class T>
  void finish(Stream& q, std::type_identity_t<View<const T>>, std::type_identity_t<View<T>> arriving, View<T> y) const {
    end(q, arriving.data, y.data);
  }

private:
  void begin(Stream& q, const void* x, void* arriving) const;
  void end(Stream& q, const void* arriving, void* y) const;

  Options options_;
  TeamParts cut_, joined_; ///< x in what it has for each member; y in what it gets of each
  int collective_;
};

} // namespace pdcrt
