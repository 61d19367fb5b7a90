// What both targets' Dropout asks of its options.
#pragma once

#include "pdcrt/kernels/Dropout.h"

#include <stdexcept>
#include <string>

namespace pdcrt {

/// Whether `elements` elements can be such a part.
inline bool isPart(std::int64_t elements, std::int64_t run, std::int64_t members) {
  return run == 0 || (run > 0 && members > 0 && elements % run == 0);
}

/// Whether blocks of random numbers can be counted: at most 2^34 elements, those of others included.
inline bool canCount(std::int64_t elements, std::int64_t run, std::int64_t members) {
  return elements / 4 <= std::int64_t{0xFFFFFFFF} / (run == 0 ? 1 : members);
}

/// Throws std::runtime_error.
inline void checkOptions(const Dropout::Options& o) {
  if (!(o.ratio >= 0 && o.ratio < 1))
    throw std::runtime_error("dropout: ratio " + std::to_string(o.ratio) + " is not in [0, 1)");
  if (!isPart(o.elements, o.run, o.members))
    throw std::runtime_error("dropout: " + std::to_string(o.elements) + " elements are no runs of " +
                             std::to_string(o.run) + " of one of " + std::to_string(o.members) + " members");
  if (!canCount(o.elements, o.run, o.members))
    throw std::runtime_error("dropout of " + std::to_string(o.elements) + " elements" +
                             (o.run > 0 ? " for each of " + std::to_string(o.members) + " members" : "") +
                             ": at most 2^34");
}

} // namespace pdcrt
