// See Int8Tiles.h. vpdpbusd multiplies bytes without a sign by bytes with one, which is why the weights have 128 added
// there. Its sums may wrap around on the way, and are right modulo 2^32. (vpmaddubsw would saturate sums of 16 bits.)
#include "Int8Tiles.h"

#include "device/cpu/Sums.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#if defined(__x86_64__)
#include "Avx2.h"
#define PDCRT_AVX512_INT8 __attribute__((target("avx512f,avx512bw,avx2,fma")))
#define PDCRT_VNNI __attribute__((target("avx512f,avx512bw,avx512vnni,avx2,fma")))
#endif

namespace pdcrt::int8 {
namespace {

/// The integers of some columns of which `width` are there, by groups; 0 behind the last column and the last input.
void packPlainly(const std::int8_t* w, std::int64_t inputs, std::int64_t first, std::int64_t groups, std::int64_t width,
                 Instructions instructions, std::byte* to) {
  const std::int64_t columns = columnsOf(instructions), each = perGroup(instructions);
  for (std::int64_t column = 0; column < columns; ++column)
    for (std::int64_t g = first; g < groups; ++g)
      for (std::int64_t i = 0; i < each; ++i) {
        const std::int64_t input = g * each + i;
        const std::int8_t value = column < width && input < inputs ? w[column * inputs + input] : std::int8_t{0};
        std::byte* const at = to + (g * columns + column) * groupBytes + i * (groupBytes / each);
        if (each == 4) {
          *at = static_cast<std::byte>(value ^ 0x80);
        } else {
          const std::int16_t wide = value;
          std::memcpy(at, &wide, sizeof wide);
        }
      }
}

#if defined(__x86_64__)
/// Groups [0, end) of eight columns, where `end` inputs are in whole blocks of 32: of eight groups, or of 16. Packing
/// is a transposition of four bytes each.
template <bool wide>
PDCRT_AVX2 std::int64_t packEight(const std::int8_t* w, std::int64_t inputs, std::int64_t columns, std::byte* to) {
  // Of four bytes, the first two or the last two become the upper halves of 16 bits.
  const __m256i low = _mm256_setr_epi8(-1, 0, -1, 1, -1, 4, -1, 5, -1, 8, -1, 9, -1, 12, -1, 13, -1, 0, -1, 1, -1, 4,
                                       -1, 5, -1, 8, -1, 9, -1, 12, -1, 13);
  const __m256i high = _mm256_setr_epi8(-1, 2, -1, 3, -1, 6, -1, 7, -1, 10, -1, 11, -1, 14, -1, 15, -1, 2, -1, 3, -1, 6,
                                        -1, 7, -1, 10, -1, 11, -1, 14, -1, 15);
  const __m256i sign = _mm256_set1_epi8(-128);
  std::int64_t input = 0;
  const std::int64_t stride = columns * groupBytes;
  for (; input + 32 <= inputs; input += 32) {
    __m256 rows[8];
    PDCRT_EACH(r, 8) rows[r] = _mm256_loadu_ps(reinterpret_cast<const float*>(w + r * inputs + input));
    avx2::exchange(rows);
    PDCRT_EACH(r, 8) {
      const __m256i four = _mm256_castps_si256(rows[r]);
      if constexpr (wide) {
        std::byte* const at = to + (input / 2 + 2 * r) * stride;
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), _mm256_srai_epi16(_mm256_shuffle_epi8(four, low), 8));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(at + stride),
                            _mm256_srai_epi16(_mm256_shuffle_epi8(four, high), 8));
      } else {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + (input / 4 + r) * stride), _mm256_xor_si256(four, sign));
      }
    }
  }
  return input;
}
#endif

template <int height>
void runPlainly(const IntegerTile& t) {
  constexpr std::int64_t columns = 16;
  std::fill_n(t.sums, height * columns, 0);
  for (std::int64_t g = 0; g < t.groups; ++g)
    for (int r = 0; r < height; ++r)
      for (std::int64_t column = 0; column < columns; ++column) {
        std::int16_t left[2], right[2];
        std::memcpy(left, t.x + r * t.stride + g * groupBytes, sizeof left);
        std::memcpy(right, t.w + (g * columns + column) * groupBytes, sizeof right);
        t.sums[r * columns + column] += left[0] * right[0] + left[1] * right[1];
      }
}

