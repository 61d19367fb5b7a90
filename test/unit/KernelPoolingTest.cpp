// LINK: pdcrt_kernels
// MaxPool2d and AveragePool2d against their definitions over an explicitly padded plane.
#include "KernelTest.h"
#include "pdcrt/kernels/AveragePool2d.h"
#include "pdcrt/kernels/MaxPool2d.h"

#include <limits>
#include <ostream>
#include <stdexcept>
#include <string>
#include <vector>

#if defined(PDCRT_CUDA_STAND_IN) || defined(PDC_TEST_ON_GPU)
#define TESTS_CUDA // where any number of channels can lie together
#endif

using namespace pdcrt;

namespace {

struct Case {
  std::string name;
  MaxPool2d::Options options;
  bool countIncludePad = false;
};

void PrintTo(const Case& value, std::ostream* stream) {
  *stream << value.name;
}

const Case cases[] = {
    {"Halving", {.input = {2, 3, 8, 6}, .output = {2, 3, 4, 3}, .kernel = {2, 2}, .strides = {2, 2}}},
    {"HalvingInPairs", {.input = {2, 3, 6, 8}, .output = {2, 3, 3, 4}, .kernel = {2, 2}, .strides = {2, 2}}},
    {"HalvingOddRows", {.input = {2, 3, 7, 8}, .output = {2, 3, 3, 4}, .kernel = {2, 2}, .strides = {2, 2}}},
    {"HalvingOddColumns", {.input = {2, 3, 6, 9}, .output = {2, 3, 3, 4}, .kernel = {2, 2}, .strides = {2, 2}}},
    {"Apart", {.input = {1, 2, 8, 12}, .output = {1, 2, 2, 2}, .kernel = {2, 3}, .strides = {5, 7}}},
    {"Overlapping", {.input = {2, 2, 5, 8}, .output = {2, 2, 5, 8}, .kernel = {3, 5}, .pads = {1, 2, 1, 2}}},
    {"ResNetStem",
     {.input = {1, 4, 12, 12}, .output = {1, 4, 6, 6}, .kernel = {3, 3}, .strides = {2, 2}, .pads = {1, 1, 1, 1}}},
    {"AsymmetricPads",
     {.input = {1, 2, 5, 7}, .output = {1, 2, 5, 4}, .kernel = {2, 3}, .strides = {1, 2}, .pads = {1, 0, 0, 2}},
     true},
    {"RoundedUp", {.input = {2, 1, 6, 6}, .output = {2, 1, 3, 3}, .kernel = {3, 3}, .strides = {2, 2}}, true},
    {"RoundedUpWithPads",
     {.input = {2, 1, 7, 7}, .output = {2, 1, 4, 4}, .kernel = {3, 3}, .strides = {2, 2}, .pads = {1, 1, 0, 0}},
     true},
    {"PadsDoNotCount", {.input = {2, 2, 5, 5}, .output = {2, 2, 5, 5}, .kernel = {3, 3}, .pads = {1, 1, 1, 1}}},
    {"PadsCount", {.input = {2, 2, 5, 5}, .output = {2, 2, 5, 5}, .kernel = {3, 3}, .pads = {1, 1, 1, 1}}, true},
    {"Global", {.input = {3, 5, 7, 4}, .output = {3, 5, 1, 1}, .kernel = {7, 4}}},
};

const Case dilatedCase = {
    "Dilated",
    {.input = {1, 2, 9, 8}, .output = {1, 2, 7, 4}, .kernel = {2, 3}, .pads = {1, 2, 0, 0}, .dilations = {3, 3}}};

/// One tap of a window: an element of the input, or of the padding (input < 0).
struct Tap {
  std::int64_t input, output;
  bool beyondPadding; ///< in what rounding up the output size added
};

/// The cases with other channels, `lanes` of which lie together.
std::vector<Case> withLanes(std::int64_t channels, std::int64_t lanes) {
  std::vector<Case> result(std::begin(cases), std::end(cases));
  for (Case& value : result) {
    value.name += std::to_string(channels) + "By" + std::to_string(lanes);
    value.options.input.dims[1] = value.options.output.dims[1] = channels;
    value.options.lanes = lanes;
  }
  return result;
}

/// Where a position of a plane of `size` is.
std::int64_t elementOf(const MaxPool2d::Options& o, std::int64_t plane, std::int64_t size, std::int64_t position) {
  const std::int64_t lane = plane % o.input.dims[1] % o.lanes;
  return ((plane - lane) / o.lanes * size + position) * o.lanes + lane;
}

template <class Visit>
void forEachTap(const MaxPool2d::Options& o, Visit visit) {
  const std::int64_t height = o.input.dims[2], width = o.input.dims[3];
  const std::int64_t outputs = o.output.dims[2] * o.output.dims[3];
  for (std::int64_t plane = 0; plane < o.input.dims[0] * o.input.dims[1]; ++plane)
    for (std::int64_t i = 0; i < o.output.dims[2]; ++i)
      for (std::int64_t j = 0; j < o.output.dims[3]; ++j)
        for (std::int64_t r = 0; r < o.kernel.height; ++r)
          for (std::int64_t s = 0; s < o.kernel.width; ++s) {
            const std::int64_t row = i * o.strides.height + r * o.dilations.height - o.pads.top;
            const std::int64_t column = j * o.strides.width + s * o.dilations.width - o.pads.left;
            const bool inside = row >= 0 && row < height && column >= 0 && column < width;
            visit(Tap{inside ? elementOf(o, plane, height * width, row * width + column) : -1,
                      elementOf(o, plane, outputs, i * o.output.dims[3] + j),
                      row >= height + o.pads.bottom || column >= width + o.pads.right});
          }
}

class MaxPooling : public testing::TestWithParam<Case> {};

void checkMaximum(const MaxPool2d::Options& o, const Buffer<float>& x) {
  const Buffer<float> dy = randomBuffer(o.output.elements(), 2), y(o.output.elements()), dx(o.input.elements());
  const Buffer<std::int32_t> index(o.output.elements());
  std::vector<std::int64_t> winner(y.values().size(), -1);
  forEachTap(o, [&](const Tap& tap) {
    std::int64_t& best = winner[static_cast<std::size_t>(tap.output)];
    const float least = best >= 0 ? x[best] : o.relu ? 0 : -std::numeric_limits<float>::infinity();
    if (tap.input >= 0 && x[tap.input] > least) best = tap.input;
  });
  std::vector<double> expected, expectedGradient(dx.values().size());
  for (std::size_t i = 0; i < winner.size(); ++i) {
    expected.push_back(winner[i] < 0 ? 0 : x[winner[i]]);
    if (winner[i] >= 0) expectedGradient[static_cast<std::size_t>(winner[i])] += dy.values()[i];
  }

  pdcrt::Setup setup;
  const MaxPool2d pool(setup, o);
  expectGoodManners(setup, {y}, [&](Stream& q) { pool.forward(q, x, y, {}); });
  EXPECT_EQ(relativeError(y, expected), 0) << "y without index";
  expectGoodManners(setup, {y, index}, [&](Stream& q) { pool.forward(q, x, y, index); });
  EXPECT_EQ(relativeError(y, expected), 0) << "y";
  const std::int64_t positions = o.input.dims[2] * o.input.dims[3];
  for (std::size_t i = 0; i < winner.size(); ++i)
    EXPECT_EQ(index.values()[i], winner[i] < 0 ? -1 : winner[i] / o.lanes % positions) << "index " << i;
  expectGoodManners(setup, {dx}, [&](Stream& q) { pool.inputGradient(q, dy, index, dx); });
  expectClose(dx, expectedGradient, "dx");
}

TEST_P(MaxPooling, TakesTheMaximumAndSendsItsGradientThere) {
  checkMaximum(GetParam().options, randomBuffer(GetParam().options.input.elements(), 1));
}

/// Of windows where nothing is above 0 there are some.
TEST_P(MaxPooling, WithReluSendsNoGradientWhereNothingIsAboveZero) {
  MaxPool2d::Options o = GetParam().options;
  o.relu = true;
  const Buffer<float> x = randomBuffer(o.input.elements(), 1);
  for (float& value : x.values()) value = value < 0.75f ? -std::abs(value) : value;
  checkMaximum(o, x);
}

INSTANTIATE_TEST_SUITE_P(Shapes, MaxPooling, testing::ValuesIn(cases), [](const auto& p) { return p.param.name; });
INSTANTIATE_TEST_SUITE_P(Together, MaxPooling, testing::ValuesIn(withLanes(16, 16)),
                         [](const auto& p) { return p.param.name; });
INSTANTIATE_TEST_SUITE_P(Grouped, MaxPooling, testing::ValuesIn(withLanes(48, 16)),
                         [](const auto& p) { return p.param.name; });
#ifdef TESTS_CUDA
INSTANTIATE_TEST_SUITE_P(ManyTogether, MaxPooling, testing::ValuesIn(withLanes(80, 80)),
                         [](const auto& p) { return p.param.name; });
INSTANTIATE_TEST_SUITE_P(OddTogether, MaxPooling, testing::ValuesIn(withLanes(7, 7)),
                         [](const auto& p) { return p.param.name; });
INSTANTIATE_TEST_SUITE_P(OddGroups, MaxPooling, testing::ValuesIn(withLanes(6, 3)),
                         [](const auto& p) { return p.param.name; });
#endif
INSTANTIATE_TEST_SUITE_P(Dilated, MaxPooling, testing::Values(dilatedCase), [](const auto& p) { return p.param.name; });

TEST_P(MaxPooling, ViewsOffTheAlignmentOfAllocationsChangeNoBit) {
  const MaxPool2d::Options& o = GetParam().options;
  const std::int64_t inputs = o.input.elements(), outputs = o.output.elements();
  const Buffer<float> x = randomBuffer(inputs + 1, 1), dy = randomBuffer(outputs + 1, 2), moved(inputs),
                      movedDy(outputs), y(outputs), dx(inputs), otherY(outputs + 1), otherDx(inputs + 1);
  const Buffer<std::int32_t> index(outputs), otherIndex(outputs + 1);
  std::ranges::copy(x.values().subspan(1), moved.values().begin());
  std::ranges::copy(dy.values().subspan(1), movedDy.values().begin());
  pdcrt::Setup setup;
  Stream q;
  const MaxPool2d pool(setup, o);
  pool.forward(q, moved, y, index);
  pool.inputGradient(q, movedDy, index, dx);
  pool.forward(q, &x[1], &otherY[1], &otherIndex[1]);
  pool.inputGradient(q, &dy[1], &otherIndex[1], &otherDx[1]);
  EXPECT_TRUE(std::ranges::equal(otherY.values().subspan(1), y.values()));
  EXPECT_TRUE(std::ranges::equal(otherIndex.values().subspan(1), index.values()));
  EXPECT_TRUE(std::ranges::equal(otherDx.values().subspan(1), dx.values()));
}

TEST(MaxPoolingOrder, TheFirstOfEqualValuesWins) {
  const Buffer<float> x = {1, 3, 3, 3}, y(1);
  const Buffer<std::int32_t> index(1);
  pdcrt::Setup setup;
  Stream q;
  const MaxPool2d pool(setup, {.input = {1, 1, 2, 2}, .output = {1, 1, 1, 1}, .kernel = {2, 2}});
  pool.forward(q, x, y, index);
  EXPECT_EQ(index[0], 1);
}

TEST(MaxPoolingOrder, NaNWinsOverEverything) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  const Buffer<float> x = {1, nan, infinity, nan}, y(1);
  const Buffer<std::int32_t> index(1);
  pdcrt::Setup setup;
  Stream q;
  const MaxPool2d pool(setup, {.input = {1, 1, 2, 2}, .output = {1, 1, 1, 1}, .kernel = {2, 2}});
  pool.forward(q, x, y, index);
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_EQ(index[0], 1);
}

