// LINK: pdcrt_kernels
// The functions of fused kernels against the C library in double precision.
#include "pdcrt/Math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <vector>

using namespace pdcrt;

namespace {

constexpr float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();

/// The largest error of `function` over floats between `low` and `high`, in units in the last place of the exact value.
double worstError(float low, float high, float (*function)(float), double (*exact)(double)) {
  double worst = 0;
  const int steps = 200000;
  for (int i = 0; i <= steps; ++i) {
    const float x = low + (high - low) * static_cast<float>(i) / steps;
    const double expected = exact(x);
    const float nearest = static_cast<float>(expected);
    const double unit = std::abs(double(std::nextafter(nearest, infinity)) - nearest);
    worst = std::max(worst, std::abs(function(x) - expected) / unit);
  }
  return worst;
}

TEST(Exp, IsAccurateOverTheWholeRange) {
  EXPECT_LE(worstError(-87, 88.7f, pdcrt::exp, std::exp), 2);
  EXPECT_LE(worstError(-103, -87, pdcrt::exp, std::exp), 2); // denormal
  EXPECT_LE(worstError(-1, 1, pdcrt::exp, std::exp), 2);
}

TEST(Exp, HasTheRightLimits) {
  EXPECT_EQ(pdcrt::exp(0.0f), 1);
  EXPECT_EQ(pdcrt::exp(infinity), infinity);
  EXPECT_EQ(pdcrt::exp(100.0f), infinity);
  EXPECT_EQ(pdcrt::exp(-infinity), 0);
  EXPECT_EQ(pdcrt::exp(-1000.0f), 0);
  EXPECT_TRUE(std::isnan(pdcrt::exp(nan)));
}

TEST(Tanh, IsAccurate) {
  EXPECT_LE(worstError(-10, 10, pdcrt::tanh, std::tanh), 3);
  EXPECT_LE(worstError(-1e-3f, 1e-3f, pdcrt::tanh, std::tanh), 3);
  EXPECT_EQ(pdcrt::tanh(infinity), 1);
  EXPECT_EQ(pdcrt::tanh(-infinity), -1);
  EXPECT_TRUE(std::isnan(pdcrt::tanh(nan)));
  EXPECT_TRUE(std::signbit(pdcrt::tanh(-0.0f)));
}

TEST(Erf, IsAccurate) {
  EXPECT_LE(worstError(
                -4.5f, 4.5f, [](float x) { return pdcrt::erf(x); }, [](double x) { return std::erf(x); }),
            2);
  EXPECT_LE(worstError(
                -1e-3f, 1e-3f, [](float x) { return pdcrt::erf(x); }, [](double x) { return std::erf(x); }),
            2);
  EXPECT_EQ(pdcrt::erf(infinity), 1);
  EXPECT_EQ(pdcrt::erf(-infinity), -1);
  EXPECT_TRUE(std::isnan(pdcrt::erf(nan)));
  EXPECT_TRUE(std::signbit(pdcrt::erf(-0.0f)));
  EXPECT_EQ(pdcrt::erf(0.5), std::erf(0.5));
}

TEST(Sigmoid, IsAccurateAndSaturates) {
  EXPECT_LE(worstError(-80, 20, pdcrt::sigmoid<float>, [](double x) { return 1 / (1 + std::exp(-x)); }), 4);
  EXPECT_EQ(pdcrt::sigmoid(-infinity), 0);
  EXPECT_EQ(pdcrt::sigmoid(infinity), 1);
  EXPECT_EQ(pdcrt::sigmoid(0.0), 0.5);
  EXPECT_EQ(pdcrt::sigmoid(-89.0f), 0);
  EXPECT_TRUE(std::isnan(pdcrt::sigmoid(nan)));
}

TEST(Softplus, DoesNotOverflow) {
  EXPECT_LE(worstError(-80, 80, pdcrt::softplus<float>,
                       [](double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }),
            4);
  EXPECT_EQ(pdcrt::softplus(1000.0f), 1000);
  EXPECT_EQ(pdcrt::softplus(-1000.0f), 0);
}

TEST(Gelu, DerivativeIsThatOfTheFunction) {
  for (double x = -6; x <= 6; x += 0.37) {
    const double step = 1e-5;
    EXPECT_NEAR(geluDerivative(x), (gelu(x + step) - gelu(x - step)) / (2 * step), 1e-9);
  }
  EXPECT_NEAR(gelu(1.0), 0.8413447460685429, 1e-15); // the normal distribution function at 1
}

TEST(Extremes, PropagateNaN) {
  EXPECT_EQ(minimum(1.0f, 2.0f), 1);
  EXPECT_EQ(minimum(2.0f, 1.0f), 1);
  EXPECT_EQ(maximum(1.0f, 2.0f), 2);
  EXPECT_EQ(maximum(2.0f, 1.0f), 2);
  for (float other : {-infinity, 0.0f, infinity}) {
    EXPECT_TRUE(std::isnan(minimum(nan, other)) && std::isnan(minimum(other, nan)));
    EXPECT_TRUE(std::isnan(maximum(nan, other)) && std::isnan(maximum(other, nan)));
  }
  EXPECT_TRUE(std::isnan(relu(nan)) && std::isnan(sign(nan)));
}

TEST(Steps, AreWhatTheyAreCalled) {
  EXPECT_EQ(relu(-2.0f), 0);
  EXPECT_EQ(relu(2.0f), 2);
  EXPECT_EQ(sign(-3.0), -1);
  EXPECT_EQ(sign(0.0), 0);
  EXPECT_EQ(sign(0.1), 1);
  EXPECT_EQ(select(true, 1, 2), 1);
  EXPECT_EQ(select(false, 1, 2), 2);
}

// A loop that became vector code gives the bits of one call.
TEST(Vectorised, GivesTheSameBits) {
  std::vector<float> x, y;
  for (float value = -110; value < 95; value += 0.0137f) x.push_back(value);
  x.push_back(nan);
  y.resize(x.size());
  for (std::size_t i = 0; i < x.size(); ++i)
    y[i] = pdcrt::tanh(pdcrt::exp(x[i]) * 1e-3f) + pdcrt::sigmoid(x[i]) + pdcrt::geluDerivative(x[i] * 0.1f);
  for (std::size_t i = 0; i < x.size(); ++i) {
    volatile float single = x[i];
    const float value =
        pdcrt::tanh(pdcrt::exp(single) * 1e-3f) + pdcrt::sigmoid(single) + pdcrt::geluDerivative(single * 0.1f);
    EXPECT_EQ(std::memcmp(&value, &y[i], sizeof value), 0) << "at " << x[i];
  }
}

} // namespace
