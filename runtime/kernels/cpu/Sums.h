// Reductions whose order is written down, so that they can be vector code and still give the same bits everywhere.
#pragma once

#include <cstdint>
#include <limits>

// A function of which the compiler makes a version per instruction set, chosen when the program starts. Without
// contraction and reassociation (cmake/PdcFlags.cmake) all versions give the same bits. Not under sanitizers, which
// start after the choice is made.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__OPTIMIZE__) || !defined(__x86_64__)
#define PDCRT_VECTORIZED
#else
#define PDCRT_VECTORIZED __attribute__((target_clones("avx512f", "avx2", "default")))
#endif

// For templates that only become vector code inside of such a function.
#define PDCRT_INLINE inline __attribute__((always_inline))

namespace pdcrt {

/// Folds term(0), term(1), … with `combine` in 16 lanes: term i goes to lane i mod 16, and the lanes are folded in
/// halves at the end. `start` changes nothing that it is combined with.
template <class Value, class Combine, class Term>
PDCRT_INLINE Value foldInLanes(std::int64_t count, Value start, Combine combine, Term term) {
  constexpr int width = 16;
  Value lanes[width];
  for (Value& lane : lanes) lane = start;
  std::int64_t i = 0;
  for (; i + width <= count; i += width)
    for (int lane = 0; lane < width; ++lane) lanes[lane] = combine(lanes[lane], static_cast<Value>(term(i + lane)));
  for (int lane = 0; i + lane < count; ++lane) lanes[lane] = combine(lanes[lane], static_cast<Value>(term(i + lane)));
  for (int half = width / 2; half > 0; half /= 2)
    for (int lane = 0; lane < half; ++lane) lanes[lane] = combine(lanes[lane], lanes[lane + half]);
  return lanes[0];
}

/// The sum of term(0), term(1), … in double precision.
template <class Term>
PDCRT_INLINE double sumOf(std::int64_t count, Term term) {
  return foldInLanes(
      count, 0.0, [](double a, double b) { return a + b; }, term);
}

/// The largest of term(0), term(1), …; what it is if one of them is NaN is unspecified.
template <class Term>
PDCRT_INLINE float maxOf(std::int64_t count, Term term) {
  return foldInLanes(
      count, -std::numeric_limits<float>::infinity(), [](float a, float b) { return a > b ? a : b; }, term);
}

} // namespace pdcrt
