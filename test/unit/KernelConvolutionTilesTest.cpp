// LINK: pdcrt_kernels
// Tiles of convolutions for AVX-512 give the bits of those for AVX2, which others compare with the definition where
// there is no AVX-512.
#include "ConvolutionTiles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

using namespace pdcrt::convolution;

namespace {

using Floats = std::vector<float>;

Floats randomFloats(std::int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Floats made(static_cast<std::size_t>(count));
  for (float& value : made) value = normal(random);
  return made;
}

/// NaN is no number that could be equal.
bool sameBits(const Floats& a, const Floats& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class ConvolutionTiles : public testing::Test {
protected:
  void SetUp() override {
    if (!__builtin_cpu_supports("avx512f")) GTEST_SKIP() << "for processors with AVX-512";
  }
};

/// What a set of tiles makes of some positions and blocks of outputs, one tile after the other.
Floats forwardBy(const Tiles& tiles, std::int64_t positions, std::int64_t stride, std::int64_t outputs,
                 const ForwardTile& tile, const Floats& before) {
  Floats y = before;
  for (std::int64_t output = 0; output < outputs; output += tiles.outputs)
    for (std::int64_t first = 0; first < positions; first += tiles.rows) {
      const std::int64_t at = output * tile.outputOfY + first * block;
      ForwardTile t = tile;
      t.x = tile.x + first * stride * block, t.y = y.data() + at, t.w = tile.w + output * tile.outputOfW;
      if (tile.before) t.before = tile.before + at;
      if (tile.start) t.start = tile.start + output * block;
      tiles.forward(std::min(tiles.rows, positions - first), stride, std::min(tiles.outputs, outputs - output), t);
    }
  return y;
}

struct Transform {
  const char* name;
  void (*Tiles::*function)(Square<const float>, Square<float>);
};

} // namespace

TEST_F(ConvolutionTiles, ForwardHasTheBitsOfAvx2) {
  constexpr std::int64_t inputs = 2, kernel = 3, width = 40, plane = kernel * width * block, most = 2;
  constexpr std::int64_t filter = inputs * kernel * kernel * block * block;
  const std::int64_t planeOfY = (avx512Tiles.rows + 1) * block;
  Floats x = randomFloats(inputs * plane, 1), w = randomFloats(most * filter, 2), bias = randomFloats(most * block, 3),
         before = randomFloats(most * planeOfY, 4);
  x[5 * block] = std::numeric_limits<float>::quiet_NaN();
  for (std::int64_t positions = 1; positions <= avx512Tiles.rows; ++positions)
    for (std::int64_t stride : {1, 2})
      for (std::int64_t outputs = 1; outputs <= most; ++outputs)
        for (int start = 0; start < 3; ++start)
          for (bool relu : {false, true}) {
            const ForwardTile tile = {.x = x.data(),
                                      .w = w.data(),
                                      .before = start == 1 ? before.data() : nullptr,
                                      .start = start == 2 ? bias.data() : nullptr,
                                      .y = nullptr,
                                      .inputs = inputs,
                                      .plane = plane,
                                      .kernelHeight = kernel,
                                      .rowFloats = width * block,
                                      .kernelWidth = kernel,
                                      .relu = relu,
                                      .outputOfW = filter,
                                      .outputOfY = planeOfY};
            const Floats expected = forwardBy(avx2Tiles, positions, stride, outputs, tile, before);
            EXPECT_TRUE(sameBits(forwardBy(avx512Tiles, positions, stride, outputs, tile, before), expected))
                << positions << " positions, stride " << stride << ", " << outputs << " blocks, start " << start
                << ", relu " << relu;
            EXPECT_FALSE(sameBits(before, expected));
          }
}

TEST_F(ConvolutionTiles, WeightsHaveTheBitsOfAvx2) {
  constexpr std::int64_t rows = 3, columns = 7, width = 20, most = 2;
  constexpr std::int64_t outputOfDy = rows * columns * block;
  const Floats x = randomFloats(rows * width * block, 1), dy = randomFloats(most * outputOfDy, 2);
  for (std::int64_t taps = 1; taps <= 3; ++taps)
    for (bool fresh : {false, true}) {
      const std::int64_t outputOfDw = taps * block * block;
      const Floats before = randomFloats(most * outputOfDw, 3);
      const auto add = [&](const Tiles& tiles, std::int64_t first, std::int64_t outputs, std::int64_t next,
                           Floats& dw) {
        tiles.weights(outputs, taps,
                      {.x = x.data(),
                       .dy = dy.data() + first * outputOfDy,
                       .dw = dw.data() + first * outputOfDw,
                       .rows = rows,
                       .columns = columns,
                       .rowOfX = width * block,
                       .rowOfDy = columns * block,
                       .step = 2 * block,
                       .outputOfDy = outputOfDy,
                       .outputOfDw = outputOfDw,
                       .fresh = fresh,
                       .nextX = next,
                       .nextDy = next});
      };
      Floats expected = before;
      for (std::int64_t output = 0; output < most; ++output) add(avx2Tiles, output, 1, 0, expected);
      for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NE(expected[i], before[i]);
      for (const Tiles* tiles : {&avx2Tiles, &avx512Tiles})
        for (std::int64_t next : {std::int64_t{0}, 4 * block}) { // what is fetched changes nothing
          Floats together = before, apart = before;
          add(*tiles, 0, most, next, together);
          for (std::int64_t output = 0; output < most; ++output) add(*tiles, output, 1, next, apart);
          EXPECT_TRUE(sameBits(together, expected)) << taps << " taps, fresh " << fresh;
          EXPECT_TRUE(sameBits(apart, expected)) << taps << " taps, fresh " << fresh;
        }
    }
}

TEST_F(ConvolutionTiles, TransformsHaveTheBitsOfAvx2) {
  const Floats values = randomFloats(6 * 6 * block, 1);
  for (const Transform& transform :
       {Transform{"ofInputs", &Tiles::ofInputs}, Transform{"ofFilter", &Tiles::ofFilter},
        Transform{"toOutputs", &Tiles::toOutputs}, Transform{"ofOutputGradients", &Tiles::ofOutputGradients},
        Transform{"toFilterGradient", &Tiles::toFilterGradient}}) {
    const auto by = [&](const Tiles& tiles) {
      Floats result(values.size(), 0.0f);
      (tiles.*transform.function)({values.data(), 6 * block, block}, {result.data(), 6 * block, block});
      return result;
    };
    EXPECT_TRUE(sameBits(by(avx512Tiles), by(avx2Tiles))) << transform.name;
    EXPECT_FALSE(sameBits(by(avx512Tiles), Floats(values.size(), 0.0f))) << transform.name;
  }
}
