// See Dropout.h.
#include "pdcrt/kernels/Dropout.h"

#include "DropoutMask.h"
#include "Sums.h"
#include "pdcrt/Random.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>

namespace pdcrt {
namespace {

constexpr int width = 16; ///< blocks of random numbers that are drawn at once

/// Blocks first, first + 1, … of the stream: word i of block b is words[i][b - first]. As `philox`, lane by lane.
PDCRT_INLINE void philoxLanes(std::uint32_t first, std::uint32_t op, Draw draw, std::uint32_t (&words)[4][width]) {
  for (int lane = 0; lane < width; ++lane) {
    words[0][lane] = first + static_cast<std::uint32_t>(lane);
    words[1][lane] = op;
    words[2][lane] = static_cast<std::uint32_t>(draw.minibatch);
    words[3][lane] = static_cast<std::uint32_t>(draw.minibatch >> 32);
  }
  constexpr std::uint64_t multiplier0 = 0xD2511F53, multiplier1 = 0xCD9E8D57;
  std::uint32_t key0 = static_cast<std::uint32_t>(draw.seed), key1 = static_cast<std::uint32_t>(draw.seed >> 32);
  for (int round = 0; round < 10; ++round, key0 += 0x9E3779B9, key1 += 0xBB67AE85)
    for (int lane = 0; lane < width; ++lane) {
      const std::uint64_t product0 = multiplier0 * words[0][lane], product1 = multiplier1 * words[2][lane];
      words[0][lane] = static_cast<std::uint32_t>(product1 >> 32) ^ words[1][lane] ^ key0;
      words[1][lane] = static_cast<std::uint32_t>(product1);
      words[2][lane] = static_cast<std::uint32_t>(product0 >> 32) ^ words[3][lane] ^ key1;
      words[3][lane] = static_cast<std::uint32_t>(product0);
    }
}

/// mask[i] = 1 where word i of the stream is at least `threshold`.
PDCRT_VECTORIZED void drawBytes(std::int64_t count, std::uint32_t op, Draw draw, std::uint64_t threshold,
                                std::uint8_t* mask) {
  std::int64_t begin = 0;
  static_assert(std::endian::native == std::endian::little);
  // Rounding may have made it 2^32.
  const auto least = static_cast<std::uint32_t>(std::min<std::uint64_t>(threshold, 0xFFFFFFFF));
  for (; begin + 4 * width <= count; begin += 4 * width) {
    std::uint32_t words[4][width];
    philoxLanes(static_cast<std::uint32_t>(begin / 4), op, draw, words);
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
        philox(philoxCounter(static_cast<std::uint32_t>(begin / 4), op, draw.minibatch), draw.seed);
    for (std::int64_t i = 0; i < std::min<std::int64_t>(4, count - begin); ++i)
      mask[begin + i] = block[static_cast<std::size_t>(i)] >= threshold;
  }
}

PDCRT_VECTORIZED void keep(std::int64_t count, const float* x, const std::uint8_t* mask, float scale, float* y) {
  for (std::int64_t i = 0; i < count; ++i) y[i] = mask[i] ? x[i] * scale : 0.0f;
}

float scaleOf(const Dropout::Options& o) {
  return static_cast<float>(1 / (1 - o.ratio));
}

} // namespace

void drawMask(std::int64_t count, std::uint32_t op, double ratio, Draw draw, std::uint8_t* mask) {
  drawBytes(count, op, draw, static_cast<std::uint64_t>(std::llround(ratio * 4294967296.0)), mask);
}

Dropout::Dropout(Setup&, const Options& o) : options_(o) {
  if (!(o.ratio >= 0 && o.ratio < 1))
    throw std::runtime_error("dropout: ratio " + std::to_string(o.ratio) + " is not in [0, 1)");
  if (o.elements / 4 > std::int64_t{0xFFFFFFFF})
    throw std::runtime_error("dropout of " + std::to_string(o.elements) + " elements: at most 2^34");
}

void Dropout::forward(Stream&, Draw draw, View<const float> x, View<float> y, View<std::uint8_t> mask) const {
  drawMask(options_.elements, options_.op, options_.ratio, draw, mask.data);
  keep(options_.elements, x.data, mask.data, scaleOf(options_), y.data);
}

void Dropout::inputGradient(Stream&, View<const float> dy, View<const std::uint8_t> mask, View<float> dx) const {
  keep(options_.elements, dy.data, mask.data, scaleOf(options_), dx.data);
}

} // namespace pdcrt
