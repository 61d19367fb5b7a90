// See Dropout.h.
#include "pdcrt/kernels/Dropout.h"

#include "common/DropoutOptions.h"
#include "cpu/support/DropoutMask.h"
#include "device/cpu/Parts.h"
#include "device/cpu/Sums.h"
#if defined(__x86_64__)
#include "cpu/tiles/Avx2.h"
#endif

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace pdcrt {
namespace {

/// Blocks of random numbers that are drawn at once: good vector code with AVX-512; for AVX2 there is philoxFour.
constexpr int width = 16;

#if defined(__x86_64__)
PDCRT_AVX2 PDCRT_INLINE __m256i everywhere(std::uint64_t word) {
  return _mm256_set1_epi64x(static_cast<long long>(word));
}

/// A word of each of four blocks, in the lower halves of numbers of 64 bits: what lies above is not read.
struct FourBlocks {
  __m256i words[4];
};

/// Blocks first … first + 3 of the stream, as `philox`.
PDCRT_AVX2 PDCRT_INLINE FourBlocks philoxFour(std::int64_t first, std::uint32_t op, Draw draw) {
  const __m256i multiplier0 = everywhere(philoxMultiplier0), multiplier1 = everywhere(philoxMultiplier1);
  __m256i a = _mm256_add_epi64(_mm256_set1_epi64x(first), _mm256_setr_epi64x(0, 1, 2, 3)), b = everywhere(op),
          c = everywhere(draw.minibatch), d = everywhere(draw.minibatch >> 32), key0 = everywhere(draw.seed),
          key1 = everywhere(draw.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const __m256i product0 = _mm256_mul_epu32(multiplier0, a), product1 = _mm256_mul_epu32(multiplier1, c);
    a = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(product1, 32), b), key0);
    c = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(product0, 32), d), key1);
    b = product1, d = product0;
    key0 = _mm256_add_epi32(key0, everywhere(philoxStep0));
    key1 = _mm256_add_epi32(key1, everywhere(philoxStep1));
  }
  return {{a, b, c, d}};
}

/// Of two words of each block, side by side, -1 where they are at least `least`, else 0.
PDCRT_AVX2 PDCRT_INLINE __m256i compared(__m256i first, __m256i second, __m256i least) {
  const __m256i both = _mm256_blend_epi32(first, _mm256_slli_epi64(second, 32), 0xAA);
  return _mm256_cmpeq_epi32(_mm256_max_epu32(both, least), both);
}

/// The same of all words, of 16 bits, in the order of the stream.
PDCRT_AVX2 PDCRT_INLINE __m256i compared(const FourBlocks& blocks, __m256i least) {
  const auto& [a, b, c, d] = blocks.words;
  const __m256i packed = _mm256_packs_epi32(compared(a, b, least), compared(c, d, least));
  // Two words of two blocks, then the other two words of both.
  return _mm256_shuffle_epi32(packed, _MM_SHUFFLE(3, 1, 2, 0));
}

/// The mask of `count` elements from `first` on, a multiple of 4, in steps of 32; returns how many it has drawn.
PDCRT_AVX2 std::int64_t drawManyBytes(std::int64_t first, std::int64_t count, std::uint32_t op, Draw draw,
                                      std::uint32_t least, std::uint8_t* mask) {
  const __m256i bound = _mm256_set1_epi32(static_cast<int>(least)), one = _mm256_set1_epi8(1);
  std::int64_t i = 0;
  for (; i + 32 <= count; i += 32) {
    const __m256i low = compared(philoxFour((first + i) / 4, op, draw), bound),
                  high = compared(philoxFour((first + i) / 4 + 4, op, draw), bound);
    const __m256i bytes = _mm256_permute4x64_epi64(_mm256_packs_epi16(low, high), _MM_SHUFFLE(3, 1, 2, 0));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(mask + i), _mm256_and_si256(bytes, one));
  }
  return i;
}
#endif

