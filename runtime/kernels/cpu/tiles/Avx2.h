// What the kernels for AVX2 share. For x86-64 only.
#pragma once

#include "device/cpu/Sums.h"

#include <cstdint>
#include <immintrin.h>

#define PDCRT_AVX2 __attribute__((target("avx2,fma")))

namespace pdcrt::avx2 {

/// Whether this processor has the instructions, and whether it has no better ones.
inline bool available() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
inline bool preferred() {
  return available() && !__builtin_cpu_supports("avx512f");
}

/// Rows of 8 x 8 floats become columns.
PDCRT_AVX2 PDCRT_INLINE void exchange(__m256 (&rows)[8]) {
  __m256 pairs[8], fours[8];
  PDCRT_EACH(r, 4) {
    pairs[2 * r] = _mm256_unpacklo_ps(rows[2 * r], rows[2 * r + 1]);
    pairs[2 * r + 1] = _mm256_unpackhi_ps(rows[2 * r], rows[2 * r + 1]);
  }
  PDCRT_EACH(half, 2)
  PDCRT_EACH(r, 2) {
    const __m256 first = pairs[4 * half + r], second = pairs[4 * half + r + 2];
    fours[4 * half + 2 * r] = _mm256_shuffle_ps(first, second, 0x44);
    fours[4 * half + 2 * r + 1] = _mm256_shuffle_ps(first, second, 0xEE);
  }
  PDCRT_EACH(r, 4) {
    rows[r] = _mm256_permute2f128_ps(fours[r], fours[r + 4], 0x20);
    rows[r + 4] = _mm256_permute2f128_ps(fours[r], fours[r + 4], 0x31);
  }
}

/// Copies 8 x 8 floats so that rows become columns; strides are from one row to the next.
PDCRT_AVX2 PDCRT_INLINE void exchange(const float* from, std::int64_t fromStride, float* to, std::int64_t toStride) {
  __m256 rows[8];
  PDCRT_EACH(r, 8) rows[r] = _mm256_loadu_ps(from + r * fromStride);
  exchange(rows);
  PDCRT_EACH(r, 8) _mm256_storeu_ps(to + r * toStride, rows[r]);
}

} // namespace pdcrt::avx2
