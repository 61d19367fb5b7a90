// LINK: pdcrt_kernels
// Conv2d against the definition, computed in double precision.
#include "ConvolutionDefinition.h"
#include "ConvolutionFused.h"
#include "KernelTest.h"
#include "pdcrt/kernels/Conv2d.h"

#include <algorithm>
#include <ostream>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>

using namespace pdcrt;

namespace {

struct Case {
  const char* name;
  Conv2d::Options options;
  std::size_t allocation = argumentMap;
};

void PrintTo(const Case& value, std::ostream* stream) {
  *stream << value.name;
}

/// Where the library has only its GEMM for a shape, that packs its operands in memory of its own.
constexpr std::size_t packing = 1 << 17;

const Case cases[] = {
    {"Pointwise", {.input = {2, 5, 4, 3}, .filter = {7, 5, 1, 1}}},
    {"OneChannelDigits", {.input = {32, 1, 8, 8}, .filter = {6, 1, 3, 3}, .pads = {1, 1, 1, 1}, .bias = true}},
    {"OddSizes", {.input = {3, 7, 9, 5}, .filter = {11, 7, 3, 2}, .bias = true}},
    {"Strided", {.input = {2, 16, 11, 8}, .filter = {32, 16, 3, 3}, .strides = {2, 3}, .pads = {1, 1, 1, 1}}},
    {"AsymmetricPads", {.input = {1, 3, 6, 7}, .filter = {4, 3, 4, 2}, .pads = {2, 0, 1, 1}, .bias = true}},
    {"Dilated", {.input = {2, 4, 12, 9}, .filter = {8, 4, 3, 3}, .pads = {2, 1, 2, 1}, .dilations = {2, 3}}, packing},
    {"Groups",
     {.input = {2, 12, 6, 6}, .filter = {18, 4, 3, 3}, .pads = {1, 1, 1, 1}, .groups = 3, .bias = true},
     packing},
    {"GroupsOfBlocks", {.input = {2, 32, 6, 6}, .filter = {64, 16, 3, 3}, .pads = {1, 1, 1, 1}, .groups = 2}},
    {"Depthwise",
     {.input = {2, 19, 7, 7}, .filter = {19, 1, 3, 3}, .strides = {2, 2}, .pads = {1, 1, 1, 1}, .groups = 19}},
    {"BlockedChannels", {.input = {1, 32, 10, 10}, .filter = {48, 32, 3, 3}, .pads = {1, 1, 1, 1}, .bias = true}},
    {"Winograd", {.input = {15, 64, 13, 11}, .filter = {65, 64, 3, 3}, .pads = {1, 1, 1, 1}, .bias = true}},
    {"WinogradWithoutPads", {.input = {57, 64, 8, 8}, .filter = {64, 64, 3, 3}}},
    {"InputRowsThatNoWindowReaches", {.input = {1, 2, 8, 8}, .filter = {3, 2, 3, 3}, .strides = {3, 3}}},
};

class Convolution : public testing::TestWithParam<Case> {};

TEST_P(Convolution, ForwardIsTheDefinition) {
  const Conv2d::Options& o = GetParam().options;
  const Shape shape = Conv2d::outputShape(o);
  const Buffer<float> x = randomBuffer(o.input.elements(), 1), w = randomBuffer(o.filter.elements(), 2),
                      b = randomBuffer(o.filter.dims[0], 3), y(shape.elements());
  pdcrt::Setup setup;
  const Conv2d conv(setup, o);
  expectGoodManners(
      setup, {y}, [&](Stream& q) { conv.forward(q, x, w, o.bias ? b.view() : View<float>(), y); },
      GetParam().allocation, "forward");
  std::vector<double> expected(static_cast<std::size_t>(y.count()));
  if (o.bias)
    for (std::int64_t i = 0; i < y.count(); ++i) expected[static_cast<std::size_t>(i)] = b[channelOf(shape, i)];
  forEachProduct(o, [&](std::int64_t xi, std::int64_t wi, std::int64_t yi) {
    expected[static_cast<std::size_t>(yi)] += double(x[xi]) * w[wi];
  });
  expectClose(y, expected, "y");
}

TEST_P(Convolution, InputGradientIsTheDerivative) {
  const Conv2d::Options& o = GetParam().options;
  const Buffer<float> dy = randomBuffer(Conv2d::outputShape(o).elements(), 4), w = randomBuffer(o.filter.elements(), 5),
                      dx(o.input.elements());
  pdcrt::Setup setup;
  const Conv2d conv(setup, o);
  expectGoodManners(
      setup, {dx}, [&](Stream& q) { conv.inputGradient(q, dy, w, dx); }, GetParam().allocation, "inputGradient");
  std::vector<double> expected(static_cast<std::size_t>(dx.count()));
  forEachProduct(o, [&](std::int64_t xi, std::int64_t wi, std::int64_t yi) {
    expected[static_cast<std::size_t>(xi)] += double(dy[yi]) * w[wi];
  });
  expectClose(dx, expected, "dx");
}

TEST_P(Convolution, WeightGradientIsTheDerivative) {
  const Conv2d::Options& o = GetParam().options;
  const Shape shape = Conv2d::outputShape(o);
  const Buffer<float> x = randomBuffer(o.input.elements(), 6), dy = randomBuffer(shape.elements(), 7),
                      dw(o.filter.elements()), db(o.bias ? o.filter.dims[0] : 0);
  pdcrt::Setup setup;
  const Conv2d conv(setup, o);
  expectGoodManners(
      setup, {dw, db}, [&](Stream& q) { conv.weightGradient(q, x, dy, dw, o.bias ? db.view() : View<float>()); },
      GetParam().allocation, "weightGradient");
  std::vector<double> expected(static_cast<std::size_t>(dw.count())),
      expectedBias(static_cast<std::size_t>(db.count()));
  forEachProduct(o, [&](std::int64_t xi, std::int64_t wi, std::int64_t yi) {
    expected[static_cast<std::size_t>(wi)] += double(x[xi]) * dy[yi];
  });
  if (o.bias)
    for (std::int64_t i = 0; i < dy.count(); ++i) expectedBias[static_cast<std::size_t>(channelOf(shape, i))] += dy[i];
  expectClose(dw, expected, "dw");
  expectClose(db, expectedBias, "db");
}

TEST_P(Convolution, ReluLeavesNothingBelowZero) {
  for (bool withNaN : {false, true}) expectReluOf(GetParam().options, withNaN);
}

TEST_P(Convolution, MaximaOfWindowsMayBeAllThatIsWritten) {
  expectPooledOf(GetParam().options, GetParam().allocation);
}

TEST_P(Convolution, InputGradientMayBeAddedToSomething) {
  expectAddedOf(GetParam().options, GetParam().allocation);
}

INSTANTIATE_TEST_SUITE_P(Shapes, Convolution, testing::ValuesIn(cases), [](const auto& p) { return p.param.name; });

/// Winograd's transforms round about four times as much as sums of products do. The library's kernels for AVX2 round
/// more than those for AVX-512 (4e-7 here).
TEST(ConvolutionAccuracy, IsThatOfTheAlgorithmAndNoWorse) {
  const double ofProducts = __builtin_cpu_supports("avx512f") ? 3e-7 : 5e-7;
  struct {
    const char* what;
    Conv2d::Options options;
    double allowed;
  } const accuracies[] = {
      {"direct", {.input = {4, 60, 16, 16}, .filter = {60, 60, 3, 3}, .pads = {1, 1, 1, 1}}, ofProducts},
      {"Winograd", {.input = {8, 64, 16, 16}, .filter = {64, 64, 3, 3}, .pads = {1, 1, 1, 1}}, 1e-6},
  };
  for (const auto& [what, o, allowed] : accuracies) {
    const Shape shape = Conv2d::outputShape(o);
    const Buffer<float> x = randomBuffer(o.input.elements(), 8), w = randomBuffer(o.filter.elements(), 9),
                        dy = randomBuffer(shape.elements(), 10), y(shape.elements()), dx(x.count()), dw(w.count());
    pdcrt::Setup setup;
    const Conv2d conv(setup, o);
    expectGoodManners(
        setup, {y, dx, dw},
        [&](Stream& q) {
          conv.forward(q, x, w, {}, y);
          conv.inputGradient(q, dy, w, dx);
          conv.weightGradient(q, x, dy, dw, {});
        },
        argumentMap * 3);
    std::vector<double> exactY(static_cast<std::size_t>(y.count())), exactX(static_cast<std::size_t>(x.count())),
        exactW(static_cast<std::size_t>(w.count()));
    forEachProduct(o, [&](std::int64_t xi, std::int64_t wi, std::int64_t yi) {
      exactY[static_cast<std::size_t>(yi)] += double(x[xi]) * w[wi];
      exactX[static_cast<std::size_t>(xi)] += double(dy[yi]) * w[wi];
      exactW[static_cast<std::size_t>(wi)] += double(x[xi]) * dy[yi];
    });
    EXPECT_LE(relativeError(y, exactY), allowed) << what;
    EXPECT_LE(relativeError(dx, exactX), allowed) << what;
    EXPECT_LE(relativeError(dw, exactW), 1.5e-6) << what; // sums over 1,024 and 2,048 positions
  }
}

std::string messageOf(const Conv2d::Options& options) {
  try {
    pdcrt::Setup setup;
    const Conv2d conv(setup, options);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

TEST(ConvolutionOptions, ShapesThatDoNotFitAreRefusedWithBoth) {
  EXPECT_EQ(
      messageOf({.input = {1, 3, 8, 8}, .filter = {4, 2, 3, 3}}),
      "convolution of 1x3x8x8 with filter 4x2x3x3: the input has 3 channels, the filter takes 2 in each of 1 groups");
  EXPECT_EQ(messageOf({.input = {1, 3, 2, 8}, .filter = {4, 3, 3, 3}}),
            "convolution of 1x3x2x8 with filter 4x3x3x3: the filter is larger than the padded input");
  EXPECT_EQ(messageOf({.input = {1, 4, 8, 8}, .filter = {3, 2, 3, 3}, .groups = 2}),
            "convolution of 1x4x8x8 with filter 3x2x3x3: 3 output channels in 2 groups");
}

// oneDNN asks OpenMP for the number of threads, which is a property of the calling thread.
TEST(ConvolutionThreads, AnotherThreadNeedsNoMoreWorkspaceAndGetsTheSameBits) {
  const Conv2d::Options o = {.input = {4, 64, 16, 16}, .filter = {64, 64, 3, 3}, .pads = {1, 1, 1, 1}};
  const Buffer<float> x = randomBuffer(o.input.elements(), 6), dy = randomBuffer(Conv2d::outputShape(o).elements(), 7),
                      here(o.filter.elements()), there(o.filter.elements());
  pdcrt::Setup setup, setupThere;
  const Conv2d conv(setup, o);
  expectGoodManners(
      setup, {here}, [&](Stream& q) { conv.weightGradient(q, x, dy, here, {}); }, argumentMap);
  std::thread([&] {
    expectGoodManners(
        setup, {there}, [&](Stream& q) { conv.weightGradient(q, x, dy, there, {}); }, argumentMap);
  }).join();
  std::thread([&] { const Conv2d constructed(setupThere, o); }).join();
  EXPECT_TRUE(std::ranges::equal(here.values(), there.values()));
  EXPECT_EQ(setup.workspaceBytes(), setupThere.workspaceBytes());
}

// A program's first convolution calls no input gradient, whose copy of a padded input would be the largest.
TEST(ConvolutionWorkspace, IsDeclaredForEachMethodAndCheckedForThoseThatAreCalled) {
  const Conv2d::Options o = {.input = {2, 3, 16, 16}, .filter = {16, 3, 3, 3}, .pads = {1, 1, 1, 1}};
  pdcrt::Setup setup;
  const Conv2d conv(setup, o);
  const std::size_t forward = setup.workspaceBytes("forward"), input = setup.workspaceBytes("inputGradient"),
                    added = setup.workspaceBytes("addedInputGradient"), weight = setup.workspaceBytes("weightGradient");
  EXPECT_EQ(setup.workspaceBytes(), std::max({forward, input, added, weight}));
  pdcrt::Setup planned;
  EXPECT_NO_THROW(Conv2d(planned.within({{"forward", forward}, {"weightGradient", weight}}), o));
  EXPECT_NO_THROW(Conv2d(planned.within({{"inputGradient", input}}), o));
  if (input > 0) { // three channels are no block
    EXPECT_THROW(Conv2d(planned.within({{"forward", forward}, {"inputGradient", input - 1}}), o), WorkspaceTooSmall);
    EXPECT_THROW(Conv2d(planned.within(setup.workspaceBytes() - 1), o), WorkspaceTooSmall);
  }
  EXPECT_NO_THROW(Conv2d(planned.within(setup.workspaceBytes()), o));
}

TEST(SetupOfKernels, WhatAnyMethodNeedsIsCheckedAgainstAllThatAreCalled) {
  pdcrt::Setup setup;
  setup.within({{"forward", 64}, {"gradient", 128}});
  EXPECT_NO_THROW(setup.needWorkspace(64));
  EXPECT_THROW(setup.needWorkspace(65), WorkspaceTooSmall);
  {
    const pdcrt::Setup::Method called(setup, "gradient");
    EXPECT_NO_THROW(setup.needWorkspace(128));
    EXPECT_THROW(setup.needWorkspace(129), WorkspaceTooSmall);
  }
  EXPECT_EQ(setup.workspaceBytes("forward"), 64U);
  EXPECT_EQ(setup.workspaceBytes("gradient"), 128U);
}

TEST(ConvolutionOptions, WinogradIsRefusedWhereItCannotCompute) {
  constexpr Conv2d::Algorithm direct = Conv2d::Algorithm::direct, winograd = Conv2d::Algorithm::winograd;
  for (Conv2d::Options o : {Conv2d::Options{.input = {1, 64, 8, 8}, .filter = {64, 64, 5, 5}},
                            Conv2d::Options{.input = {1, 64, 8, 8}, .filter = {64, 64, 3, 3}, .strides = {2, 2}},
                            Conv2d::Options{.input = {1, 64, 8, 8}, .filter = {64, 64, 3, 3}, .dilations = {2, 2}},
                            Conv2d::Options{.input = {1, 64, 8, 8}, .filter = {64, 32, 3, 3}, .groups = 2}})
    for (const Conv2d::Algorithms algorithms :
         {Conv2d::Algorithms{winograd, direct, direct}, {direct, winograd, direct}, {direct, direct, winograd}}) {
      o.algorithms = {direct, direct, direct};
      EXPECT_EQ(messageOf(o), "");
      o.algorithms = algorithms;
      EXPECT_NE(
          messageOf(o).find("Winograd's algorithm is for filters of 3x3 with strides and dilations of 1, in one group"),
          std::string::npos)
          << messageOf(o);
    }
}

struct Results {
  Buffer<float> y, dx, dw;
};

/// With the same operands, whatever the options.
Results resultsOf(const Conv2d::Options& o) {
  const Shape shape = Conv2d::outputShape(o);
  const Buffer<float> x = randomBuffer(o.input.elements(), 6), w = randomBuffer(o.filter.elements(), 2),
                      dy = randomBuffer(shape.elements(), 7);
  Results results = {Buffer<float>(shape.elements()), Buffer<float>(x.count()), Buffer<float>(w.count())};
  pdcrt::Setup setup;
  const Conv2d conv(setup, o);
  expectGoodManners(
      setup, {results.y, results.dx, results.dw},
      [&](Stream& q) {
        conv.forward(q, x, w, {}, results.y);
        conv.inputGradient(q, dy, w, results.dx);
        conv.weightGradient(q, x, dy, results.dw, {});
      },
      argumentMap * 3);
  return results;
}

bool same(const Buffer<float>& a, const Buffer<float>& b) {
  return std::ranges::equal(a.values(), b.values());
}

TEST(ConvolutionOptions, WinogradIsTakenInTheDirectionsThatAskForIt) {
  if (!__builtin_cpu_supports("avx512f")) GTEST_SKIP() << "the library has Winograd's algorithm for AVX-512 only";
  constexpr Conv2d::Algorithm direct = Conv2d::Algorithm::direct, winograd = Conv2d::Algorithm::winograd;
  Conv2d::Options o = {.input = {2, 32, 9, 8}, .filter = {48, 32, 3, 3}, .pads = {1, 1, 1, 1}};
  o.algorithms = {direct, direct, direct};
  const Results plain = resultsOf(o);
  for (const Conv2d::Algorithms algorithms :
       {Conv2d::Algorithms{winograd, direct, direct}, {direct, winograd, direct}, {direct, direct, winograd}}) {
    o.algorithms = algorithms;
    const Results results = resultsOf(o);
    EXPECT_EQ(same(results.y, plain.y), algorithms.forward == direct);
    EXPECT_EQ(same(results.dx, plain.dx), algorithms.inputGradient == direct);
    EXPECT_EQ(same(results.dw, plain.dw), algorithms.weightGradient == direct);
  }
}

/// The first has few tiles of 4x4 outputs (16), the second few channels, the third is small, the last has enough of
/// all.
TEST(ConvolutionOptions, WinogradIsTakenByItselfForManyTilesAndChannels) {
  if (!__builtin_cpu_supports("avx512f")) GTEST_SKIP() << "the library has Winograd's algorithm for AVX-512 only";
  constexpr Conv2d::Algorithm direct = Conv2d::Algorithm::direct, winograd = Conv2d::Algorithm::winograd;
  for (const auto& [batch, channels, size, expected] : {std::tuple{1, 352, 20, direct},
                                                        {8, 512, 7, direct},
                                                        {8, 48, 28, direct},
                                                        {8, 64, 8, direct},
                                                        {2, 256, 16, winograd}}) {
    Conv2d::Options o = {
        .input = {batch, channels, size, size}, .filter = {channels, channels, 3, 3}, .pads = {1, 1, 1, 1}};
    const Results automatic = resultsOf(o);
    o.algorithms = {expected, expected, expected};
    const Results asked = resultsOf(o);
    EXPECT_TRUE(same(automatic.y, asked.y) && same(automatic.dx, asked.dx) && same(automatic.dw, asked.dw))
        << batch << " of " << channels;
  }
}

TEST(ConvolutionOptions, TheLibrarysScratchIsPartOfTheWorkspace) {
  if (!__builtin_cpu_supports("avx512f")) GTEST_SKIP() << "the library has Winograd's algorithm for AVX-512 only";
  pdcrt::Setup setup;
  const Conv2d winograd(setup, {.input = {21, 64, 13, 11}, .filter = {65, 64, 3, 3}});
  const std::size_t tensors = 4 * (21 * 64 * 13 * 11 + 65 * 64 * 9 + 21 * 65 * 11 * 9);
  EXPECT_GT(setup.workspaceBytes(), 2 * tensors); // not just the copies to other layouts
}

TEST(ConvolutionOptions, WeightGradientLeavesOutAnUnwantedBias) {
  const Conv2d::Options o = {.input = {2, 3, 5, 5}, .filter = {4, 3, 3, 3}, .bias = true};
  const Buffer<float> x = randomBuffer(o.input.elements(), 6), dy = randomBuffer(Conv2d::outputShape(o).elements(), 7),
                      with(o.filter.elements()), without(o.filter.elements()), db(4);
  pdcrt::Setup setup;
  const Conv2d conv(setup, o);
  expectGoodManners(
      setup, {with, db}, [&](Stream& q) { conv.weightGradient(q, x, dy, with, db); }, argumentMap);
  expectGoodManners(
      setup, {without}, [&](Stream& q) { conv.weightGradient(q, x, dy, without, {}); }, argumentMap);
  EXPECT_TRUE(std::ranges::equal(with.values(), without.values()));
}

} // namespace
