// LINK: pdcrt_kernels
// Kernels on tensors whose channels lie together in blocks of 16, against the same kernels on row-major ones.
#include "ChannelBlocks.h"
#include "KernelTest.h"
#include "pdcrt/FilterBlocks.h"
#include "pdcrt/kernels/AveragePool2d.h"
#include "pdcrt/kernels/BatchNorm.h"
#include "pdcrt/kernels/Conv2d.h"
#include "pdcrt/kernels/MaxPool2d.h"

#include <stdexcept>

using namespace pdcrt;

namespace {

template <class T>
void expectSameBits(const Buffer<T>& plain, const Buffer<T>& blocks, const Shape& shape, const char* what) {
  const std::vector<double> found = plainOf(blocks, shape);
  for (std::size_t i = 0; i < found.size(); ++i) ASSERT_EQ(plain.values()[i], found[i]) << what << "[" << i << "]";
}

class BlockedBatchNorm : public testing::Test {
protected:
  static constexpr std::int64_t channels = 48;
  const Shape shape = {3, channels, 5, 7};
  const Buffer<float> x = randomBuffer(shape.elements(), 1), dy = randomBuffer(shape.elements(), 2),
                      scale = randomBuffer(channels, 3), bias = randomBuffer(channels, 4),
                      mean = randomBuffer(channels, 5), variance = randomBuffer(channels, 6);
  pdcrt::Setup setup;
  const BatchNorm plain{setup, {.input = shape}}, blocked{setup, {.input = shape, .lanes = lanes}};