/// As above, of windows side by side.
TEST(MaxPoolingOrder, HoldsInNeighbouringWindows) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  const Buffer<float> x = {1, nan, 3, 3, infinity, nan, 3, 3, -infinity, -infinity, 2, 1, -infinity, -infinity, 4, 4},
                      y(4);
  const Buffer<std::int32_t> index(4);
  pdcrt::Setup setup;
  Stream q;
  const MaxPool2d pool(setup, {.input = {1, 1, 4, 4}, .output = {1, 1, 2, 2}, .kernel = {2, 2}, .strides = {2, 2}});
  pool.forward(q, x, y, index);
  EXPECT_TRUE(std::ranges::equal(index.values(), std::vector<std::int32_t>{1, 2, 8, 14}));
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_TRUE(std::ranges::equal(y.values().subspan(1), std::vector<float>{3, -infinity, 4}));
}

TEST(MaxPoolingOrder, OfMinusInfinitiesTheFirstInsideWins) {
  const Buffer<float> x(9), y(9);
  const Buffer<std::int32_t> index(9);
  std::ranges::fill(x.values(), -std::numeric_limits<float>::infinity());
  pdcrt::Setup setup;
  Stream q;
  const MaxPool2d pool(setup, {.input = {1, 1, 3, 3}, .output = {1, 1, 3, 3}, .kernel = {3, 3}, .pads = {1, 1, 1, 1}});
  pool.forward(q, x, y, index);
  EXPECT_TRUE(std::ranges::equal(index.values(), std::vector<std::int32_t>{0, 0, 1, 0, 0, 1, 3, 3, 4}));
  EXPECT_TRUE(std::ranges::equal(y.values(), x.values()));
}

