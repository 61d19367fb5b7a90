// The random part of Dropout, for kernels that have it inside.
#pragma once

#include "device/cuda/Cuda.h"
#include "pdcrt/Random.h"
#include "pdcrt/Stage.h"

#include <cmath>
#include <cstdint>

namespace pdcrt::cuda {

/// The mask of `count` elements of operation `op`.
struct Mask {
  std::int64_t count;
  std::uint64_t threshold;
  std::uint32_t op;
  OwnElements own;

  Mask(std::int64_t elements, std::uint32_t number, double ratio, const OwnElements& elementsOfMember)
      : count(elements), threshold(static_cast<std::uint64_t>(std::llround(ratio * 4294967296.0))), op(number),
        own(elementsOfMember) {}
};

/// How many threads draw at once: one draws a Philox block, which is for four elements.
inline std::int64_t drawersOf(const Mask& mask) {
  return (mask.count + 3) / 4;
}

/// Calls f(element, whether it stays) for each element. `recorded`: where the number of the minibatch is, in a
/// recording that is launched for several; null: in `draw`. `ofMember`: whether these are a part of all elements.
template <bool ofMember, class F>
__device__ void forEachDrawn(const Mask& mask, const Draw& draw, const std::uint64_t* recorded, F f) {
  const std::uint64_t minibatch = recorded ? *recorded : draw.minibatch;
  for (std::int64_t block = thread(); block * 4 < mask.count; block += threads()) {
    const std::int64_t drawn = ofMember ? mask.own.at(block * 4) / 4 : block;
    const PhiloxBlock words = philox(philoxCounter(static_cast<std::uint32_t>(drawn), mask.op, minibatch), draw.seed);
    for (std::int64_t i = 0; i < 4 && block * 4 + i < mask.count; ++i) {
      const std::int64_t at = block * 4 + i;
      std::uint32_t word = words[static_cast<std::size_t>(i)];
      if (ofMember && !mask.own.keepsBlocks()) word = philoxWord(mask.own.at(at), mask.op, minibatch, draw.seed);
      f(at, word >= mask.threshold);
    }
  }
}

} // namespace pdcrt::cuda