  void SetUp() override {
    for (float& value : x.values()) value = value * 0.5f + 100; // squares of which would cancel
    for (float& value : variance.values()) value = value * value + 0.1f;
  }
};

TEST_F(BlockedBatchNorm, TrainingIsTheSame) {
  const Buffer<float> xBlocks = inBlocks(x, shape), dyBlocks = inBlocks(dy, shape), y = room(shape.elements()),
                      yBlocks = room(shape.elements()), dx = room(shape.elements()), dxBlocks = room(shape.elements()),
                      statistics[8] = {room(channels), room(channels), room(channels), room(channels),
                                       room(channels), room(channels), room(channels), room(channels)};
  Stream q;
  plain.trainForward(q, x, scale, bias, mean, variance, {}, y, statistics[0], statistics[1], statistics[2],
                     statistics[3]);
  expectGoodManners(setup, {yBlocks, statistics[4], statistics[5], statistics[6], statistics[7]}, [&](Stream& stream) {
    blocked.trainForward(stream, xBlocks, scale, bias, mean, variance, {}, yBlocks, statistics[4], statistics[5],
                         statistics[6], statistics[7]);
  });
  const auto same = [](const Buffer<float>& actual, const Buffer<float>& expected, double error, const char* what) {
    EXPECT_LE(relativeError(actual, {expected.values().begin(), expected.values().end()}), error) << what;
  };
  EXPECT_LE(relativeError(y, plainOf(yBlocks, shape)), 1e-6);
  for (int i = 0; i < 4; ++i) same(statistics[4 + i], statistics[i], 1e-7, "statistics");

  const Buffer<float>&dscale = statistics[2], &dbias = statistics[3], &dscaleBlocks = statistics[6],
        &dbiasBlocks = statistics[7];
  plain.gradient(q, dy, x, scale, statistics[0], statistics[1], {}, {}, dx, dscale, dbias, {});
  expectGoodManners(setup, {dxBlocks, dscaleBlocks, dbiasBlocks}, [&](Stream& stream) {
    blocked.gradient(stream, dyBlocks, xBlocks, scale, statistics[0], statistics[1], {}, {}, dxBlocks, dscaleBlocks,
                     dbiasBlocks, {});
  });
  EXPECT_LE(relativeError(dx, plainOf(dxBlocks, shape)), 1e-6);
  same(dscaleBlocks, dscale, 1e-6, "dscale");
  same(dbiasBlocks, dbias, 1e-6, "dbias");
}

TEST_F(BlockedBatchNorm, WithFrozenStatisticsIsTheSame) {
  const Buffer<float> xBlocks = inBlocks(x, shape), dyBlocks = inBlocks(dy, shape), y = room(shape.elements()),
                      yBlocks = room(shape.elements()), dx = room(shape.elements()), dxBlocks = room(shape.elements()),
                      dscale = room(channels), dbias = room(channels), dscaleBlocks = room(channels),
                      dbiasBlocks = room(channels);
  Stream q;
  plain.forward(q, x, scale, bias, mean, variance, y);
  plain.frozenGradient(q, dy, x, scale, mean, variance, dx, dscale, dbias);
  expectGoodManners(setup, {yBlocks, dxBlocks, dscaleBlocks, dbiasBlocks}, [&](Stream& stream) {
    blocked.forward(stream, xBlocks, scale, bias, mean, variance, yBlocks);
    blocked.frozenGradient(stream, dyBlocks, xBlocks, scale, mean, variance, dxBlocks, dscaleBlocks, dbiasBlocks);
  });
  expectSameBits(y, yBlocks, shape, "y");
  expectSameBits(dx, dxBlocks, shape, "dx");
  EXPECT_LE(relativeError(dscaleBlocks, {dscale.values().begin(), dscale.values().end()}), 1e-6);
  EXPECT_LE(relativeError(dbiasBlocks, {dbias.values().begin(), dbias.values().end()}), 1e-6);
}

TEST_F(BlockedBatchNorm, WithReluAndResidualHasTheBitsOfSeparateSteps) {
  const Buffer<float> r = randomBuffer(shape.elements(), 7), y = room(shape.elements()), fused = room(shape.elements()),
                      g = room(shape.elements()), dx = room(shape.elements()), dxFused = room(shape.elements()),
                      dr = room(shape.elements()), mu = room(channels), inverse = room(channels),
                      dscale = room(channels), dbias = room(channels), dscaleFused = room(channels),
                      dbiasFused = room(channels);
  for (const std::int64_t width : {std::int64_t{1}, lanes})
    for (const View<const float> residual : {View<const float>(), View<const float>(r)}) {
      const BatchNorm separate(setup, {.input = shape, .lanes = width}),
          whole(setup, {.input = shape, .relu = true, .lanes = width});
      Stream q;
      separate.trainForward(q, x, scale, bias, mean, variance, {}, y, mu, inverse, {}, {});
      for (std::int64_t i = 0; i < y.count(); ++i) y[i] = std::max(residual ? y[i] + residual[i] : y[i], 0.0f);
      expectGoodManners(setup, {fused}, [&](Stream& stream) {
        whole.trainForward(stream, x, scale, bias, mean, variance, residual, fused, mu, inverse, {}, {});
      });
      EXPECT_TRUE(std::ranges::equal(fused.values(), y.values())) << width;
      const Buffer<float> again = room(shape.elements());
      expectGoodManners(setup, {again}, [&](Stream& stream) {
        whole.trainForwardAgain(stream, x, scale, bias, mu, inverse, residual, again);
      });
      EXPECT_TRUE(std::ranges::equal(again.values(), fused.values())) << width;
      for (std::int64_t i = 0; i < g.count(); ++i) g[i] = dy[i] * (y[i] > 0 ? 1.0f : 0.0f);
      separate.gradient(q, g, x, scale, mu, inverse, {}, {}, dx, dscale, dbias, {});
      for (const bool byInput : {false, true}) { // how it is known what the ReLU let through
        if (byInput && residual) continue;
        const View<const float> result = byInput ? View<const float>() : View<const float>(y),
                                shift = byInput ? View<const float>(bias) : View<const float>();
        expectGoodManners(setup, {dxFused, dscaleFused, dbiasFused, dr}, [&](Stream& stream) {
          whole.gradient(stream, dy, x, scale, mu, inverse, result, shift, dxFused, dscaleFused, dbiasFused, dr);
        });
        EXPECT_TRUE(std::ranges::equal(dxFused.values(), dx.values())) << width << byInput;
        EXPECT_TRUE(std::ranges::equal(dr.values(), g.values())) << width << byInput;
        EXPECT_TRUE(std::ranges::equal(dscaleFused.values(), dscale.values())) << width << byInput;
        EXPECT_TRUE(std::ranges::equal(dbiasFused.values(), dbias.values())) << width << byInput;
      }
    }
}

TEST(BlockedMaxPool, HasTheSameBits) {
  for (MaxPool2d::Options o :
       {MaxPool2d::Options{
            .input = {2, 32, 7, 9}, .output = {2, 32, 4, 5}, .kernel = {3, 3}, .strides = {2, 2}, .pads = {1, 1, 1, 1}},
        MaxPool2d::Options{.input = {1, 16, 9, 8},
        .output = {1, 16, 7, 4},
        .kernel = {2, 3},
        .pads = {1, 2, 0, 0},
        .dilations = {3, 3}}}) {
    const std::int64_t inputs = o.input.elements(), outputs = o.output.elements();
    const Buffer<float> x = randomBuffer(inputs, 1), dy = randomBuffer(outputs, 2), y(outputs), dx(inputs);
    x[3] = x[inputs - 1] = std::numeric_limits<float>::quiet_NaN();
    for (std::int64_t i = 20; i < 60; ++i) x[i] = 1; // ties
    const Buffer<std::int32_t> index(outputs), indexBlocks(outputs);
    const Buffer<float> xBlocks = inBlocks(x, o.input), dyBlocks = inBlocks(dy, o.output), yBlocks(outputs),
                        evaluated(outputs), dxBlocks(inputs);
    pdcrt::Setup setup;
    Stream q;
    const MaxPool2d plain(setup, o);
    o.lanes = lanes;
    const MaxPool2d blocked(setup, o);
    plain.forward(q, x, y, index);
    plain.inputGradient(q, dy, index, dx);
    expectGoodManners(setup, {yBlocks, indexBlocks, evaluated, dxBlocks}, [&](Stream& stream) {
      blocked.forward(stream, xBlocks, yBlocks, indexBlocks);
      blocked.forward(stream, xBlocks, evaluated, {});
      blocked.inputGradient(stream, dyBlocks, indexBlocks, dxBlocks);
    });
    const std::vector<double> found = plainOf(yBlocks, o.output);
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_TRUE(y.values()[i] == found[i] || (std::isnan(y.values()[i]) && std::isnan(found[i]))) << i;
    EXPECT_EQ(std::memcmp(evaluated.view().data, yBlocks.view().data, sizeof(float) * found.size()), 0);
    expectSameBits(index, indexBlocks, o.output, "index");
    expectSameBits(dx, dxBlocks, o.input, "dx");
  }
}

TEST(BlockedAveragePool, HasTheSameBits) {
  AveragePool2d::Options o = {
      .input = {2, 32, 7, 9}, .output = {2, 32, 4, 5}, .kernel = {3, 3}, .strides = {2, 2}, .pads = {1, 1, 1, 1}};
  const std::int64_t inputs = o.input.elements(), outputs = o.output.elements();
  const Buffer<float> x = randomBuffer(inputs, 1), dy = randomBuffer(outputs, 2), y(outputs), dx(inputs);
  const Buffer<float> xBlocks = inBlocks(x, o.input), dyBlocks = inBlocks(dy, o.output), yBlocks(outputs),
                      dxBlocks(inputs);
  pdcrt::Setup setup;
  Stream q;
  const AveragePool2d plain(setup, o);
  o.lanes = lanes;
  const AveragePool2d blocked(setup, o);
  plain.forward(q, x, y);
  plain.inputGradient(q, dy, dx);
  expectGoodManners(setup, {yBlocks, dxBlocks}, [&](Stream& stream) {
    blocked.forward(stream, xBlocks, yBlocks);
    blocked.inputGradient(stream, dyBlocks, dxBlocks);
  });
  expectSameBits(y, yBlocks, o.output, "y");
  expectSameBits(dx, dxBlocks, o.input, "dx");
}

TEST(BlockedConvolution, HasTheSameBitsWhereverTheBlocksAre) {
  const Conv2d::Options shapes[] = {
      {.input = {2, 32, 9, 8}, .filter = {48, 32, 3, 3}, .pads = {1, 1, 1, 1}, .bias = true},
      {.input = {2, 16, 9, 8}, .filter = {16, 16, 1, 1}, .strides = {2, 2}},
      {.input = {8, 64, 16, 16}, .filter = {64, 64, 3, 3}, .pads = {1, 1, 1, 1}}, // Winograd
      {.input = {2, 32, 9, 8}, .filter = {32, 1, 3, 3}, .pads = {1, 1, 1, 1}, .groups = 32},
  };
  for (Conv2d::Options o : shapes)
    for (const auto& [inputLanes, outputLanes] :
         {std::pair{lanes, lanes}, std::pair{lanes, std::int64_t{1}}, std::pair{std::int64_t{1}, lanes}}) {
      const Shape shape = Conv2d::outputShape(o);
      const Buffer<float> x = randomBuffer(o.input.elements(), 1), w = randomBuffer(o.filter.elements(), 2),
                          b = randomBuffer(o.filter.dims[0], 3), dy = randomBuffer(shape.elements(), 4), y(dy.count()),
                          dx(x.count()), dw(w.count()), yBlocks(dy.count()), dxBlocks(x.count()), dwBlocks(w.count());
      const View<const float> bias = o.bias ? View<const float>(b) : View<const float>();
      pdcrt::Setup setup;
      const Conv2d plain(setup, o);
      Conv2d::Options options = o;
      options.inputLanes = inputLanes;
      options.outputLanes = outputLanes;
      const Conv2d blocked(setup, options);
      const Buffer<float> xBlocks = inBlocks(x, o.input), dyBlocks = inBlocks(dy, shape);
      const Buffer<float>&xGiven = inputLanes > 1 ? xBlocks : x, &dyGiven = outputLanes > 1 ? dyBlocks : dy;
      expectGoodManners(
          setup, {y, dx, dw},
          [&](Stream& q) {
            plain.forward(q, x, w, bias, y);
            plain.inputGradient(q, dy, w, dx);
            plain.weightGradient(q, x, dy, dw, {});
          },
          1 << 17);
      expectGoodManners(
          setup, {yBlocks, dxBlocks, dwBlocks},
          [&](Stream& q) {
            blocked.forward(q, xGiven, w, bias, yBlocks);
            blocked.inputGradient(q, dyGiven, w, dxBlocks);
            blocked.weightGradient(q, xGiven, dyGiven, dwBlocks, {});
          },
          1 << 17);
      if (outputLanes > 1)
        expectSameBits(y, yBlocks, shape, "y");
      else
        EXPECT_TRUE(std::ranges::equal(y.values(), yBlocks.values()));
      if (inputLanes > 1)
        expectSameBits(dx, dxBlocks, o.input, "dx");
      else
        EXPECT_TRUE(std::ranges::equal(dx.values(), dxBlocks.values()));
      EXPECT_TRUE(std::ranges::equal(dw.values(), dwBlocks.values()));
    }
}

TEST(BlockedFilter, HasTheSameBits) {
  const Conv2d::Options shapes[] = {
      {.input = {2, 32, 9, 8}, .filter = {48, 32, 3, 3}, .pads = {1, 1, 1, 1}, .bias = true},
      {.input = {2, 16, 9, 8}, .filter = {32, 16, 1, 1}, .strides = {2, 2}},
      {.input = {2, 64, 9, 8}, .filter = {16, 64, 3, 2}, .strides = {2, 1}, .bias = true},
      {.input = {8, 64, 16, 16}, .filter = {64, 64, 3, 3}, .pads = {1, 1, 1, 1}}, // Winograd
      // The library's GEMM, which computes with row-major filters.
      {.input = {2, 16, 4, 4}, .filter = {16, 16, 1, 1}, .pads = {1, 1, 1, 1}},
      {.input = {2, 16, 9, 8}, .filter = {32, 16, 3, 3}, .pads = {2, 2, 2, 2}, .dilations = {2, 2}},
  };
  for (const Conv2d::Options& o : shapes) {
    SCOPED_TRACE(testing::Message() << o.filter.dims[0] << " outputs of " << o.filter.dims[1] << " inputs");
    const Buffer<float> x = randomBuffer(o.input.elements(), 1), w = randomBuffer(o.filter.elements(), 2),
                        wBlocks = randomBuffer(o.filter.elements(), 2), b = randomBuffer(o.filter.dims[0], 3),
                        dy = randomBuffer(Conv2d::outputShape(o).elements(), 4), y(dy.count()), dx(x.count()),
                        dw(w.count()), yBlocks(dy.count()), dxBlocks(x.count()), dwBlocks(w.count());
    ASSERT_TRUE(toFilterBlocks(o.filter, std::as_writable_bytes(wBlocks.values())));
    ASSERT_FALSE(std::ranges::equal(w.values(), wBlocks.values()));
    Conv2d::Options options = o;
    options.filterLanes = lanes;
    pdcrt::Setup setup;
    const Conv2d plain(setup, o), blocked(setup, options);
    const auto run = [&](const Conv2d& conv, const Buffer<float>& filter, const Buffer<float>& result,
                         const Buffer<float>& dInput, const Buffer<float>& dFilter) {
      expectGoodManners(
          setup, {result, dInput, dFilter},
          [&](Stream& q) {
            conv.forward(q, x, filter, o.bias ? View<const float>(b) : View<const float>(), result);
            conv.inputGradient(q, dy, filter, dInput);
            conv.weightGradient(q, x, dy, dFilter, {});
          },
          1 << 17);
    };
    run(plain, w, y, dx, dw);
    run(blocked, wBlocks, yBlocks, dxBlocks, dwBlocks);
    EXPECT_TRUE(std::ranges::equal(y.values(), yBlocks.values()));
    EXPECT_TRUE(std::ranges::equal(dx.values(), dxBlocks.values()));
    ASSERT_TRUE(fromFilterBlocks(o.filter, std::as_writable_bytes(dwBlocks.values())));
    EXPECT_TRUE(std::ranges::equal(dw.values(), dwBlocks.values()));
  }
}

// What is in blocks already is not copied.
TEST(BlockedFilter, NeedsNoWorkspaceForItsGradient) {
  const Conv2d::Options plain = {.input = {1, 256, 4, 4}, .filter = {256, 256, 3, 3}, .pads = {1, 1, 1, 1}};
  Conv2d::Options blocked = plain;
  blocked.inputLanes = blocked.outputLanes = blocked.filterLanes = lanes;
  pdcrt::Setup rowMajor, inBlocks;
  const Conv2d copies(rowMajor, plain), computes(inBlocks, blocked);
  if (!__builtin_cpu_supports("avx512f")) GTEST_SKIP() << "the library computes in these blocks with AVX-512 only";
  EXPECT_LT(inBlocks.workspaceBytes(), rowMajor.workspaceBytes());
}

TEST(Blocks, ThatDoNotDivideTheChannelsAreRefused) {
  pdcrt::Setup setup;
  EXPECT_THROW(BatchNorm(setup, {.input = {2, 24, 3, 3}, .lanes = 16}), std::runtime_error);
  EXPECT_THROW(MaxPool2d(setup, {.input = {2, 24, 3, 3}, .output = {2, 24, 3, 3}, .lanes = 16}), std::runtime_error);
  EXPECT_THROW(AveragePool2d(setup, {.input = {2, 32, 3, 3}, .output = {2, 32, 3, 3}, .lanes = 8}), std::runtime_error);
  EXPECT_THROW(Conv2d(setup, {.input = {2, 24, 3, 3}, .filter = {32, 24, 1, 1}, .inputLanes = 16}), std::runtime_error);
  EXPECT_THROW(Conv2d(setup, {.input = {2, 32, 3, 3}, .filter = {24, 32, 1, 1}, .outputLanes = 16}),
               std::runtime_error);
  EXPECT_THROW(Conv2d(setup, {.input = {2, 32, 3, 3}, .filter = {24, 32, 1, 1}, .filterLanes = 16}),
               std::runtime_error);
  EXPECT_THROW(Conv2d(setup, {.input = {2, 24, 3, 3}, .filter = {32, 24, 1, 1}, .filterLanes = 16}),
               std::runtime_error);
  EXPECT_THROW(Conv2d(setup, {.input = {2, 32, 3, 3}, .filter = {32, 32, 1, 1}, .filterLanes = 8}), std::runtime_error);
  EXPECT_THROW(Conv2d(setup, {.input = {2, 32, 3, 3}, .filter = {32, 16, 1, 1}, .groups = 2, .filterLanes = 16}),
               std::runtime_error);
}

} // namespace
