// Dropout (Srivastava et al. 2014), inverted: what is kept is scaled up, so that evaluation needs nothing.
#pragma once

#include "pdcrt/Setup.h"
#include "pdcrt/Stage.h"
#include "pdcrt/Stream.h"
#include "pdcrt/View.h"

#include <cstdint>

namespace pdcrt {

/// y = x · mask / (1 - ratio), mask 1 with probability 1 - ratio. Element i of a minibatch draws from the Philox block
/// that (seed, op, minibatch, i) names, so the same mask comes whatever rank computes it. y may be x, dx may be dy.
///
/// A member of a team may have a part of the elements (OwnElements in pdcrt/Random.h): each draws as in the whole.
class Dropout {
public:
  struct Options {
    std::int64_t elements = 0;
    std::uint32_t op = 0; ///< number of the operation in the whole model
    double ratio = 0.5;   ///< 0 <= ratio < 1
    /// Neighbours in the whole that are one member's; 0: these are all elements.
    std::int64_t run = 0;
    std::int64_t members = 1; ///< of the team
  };

  /// Throws std::runtime_error if the ratio is none, or the part.
  Dropout(Setup& setup, const Options& options);

  void forward(Stream& q, Draw draw, View<const float> x, View<float> y, View<std::uint8_t> mask) const;
  void inputGradient(Stream& q, View<const float> dy, View<const std::uint8_t> mask, View<float> dx) const;

private:
  Options options_;
};

} // namespace pdcrt