class AveragePooling : public testing::TestWithParam<Case> {};

TEST_P(AveragePooling, IsTheMeanOfWhatCounts) {
  const MaxPool2d::Options& window = GetParam().options;
  const bool countIncludePad = GetParam().countIncludePad;
  const Buffer<float> x = randomBuffer(window.input.elements(), 1), dy = randomBuffer(window.output.elements(), 2),
                      y(window.output.elements()), dx(window.input.elements());
  std::vector<double> expected(y.values().size()), taps(expected.size()), expectedGradient(dx.values().size());
  forEachTap(window, [&](const Tap& tap) {
    const auto output = static_cast<std::size_t>(tap.output);
    if (tap.input >= 0) expected[output] += x[tap.input];
    taps[output] += countIncludePad ? !tap.beyondPadding : tap.input >= 0;
  });
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] /= taps[i];
  forEachTap(window, [&](const Tap& tap) {
    if (tap.input >= 0)
      expectedGradient[static_cast<std::size_t>(tap.input)] +=
          dy[tap.output] / taps[static_cast<std::size_t>(tap.output)];
  });

  pdcrt::Setup setup;
  const AveragePool2d pool(setup, {.input = window.input,
                                   .output = window.output,
                                   .kernel = window.kernel,
                                   .strides = window.strides,
                                   .pads = window.pads,
                                   .countIncludePad = countIncludePad,
                                   .lanes = window.lanes});
  expectGoodManners(setup, {y}, [&](Stream& q) { pool.forward(q, x, y); });
  expectClose(y, expected, "y");
  expectGoodManners(setup, {dx}, [&](Stream& q) { pool.inputGradient(q, dy, dx); });
  expectClose(dx, expectedGradient, "dx");
}

