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
// Loops over registers must be unrolled from the beginning, or the registers are an array in memory.
#define PDCRT_EACH(variable, count) _Pragma("GCC unroll 16") for (int variable = 0; variable < (count); ++variable)

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

/// The largest of x[0] to x[count - 1]; what it is if one of them is NaN is unspecified. With vectors of the
/// compiler's, which does not find any in lanes where the larger of two is chosen.
PDCRT_INLINE float maxOf(std::int64_t count, const float* x) {
  using Floats = float __attribute__((vector_size(32), aligned(4), may_alias));
  constexpr int lanes = sizeof(Floats) / sizeof(float), vectors = 4;
  const auto larger = [](float a, float b) { return a > b ? a : b; };
  float max = -std::numeric_limits<float>::infinity();
  std::int64_t i = 0;
  if (count >= vectors * lanes) {
    Floats largest[vectors];
    PDCRT_EACH(k, vectors) largest[k] = *reinterpret_cast<const Floats*>(x + k * lanes);
    for (i = vectors * lanes; i + vectors * lanes <= count; i += vectors * lanes) {
      PDCRT_EACH(k, vectors) {
        const Floats next = *reinterpret_cast<const Floats*>(x + i + k * lanes);
        largest[k] = largest[k] > next ? largest[k] : next;
      }
    }
    PDCRT_EACH(k, vectors)
    PDCRT_EACH(lane, lanes) max = larger(max, largest[k][lane]);
  }
  for (; i < count; ++i) max = larger(max, x[i]);
  return max;
}

} // namespace pdcrt
