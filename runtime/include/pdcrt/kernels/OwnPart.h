// A member's part of what all members of a team have (Team.h), for elements of any type.
#pragma once

#include "pdcrt/Setup.h"
#include "pdcrt/Shape.h"
#include "pdcrt/Stream.h"
#include "pdcrt/View.h"
#include "pdcrt/kernels/TeamParts.h"

#include <cstddef>
#include <type_traits>

namespace pdcrt {

/// y = the own part of x, which all members have. No member hears of another.
class OwnPart {
public:
  struct Options {
    Shape operand; ///< x
    int members = 2;
    TeamDivision to;
  };

  OwnPart(Setup& setup, const Options& options);

  template <class T>
  void forward(Stream& q, std::type_identity_t<View<const T>> x, View<T> y) const {
    parts_.take(q, reinterpret_cast<const std::byte*>(x.data), q.member(), reinterpret_cast<std::byte*>(y.data),
                sizeof(T));
  }

private:
  TeamParts parts_;
};

} // namespace pdcrt
