// LINK: pdcrt_kernels
// Convolutions in tiles, Winograd's as well, against the definition, computed in double precision.
#include "ChannelBlocks.h"
#include "ConvolutionDefinition.h"
#include "ConvolutionFused.h"
#include "KernelTest.h"
#include "pdcrt/FilterBlocks.h"
#include "pdcrt/Threads.h"
#include "pdcrt/kernels/Conv2d.h"

#include <ostream>
#include <stdexcept>
#include <string>

using namespace pdcrt;

namespace {

constexpr Conv2d::Algorithm automatic = Conv2d::Algorithm::automatic, direct = Conv2d::Algorithm::direct,
                            tiled = Conv2d::Algorithm::tiled, tiledWinograd = Conv2d::Algorithm::tiledWinograd;

struct Case {
  const char* name;
  Conv2d::Options options;
  Conv2d::Algorithm algorithm = tiled;

  /// Winograd's transforms round about four times as much as sums of products do.
  double allowed() const { return algorithm == tiledWinograd ? 2e-6 : 5e-7; }
};

Case winograd(const char* name, const Conv2d::Options& options) {
  return {name, options, tiledWinograd};
}

void PrintTo(const Case& value, std::ostream* stream) {
  *stream << value.name;
}

const Case cases[] = {
    {"OneTap", {.input = {3, 32, 5, 7}, .filter = {48, 32, 1, 1}, .bias = true}},
    {"OneTapManyPositions", {.input = {4, 64, 20, 21}, .filter = {64, 64, 1, 1}}},
    {"OneTapFewPositions", {.input = {5, 32, 7, 7}, .filter = {32, 32, 1, 1}}},
    {"OneTapManyInputs", {.input = {2, 320, 3, 3}, .filter = {16, 320, 1, 1}}},
    {"OneTapStrided", {.input = {2, 32, 8, 7}, .filter = {32, 32, 1, 1}, .strides = {2, 2}}},
    {"OneTapWithPads", {.input = {2, 32, 4, 4}, .filter = {16, 32, 1, 1}, .pads = {1, 0, 0, 1}, .bias = true}},
    {"OneTapWithPadsOverOneRow",
     {.input = {3, 32, 1, 5}, .filter = {16, 32, 1, 1}, .strides = {1, 2}, .pads = {0, 1, 0, 1}}},
    {"TwoTaps", {.input = {2, 16, 6, 9}, .filter = {32, 16, 2, 2}, .pads = {1, 0, 0, 1}}},
    {"ThreeTaps", {.input = {3, 32, 8, 8}, .filter = {32, 32, 3, 3}, .pads = {1, 1, 1, 1}, .bias = true}},
    {"WithoutPads", {.input = {2, 48, 9, 6}, .filter = {16, 48, 3, 3}}},
    {"OneColumn", {.input = {2, 16, 9, 1}, .filter = {16, 16, 3, 1}, .pads = {1, 0, 1, 0}}},
    {"FourByFive", {.input = {1, 16, 8, 7}, .filter = {32, 16, 4, 5}, .pads = {3, 4, 2, 1}}},
    {"TwoTapsStrided", {.input = {2, 32, 7, 8}, .filter = {16, 32, 2, 2}, .strides = {2, 2}}},
    {"ThreeTapsStrided",
     {.input = {3, 48, 14, 14}, .filter = {32, 48, 3, 3}, .strides = {2, 2}, .pads = {1, 1, 1, 1}, .bias = true}},
    {"ThreeTapsStridedOverOneRow",
     {.input = {2, 16, 1, 9}, .filter = {32, 16, 3, 3}, .strides = {2, 2}, .pads = {1, 1, 1, 1}}},
    {"OneTapStridedTwoRows", {.input = {2, 32, 2, 3}, .filter = {16, 32, 1, 1}, .strides = {2, 2}}},
    {"OneTapStridedManyOutputs", {.input = {2, 16, 7, 7}, .filter = {320, 16, 1, 1}, .strides = {2, 2}}},
    {"SevenTapsStrided", {.input = {4, 16, 31, 27}, .filter = {16, 16, 7, 7}, .strides = {2, 2}, .pads = {3, 3, 3, 3}}},
    {"StrideOfRows", {.input = {2, 16, 11, 8}, .filter = {32, 16, 3, 3}, .strides = {2, 1}, .pads = {1, 1, 0, 0}}},
    {"RowsThatNoWindowReaches", {.input = {1, 16, 8, 8}, .filter = {16, 16, 3, 3}, .strides = {2, 2}}},
    {"PadsThatNoWindowReaches",
     {.input = {1, 16, 6, 6}, .filter = {16, 16, 3, 3}, .strides = {2, 2}, .pads = {0, 0, 1, 1}}},
    {"ColumnsThatNoWindowReaches",
     {.input = {1, 16, 9, 9}, .filter = {16, 16, 3, 3}, .strides = {2, 2}, .pads = {1, 1, 0, 0}}},
    // More than the caches keep of rows, columns, inputs and samples.
    {"WideRows", {.input = {1, 16, 4, 150}, .filter = {16, 16, 3, 3}, .pads = {1, 1, 1, 1}}},
    {"LargePlanes", {.input = {2, 32, 60, 40}, .filter = {32, 32, 3, 3}, .pads = {1, 1, 1, 1}, .bias = true}},
    {"LargePlanesStrided",
     {.input = {2, 64, 61, 60}, .filter = {32, 64, 3, 3}, .strides = {2, 2}, .pads = {1, 1, 1, 1}}},
    {"ManySamples", {.input = {70, 32, 7, 7}, .filter = {16, 32, 3, 3}, .pads = {1, 1, 1, 1}}},
    winograd("WinogradWholeSquares", {.input = {2, 32, 8, 12}, .filter = {48, 32, 3, 3}, .pads = {1, 1, 1, 1}}),
    winograd("WinogradPartsOfSquares",
             {.input = {3, 48, 7, 9}, .filter = {16, 48, 3, 3}, .pads = {1, 1, 1, 1}, .bias = true}),
    winograd("WinogradBiasOfWholeSquares",
             {.input = {2, 16, 8, 8}, .filter = {32, 16, 3, 3}, .pads = {1, 1, 1, 1}, .bias = true}),
    winograd("WinogradWithoutPads", {.input = {2, 16, 10, 7}, .filter = {32, 16, 3, 3}}),
    winograd("WinogradUnequalPads", {.input = {2, 32, 5, 6}, .filter = {32, 32, 3, 3}, .pads = {2, 0, 1, 2}}),
    winograd("WinogradOnePosition", {.input = {1, 16, 1, 1}, .filter = {16, 16, 3, 3}, .pads = {1, 1, 1, 1}}),
    winograd("WinogradSmallerThanASquare", {.input = {5, 16, 3, 3}, .filter = {16, 16, 3, 3}}),
    // More squares than are computed at a time, in groups that are not all equal, and in several parts.
    winograd("WinogradManySquares",
             {.input = {3, 128, 30, 23}, .filter = {128, 128, 3, 3}, .pads = {1, 1, 1, 1}, .bias = true}),
    // Filters in portions, of which the last of an output is smaller; then with more squares than at a time.
    winograd("WinogradLargeFilter",
             {.input = {3, 192, 6, 5}, .filter = {256, 192, 3, 3}, .pads = {1, 1, 1, 1}, .bias = true}),
    winograd("WinogradLargeFilterManySquares",
             {.input = {170, 224, 3, 3}, .filter = {224, 224, 3, 3}, .pads = {1, 1, 1, 1}}),
};

class TiledConvolution : public testing::TestWithParam<Case> {
protected:
  void SetUp() override {
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) GTEST_SKIP() << "for processors with AVX2";
    ASSERT_TRUE(toFilterBlocks(o.filter, std::as_writable_bytes(wBlocks.values())));
  }
  void TearDown() override { kernelThreads = 1; }

