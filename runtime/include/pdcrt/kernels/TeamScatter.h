// A reduce-scatter of the members of a team (Team.h).
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

/// y = the own part of the sum of the members' x.
class TeamScatter {
public:
  struct Options {
    Shape operand; ///< x
    int members = 2;
    TeamDivision to;
    Element element = Element::f32;
  };

  TeamScatter(Setup& setup, const Options& options);
  /// With room for the parts of x in order, where they are not.
  static std::int64_t arriving(const Options& options);

  template <class T>
  void start(Stream& q, std::type_identity_t<View<const T>> x, View<T> arriving) const {
    begin(q, x.data, arriving.data);
  }
  template <class T>
  void finish(Stream& q, std::type_identity_t<View<const T>>, std::type_identity_t<View<T>> arriving, View<T> y) const {
    end(q, arriving.data, y.data);
  }

private:
  void begin(Stream& q, const void* x, void* arriving) const;
  void end(Stream& q, const void* arriving, void* y) const;

  Options options_;
  TeamParts parts_;
  int collective_;
};

} // namespace pdcrt