#if defined(__x86_64__)
PDCRT_INLINE std::int32_t groupAt(const std::byte* at) {
  std::int32_t group;
  std::memcpy(&group, at, sizeof group);
  return group;
}

template <int height>
PDCRT_AVX2 void runAvx2(const IntegerTile& tile) {
  const IntegerTile t = tile;
  __m256i sums[height][2];
  PDCRT_EACH(r, height)
  PDCRT_EACH(v, 2) sums[r][v] = _mm256_setzero_si256();
  const std::byte *x = t.x, *w = t.w;
  for (std::int64_t g = 0; g < t.groups; ++g, x += groupBytes, w += 64) {
    const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w)),
                  high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w + 32));
    PDCRT_EACH(r, height) {
      const __m256i left = _mm256_set1_epi32(groupAt(x + r * t.stride));
      sums[r][0] = _mm256_add_epi32(sums[r][0], _mm256_madd_epi16(left, low));
      sums[r][1] = _mm256_add_epi32(sums[r][1], _mm256_madd_epi16(left, high));
    }
  }
  PDCRT_EACH(r, height)
  PDCRT_EACH(v, 2) _mm256_storeu_si256(reinterpret_cast<__m256i*>(t.sums + r * 16 + v * 8), sums[r][v]);
}

template <int height>
PDCRT_AVX512_INT8 void runAvx512(const IntegerTile& tile) {
  const IntegerTile t = tile;
  __m512i sums[height][2];
  PDCRT_EACH(r, height)
  PDCRT_EACH(v, 2) sums[r][v] = _mm512_setzero_si512();
  const std::byte *x = t.x, *w = t.w;
  for (std::int64_t g = 0; g < t.groups; ++g, x += groupBytes, w += 128) {
    const __m512i low = _mm512_loadu_si512(w), high = _mm512_loadu_si512(w + 64);
    PDCRT_EACH(r, height) {
      const __m512i left = _mm512_set1_epi32(groupAt(x + r * t.stride));
      sums[r][0] = _mm512_add_epi32(sums[r][0], _mm512_madd_epi16(left, low));
      sums[r][1] = _mm512_add_epi32(sums[r][1], _mm512_madd_epi16(left, high));
    }
  }
  PDCRT_EACH(r, height)
  PDCRT_EACH(v, 2) _mm512_storeu_si512(t.sums + r * 32 + v * 16, sums[r][v]);
}

template <int height>
PDCRT_VNNI void runVnni(const IntegerTile& tile) {
  const IntegerTile t = tile;
  __m512i sums[height][2];
  PDCRT_EACH(r, height)
  PDCRT_EACH(v, 2) sums[r][v] = _mm512_setzero_si512();
  const std::byte *x = t.x, *w = t.w;
  for (std::int64_t g = 0; g < t.groups; ++g, x += groupBytes, w += 128) {
    const __m512i low = _mm512_loadu_si512(w), high = _mm512_loadu_si512(w + 64);
    PDCRT_EACH(r, height) {
      const __m512i left = _mm512_set1_epi32(groupAt(x + r * t.stride));
      sums[r][0] = _mm512_dpbusd_epi32(sums[r][0], low, left);
      sums[r][1] = _mm512_dpbusd_epi32(sums[r][1], high, left);
    }
  }
  PDCRT_EACH(r, height)
  PDCRT_EACH(v, 2) _mm512_storeu_si512(t.sums + r * 32 + v * 16, sums[r][v]);
}
#endif

template <int columns>
void addPlainly(float* y, const float* x, std::int64_t, const std::int32_t* outliers, std::int64_t count,
                const float* weights) {
  for (std::int64_t o = 0; o < count; ++o)
    for (int j = 0; j < columns; ++j) y[j] = __builtin_fmaf(x[outliers[o]], weights[o * columns + j], y[j]);
}