  static Conv2d::Options blocked(Conv2d::Options options) {
    options.inputLanes = options.outputLanes = options.filterLanes = lanes;
    options.algorithms.forward = options.algorithms.weightGradient = GetParam().algorithm;
    if (Conv2d::takesTilesBackward(options)) options.algorithms.inputGradient = GetParam().algorithm;
    return options;
  }

  const Conv2d::Options o = blocked(GetParam().options);
  const Shape output = Conv2d::outputShape(o);
  const Buffer<float> x = randomBuffer(o.input.elements(), 1), w = randomBuffer(o.filter.elements(), 2),
                      wBlocks = randomBuffer(o.filter.elements(), 2), b = randomBuffer(o.filter.dims[0], 3),
                      dy = randomBuffer(output.elements(), 4), xBlocks = inBlocks(x, o.input),
                      dyBlocks = inBlocks(dy, output), y{room(dy.count())}, dx{room(x.count())}, dw{room(w.count())},
                      db{room(b.count())};

  void compute(const Conv2d& conv, Stream& q) {
    conv.forward(q, xBlocks, wBlocks, o.bias ? View<const float>(b) : View<const float>(), y);
    if (o.algorithms.inputGradient != automatic) conv.inputGradient(q, dyBlocks, wBlocks, dx);
    conv.weightGradient(q, xBlocks, dyBlocks, dw, o.bias ? View<float>(db) : View<float>());
  }
};