/// mask[i] = 1 where word first + i of the stream is at least `threshold`; `first` is a multiple of 4.
PDCRT_VECTORIZED void drawBytes(std::int64_t first, std::int64_t count, std::uint32_t op, Draw draw,
                                std::uint64_t threshold, std::uint8_t* mask) {
  static_assert(std::endian::native == std::endian::little);
  // Rounding may have made it 2^32.
  const auto least = static_cast<std::uint32_t>(std::min<std::uint64_t>(threshold, 0xFFFFFFFF));
  std::int64_t begin = 0;
  for (; begin + 4 * width <= count; begin += 4 * width) {
    std::uint32_t words[4][width];
    philoxLanes(philoxCounter(static_cast<std::uint32_t>((first + begin) / 4), op, draw.minibatch), draw.seed, words);
    std::uint32_t bytes[width]; // the four of a block, the first one lowest, as this processor stores them
    for (int lane = 0; lane < width; ++lane)
      bytes[lane] = static_cast<std::uint32_t>(words[0][lane] >= least) |
                    static_cast<std::uint32_t>(words[1][lane] >= least) << 8 |
                    static_cast<std::uint32_t>(words[2][lane] >= least) << 16 |
                    static_cast<std::uint32_t>(words[3][lane] >= least) << 24;
    std::memcpy(mask + begin, bytes, sizeof bytes);
  }
  for (; begin < count; begin += 4) {
    const PhiloxBlock block =
        philox(philoxCounter(static_cast<std::uint32_t>((first + begin) / 4), op, draw.minibatch), draw.seed);
    for (std::int64_t i = 0; i < std::min<std::int64_t>(4, count - begin); ++i)
      mask[begin + i] = block[static_cast<std::size_t>(i)] >= threshold;
  }
}

PDCRT_VECTORIZED void keep(std::int64_t count, const float* x, const std::uint8_t* mask, float scale, float* y) {
  for (std::int64_t i = 0; i < count; ++i) y[i] = mask[i] ? x[i] * scale : 0.0f;
}

void keepAll(const Dropout::Options& o, const float* x, const std::uint8_t* mask, float* y) {
  const float scale = static_cast<float>(1 / (1 - o.ratio));
  parts::runLines(o.elements, o.elements, [&](std::int64_t begin, std::int64_t end) {
    keep(end - begin, x + begin, mask + begin, scale, y + begin);
  });
}

} // namespace

void drawMask(std::int64_t count, const OwnElements& own, std::uint32_t op, double ratio, Draw draw,
              std::uint8_t* mask) {
  const auto threshold = static_cast<std::uint64_t>(std::llround(ratio * 4294967296.0));
  const auto drawNeighbours = [&](std::int64_t first, std::int64_t many, std::uint8_t* to) {
    std::int64_t drawn = 0;
#if defined(__x86_64__)
    // Rounding may have made it 2^32.
    if (avx2::preferred() && threshold <= 0xFFFFFFFF)
      drawn = drawManyBytes(first, many, op, draw, static_cast<std::uint32_t>(threshold), to);
#endif
    drawBytes(first + drawn, many - drawn, op, draw, threshold, to + drawn);
  };
  parts::runLines(count, count, [&](std::int64_t begin, std::int64_t end) {
    if (own.run == 0) return drawNeighbours(begin, end - begin, mask + begin);
    if (!own.keepsBlocks()) {
      for (std::int64_t i = begin; i < end; ++i)
        mask[i] = philoxWord(own.at(i), op, draw.minibatch, draw.seed) >= threshold;
      return;
    }
    for (std::int64_t i = begin; i < end;) {
      const std::int64_t many = std::min(end - i, own.run - i % own.run);
      drawNeighbours(own.at(i), many, mask + i);
      i += many;
    }
  });
}

Dropout::Dropout(Setup&, const Options& o) : options_(o) {
  checkOptions(o);
}

void Dropout::forward(Stream& q, Draw draw, View<const float> x, View<float> y, View<std::uint8_t> mask) const {
  const Options& o = options_;
  drawMask(o.elements, {o.run, o.members, q.member()}, o.op, o.ratio, draw, mask.data);
  keepAll(o, x.data, mask.data, y.data);
}

void Dropout::inputGradient(Stream&, View<const float> dy, View<const std::uint8_t> mask, View<float> dx) const {
  keepAll(options_, dy.data, mask.data, dx.data);
}

} // namespace pdcrt