INSTANTIATE_TEST_SUITE_P(Shapes, AveragePooling, testing::ValuesIn(cases), [](const auto& p) { return p.param.name; });
#ifdef TESTS_CUDA
INSTANTIATE_TEST_SUITE_P(Together, AveragePooling, testing::ValuesIn(withLanes(16, 16)),
                         [](const auto& p) { return p.param.name; });
INSTANTIATE_TEST_SUITE_P(ManyTogether, AveragePooling, testing::ValuesIn(withLanes(80, 80)),
                         [](const auto& p) { return p.param.name; });
INSTANTIATE_TEST_SUITE_P(OddTogether, AveragePooling, testing::ValuesIn(withLanes(7, 7)),
                         [](const auto& p) { return p.param.name; });
INSTANTIATE_TEST_SUITE_P(Grouped, AveragePooling, testing::ValuesIn(withLanes(48, 16)),
                         [](const auto& p) { return p.param.name; });
INSTANTIATE_TEST_SUITE_P(OddGroups, AveragePooling, testing::ValuesIn(withLanes(6, 3)),
                         [](const auto& p) { return p.param.name; });
#endif

TEST(PoolingOptions, AWindowInThePaddingIsRefused) {
  pdcrt::Setup setup;
  try {
    MaxPool2d(setup, {.input = {1, 1, 4, 4}, .output = {1, 1, 4, 2}, .kernel = {2, 2}, .strides = {2, 2}});
    FAIL() << "was accepted";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "pooling of 1x1x4x4 to 1x1x4x2: window 2 of axis 2 lies in the padding");
  }
  EXPECT_THROW(AveragePool2d(setup, {.input = {1, 1, 4, 4}, .output = {1, 1, 1, 1}, .pads = {1, 0, 0, 0}}),
               std::runtime_error);
}

} // namespace