#if defined(__x86_64__)
template <int height>
PDCRT_AVX2 void addByAvx2(float* y, const float* x, std::int64_t xStride, const std::int32_t* outliers,
                          std::int64_t count, const float* weights) {
  __m256 sums[height][2];
  PDCRT_EACH(r, height)
  PDCRT_EACH(v, 2) sums[r][v] = _mm256_loadu_ps(y + r * 16 + v * 8);
  for (std::int64_t o = 0; o < count; ++o, weights += 16) {
    const __m256 low = _mm256_loadu_ps(weights), high = _mm256_loadu_ps(weights + 8);
    PDCRT_EACH(r, height) {
      const __m256 left = _mm256_broadcast_ss(x + r * xStride + outliers[o]);
      sums[r][0] = _mm256_fmadd_ps(left, low, sums[r][0]);
      sums[r][1] = _mm256_fmadd_ps(left, high, sums[r][1]);
    }
  }
  PDCRT_EACH(r, height)
  PDCRT_EACH(v, 2) _mm256_storeu_ps(y + r * 16 + v * 8, sums[r][v]);
}
template <int height>
PDCRT_AVX512_INT8 void addByAvx512(float* y, const float* x, std::int64_t xStride, const std::int32_t* outliers,
                                   std::int64_t count, const float* weights) {
  __m512 sums[height][2];
  PDCRT_EACH(r, height)
  PDCRT_EACH(v, 2) sums[r][v] = _mm512_loadu_ps(y + r * 32 + v * 16);
  for (std::int64_t o = 0; o < count; ++o, weights += 32) {
    const __m512 low = _mm512_loadu_ps(weights), high = _mm512_loadu_ps(weights + 16);
    PDCRT_EACH(r, height) {
      const __m512 left = _mm512_set1_ps(x[r * xStride + outliers[o]]);
      sums[r][0] = _mm512_fmadd_ps(left, low, sums[r][0]);
      sums[r][1] = _mm512_fmadd_ps(left, high, sums[r][1]);
    }
  }
  PDCRT_EACH(r, height)
  PDCRT_EACH(v, 2) _mm512_storeu_ps(y + r * 32 + v * 16, sums[r][v]);
}
#endif

} // namespace

void packWeights(const std::int8_t* w, std::int64_t inputs, std::int64_t groups, std::int64_t width,
                 Instructions instructions, std::byte* to) {
  std::int64_t done = 0;
#if defined(__x86_64__)
  const std::int64_t columns = columnsOf(instructions);
  if (instructions != Instructions::plain && width == columns)
    for (std::int64_t column = 0; column < columns; column += 8)
      done =
          (instructions == Instructions::vnni ? packEight<false> : packEight<true>)(w + column * inputs, inputs,
                                                                                    columns, to + column * groupBytes);
#endif
  packPlainly(w, inputs, done / perGroup(instructions), groups, width, instructions, to);
}

void runTile(Instructions instructions, std::int64_t height, const IntegerTile& t) {
  switch (instructions) {
#if defined(__x86_64__)
  case Instructions::vnni: return height <= 4 ? runVnni<4>(t) : height <= 8 ? runVnni<8>(t) : runVnni<12>(t);
  case Instructions::avx512: return height <= 4 ? runAvx512<4>(t) : height <= 8 ? runAvx512<8>(t) : runAvx512<12>(t);
  case Instructions::avx2: return height <= 2 ? runAvx2<2>(t) : height <= 4 ? runAvx2<4>(t) : runAvx2<6>(t);
#else
  case Instructions::vnni:
  case Instructions::avx512:
  case Instructions::avx2:
#endif
  case Instructions::plain: return height <= 2 ? runPlainly<2>(t) : height <= 4 ? runPlainly<4>(t) : runPlainly<6>(t);
  }
}

OutlierRows outlierRowsBy(Instructions instructions, bool isOne) {
#if defined(__x86_64__)
  if (instructions >= Instructions::avx512) return isOne ? addByAvx512<1> : addByAvx512<outlierRows>;
  if (instructions == Instructions::avx2) return isOne ? addByAvx2<1> : addByAvx2<outlierRows>;
#endif
  return isOne ? addPlainly<16> : nullptr;
}

} // namespace pdcrt::int8