/// Of a tensor in blocks.
double errorOf(const Buffer<float>& blocks, const Shape& shape, const std::vector<double>& expected) {
  const Buffer<float> plain(blocks.count());
  forEachPosition(shape, [&](std::int64_t to, std::int64_t from) { plain[to] = blocks[from]; });
  return relativeError(plain, expected);
}

/// Why there is no such kernel, or "".
std::string refusalOf(const Conv2d::Options& options) {
  try {
    pdcrt::Setup setup;
    const Conv2d conv(setup, options);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

} // namespace

TEST_P(TiledConvolution, IsTheDefinition) {
  pdcrt::Setup setup;
  const Conv2d conv(setup, o);
  expectGoodManners(setup, {y, dw}, [&](Stream& q) {
    conv.forward(q, xBlocks, wBlocks, o.bias ? View<const float>(b) : View<const float>(), y);
    conv.weightGradient(q, xBlocks, dyBlocks, dw, {});
  });
  std::vector<double> exactY(static_cast<std::size_t>(y.count())), exactX(static_cast<std::size_t>(x.count())),
      exactW(static_cast<std::size_t>(w.count()));
  for (std::int64_t i = 0; o.bias && i < y.count(); ++i) exactY[static_cast<std::size_t>(i)] = b[channelOf(output, i)];
  forEachProduct(o, [&](std::int64_t xi, std::int64_t wi, std::int64_t yi) {
    exactY[static_cast<std::size_t>(yi)] += double(x[xi]) * w[wi];
    exactX[static_cast<std::size_t>(xi)] += double(dy[yi]) * w[wi];
    exactW[static_cast<std::size_t>(wi)] += double(x[xi]) * dy[yi];
  });
  const double allowed = GetParam().allowed();
  EXPECT_LE(errorOf(y, output, exactY), allowed);
  ASSERT_TRUE(fromFilterBlocks(o.filter, std::as_writable_bytes(dw.values())));
  EXPECT_LE(relativeError(dw, exactW), allowed);
  if (o.algorithms.inputGradient == automatic) return;
  expectGoodManners(setup, {dx}, [&](Stream& q) { conv.inputGradient(q, dyBlocks, wBlocks, dx); });
  EXPECT_LE(errorOf(dx, o.input, exactX), allowed);
}

TEST_P(TiledConvolution, HasTheSameBitsWithSeveralThreads) {
  std::vector<std::vector<float>> first;
  const std::vector<std::reference_wrapper<const Buffer<float>>> results = {y, dx, dw, db};
  for (int threads : {1, 2, 3}) {
    kernelThreads = threads;
    pdcrt::Setup setup;
    const Conv2d conv(setup, o);
    const GuardedBytes workspace(setup.workspaceBytes());
    workspace.fill(0xFF);
    for (const Buffer<float>& result : results) result.bytes().fill(0);
    Stream q(workspace.data(), workspace.size());
    compute(conv, q);
    EXPECT_TRUE(workspace.guardsIntact());
    for (std::size_t i = 0; i < results.size(); ++i) {
      const auto values = results[i].get().values();
      if (threads == 1)
        first.emplace_back(values.begin(), values.end());
      else
        EXPECT_TRUE(std::ranges::equal(values, first[i])) << "result " << i << ", " << threads << " threads";
    }
  }
}

TEST_P(TiledConvolution, SumsUpTheBiasGradient) {
  if (!o.bias) GTEST_SKIP() << "no bias";
  pdcrt::Setup setup;
  const Conv2d conv(setup, o);
  const GuardedBytes workspace(setup.workspaceBytes());
  Stream q(workspace.data(), workspace.size());
  compute(conv, q);
  std::vector<double> expected(static_cast<std::size_t>(db.count()));
  for (std::int64_t i = 0; i < dy.count(); ++i) expected[static_cast<std::size_t>(channelOf(output, i))] += dy[i];
  EXPECT_LE(relativeError(db, expected), 1e-7);
}

TEST_P(TiledConvolution, ReluLeavesNothingBelowZero) {
  for (bool withNaN : {false, true}) expectReluOf(o, withNaN);
}

TEST_P(TiledConvolution, MaximaOfWindowsMayBeAllThatIsWritten) {
  expectPooledOf(o, 0);
}

TEST_P(TiledConvolution, InputGradientMayBeAddedToSomething) {
  if (o.algorithms.inputGradient == automatic) GTEST_SKIP() << "not in tiles";
  expectAddedOf(o, 0);
}

INSTANTIATE_TEST_SUITE_P(Shapes, TiledConvolution, testing::ValuesIn(cases),
                         [](const auto& p) { return p.param.name; });

// Where tiles do not compute it: the library cannot add. A few samples at a time are still in a cache when they are
// added.
TEST(ConvolutionByTheLibrary, InputGradientIsAddedInPortionsThatFitACache) {
  constexpr auto direct = Conv2d::Algorithm::direct;
  Conv2d::Options o = {.input = {6, 16, 96, 160},
                       .filter = {16, 16, 1, 1},
                       .inputLanes = 16,
                       .outputLanes = 16,
                       .algorithms = {direct, direct, direct}};
  expectAddedOf(o, argumentMap); // portions of three samples
  const auto workspaceOf = [](const Conv2d::Options& options) {
    pdcrt::Setup setup;
    const Conv2d conv(setup, options);
    return setup.workspaceBytes("addedInputGradient");
  };
  const std::size_t six = workspaceOf(o);
  o.input.dims[0] = 3;
  EXPECT_EQ(six, workspaceOf(o));
  o.input.dims[0] = 7; // one at a time
  expectAddedOf(o, argumentMap);
  EXPECT_LT(workspaceOf(o), six);
}

TEST(TiledConvolutionOptions, WhatTilesCannotComputeIsRefused) {
  const Conv2d::Options fits = {.input = {1, 32, 8, 8},
                                .filter = {32, 32, 3, 3},
                                .pads = {1, 1, 1, 1},
                                .inputLanes = lanes,
                                .outputLanes = lanes,
                                .filterLanes = lanes,
                                .algorithms = {tiled, tiled, tiled}};
  const auto isRefused = [](const Conv2d::Options& options) {
    return refusalOf(options).find("tiles are for channels and filters in blocks") != std::string::npos;
  };
  EXPECT_FALSE(isRefused(fits));
  Conv2d::Options o = fits;
  o.inputLanes = 1;
  EXPECT_TRUE(isRefused(o));
  o = fits;
  o.filterLanes = 1;
  EXPECT_TRUE(isRefused(o));
  o = fits;
  o.dilations = {2, 1};
  EXPECT_TRUE(isRefused(o));
  o = fits;
  o.strides = {3, 1};
  EXPECT_TRUE(isRefused(o));
  o = fits;
  o.strides = {2, 2};
  EXPECT_FALSE(isRefused(o));
  o.pads = {2, 1, 1, 1};
  EXPECT_TRUE(isRefused(o));
  o.algorithms.inputGradient = direct;
  EXPECT_FALSE(isRefused(o));
  o = fits;
  o.pads = {3, 1, 1, 1};
  EXPECT_TRUE(isRefused(o));
}

TEST(TiledConvolutionOptions, WhatWinogradInTilesCannotComputeIsRefused) {
  const Conv2d::Options fits = {.input = {1, 32, 8, 8},
                                .filter = {32, 32, 3, 3},
                                .pads = {1, 1, 1, 1},
                                .inputLanes = lanes,
                                .outputLanes = lanes,
                                .filterLanes = lanes,
                                .algorithms = {tiledWinograd, direct, direct}};
  EXPECT_EQ(refusalOf(fits), "");
  Conv2d::Options o = fits;
  o.outputLanes = 1;
  EXPECT_NE(refusalOf(o).find("Winograd's algorithm in tiles is for channels and filters in blocks"),
            std::string::npos);
  o = fits;
  o.pads = {1, 3, 1, 1};
  EXPECT_NE(refusalOf(o).find("pads smaller than the filter"), std::string::npos);
  o = fits;
  o.filter = {32, 32, 3, 2};
  EXPECT_NE(refusalOf(o).find("filters of 3x3"), std::string::npos);
}
