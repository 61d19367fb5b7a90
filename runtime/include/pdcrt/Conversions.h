// Conversions of many arrays to 16 bits at once, for GPUs: a stage program converts the parameters that its products
// read, most of which are small.
#pragma once

#include "pdcrt/LowPrecision.h"
#include "pdcrt/Stream.h"
#include "pdcrt/View.h"

#include <cstdint>
#include <initializer_list>
#include <span>

namespace pdcrt {

/// `to` becomes `from`, rounded to the nearest; both have `count` elements, and share no memory.
template <class T>
struct Conversion {
  View<const float> from;
  View<T> to;
  std::int64_t count;
};

/// In as few launches as hold them. T is bfloat16 or float16.
template <class T>
void convertAll(Stream& q, std::span<const Conversion<T>> conversions);
template <class T>
void convertAll(Stream& q, std::initializer_list<Conversion<T>> conversions) {
  convertAll<T>(q, std::span<const Conversion<T>>(conversions));
}

} // namespace pdcrt
