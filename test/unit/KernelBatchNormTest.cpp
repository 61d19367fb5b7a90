// LINK: pdcrt_kernels
// BatchNorm against its definition; gradients against their closed forms and, so that these are not believed blindly,
// against central differences of the definition.
#include "Derivatives.h"
#include "KernelTest.h"
#include "pdcrt/kernels/BatchNorm.h"

#include <ostream>
#include <stdexcept>

#if defined(PDCRT_CUDA_STAND_IN) || defined(PDC_TEST_ON_GPU)
#define TESTS_CUDA // where any number of channels can lie together
#endif

using namespace pdcrt;

namespace {

constexpr double epsilon = 1e-3, momentum = 0.8;

struct Sizes {
  std::int64_t samples, channels, inner, lanes = 1;
  Shape shape() const { return inner == 1 ? Shape{samples, channels} : Shape{samples, channels, inner}; }
  std::int64_t count() const { return samples * channels * inner; }
  std::size_t channelOf(std::size_t i) const {
    const auto together = static_cast<std::size_t>(lanes), groups = static_cast<std::size_t>(channels / lanes);
    return i / (static_cast<std::size_t>(inner) * together) % groups * together + i % together;
  }
};

void PrintTo(const Sizes& s, std::ostream* stream) {
  *stream << s.samples << "x" << s.channels << "x" << s.inner << " lanes " << s.lanes;
}

struct Statistics {
  Values mean, variance;
};

Statistics statisticsOf(const Sizes& s, const Values& x) {
  const auto channels = static_cast<std::size_t>(s.channels);
  const double count = static_cast<double>(s.samples * s.inner);
  Statistics result = {Values(channels), Values(channels)};
  for (std::size_t i = 0; i < x.size(); ++i) result.mean[s.channelOf(i)] += x[i] / count;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double difference = x[i] - result.mean[s.channelOf(i)];
    result.variance[s.channelOf(i)] += difference * difference / count;
  }
  return result;
}

Values normalise(const Sizes& s, const Values& x, const Values& scale, const Values& bias,
                 const Statistics& statistics) {
  Values y;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t c = s.channelOf(i);
    y.push_back((x[i] - statistics.mean[c]) / std::sqrt(statistics.variance[c] + epsilon) * scale[c] + bias[c]);
  }
  return y;
}

class BatchNormalisation : public testing::TestWithParam<Sizes> {
protected:
  const Sizes s = GetParam();
  const Buffer<float> x = randomBuffer(s.count(), 1), dy = randomBuffer(s.count(), 2),
                      scale = randomBuffer(s.channels, 3), bias = randomBuffer(s.channels, 4),
                      runningMean = randomBuffer(s.channels, 5), runningVariance = randomBuffer(s.channels, 6);
  const Buffer<float> y = room(s.count()), dx = room(s.count()), mean = room(s.channels), inverseStd = room(s.channels),
                      newMean = room(s.channels), newVariance = room(s.channels), dscale = room(s.channels),
                      dbias = room(s.channels);
  pdcrt::Setup setup;
  const BatchNorm norm{setup, {.input = s.shape(), .epsilon = epsilon, .momentum = momentum, .lanes = s.lanes}};

  void SetUp() override {
    for (float& value : x.values()) value = value * 0.5f + 3; // a mean far from 0, as after a ReLU
    for (float& value : runningVariance.values()) value = value * value + 0.1f;
  }
};

TEST_P(BatchNormalisation, TrainForwardNormalisesByTheMinibatch) {
  expectGoodManners(setup, {y, mean, inverseStd, newMean, newVariance}, [&](Stream& q) {
    norm.trainForward(q, x, scale, bias, runningMean, runningVariance, {}, y, mean, inverseStd, newMean, newVariance);
  });
  const Statistics batch = statisticsOf(s, toDouble(x));
  Values expectedInverse, expectedMean, expectedVariance;
  for (std::size_t c = 0; c < batch.mean.size(); ++c) {
    expectedInverse.push_back(1 / std::sqrt(batch.variance[c] + epsilon));
    expectedMean.push_back(runningMean.values()[c] * momentum + batch.mean[c] * (1 - momentum));
    expectedVariance.push_back(runningVariance.values()[c] * momentum + batch.variance[c] * (1 - momentum));
  }
  expectClose(y, normalise(s, toDouble(x), toDouble(scale), toDouble(bias), batch), "y");
  expectClose(mean, batch.mean, "mean");
  expectClose(inverseStd, expectedInverse, "inverseStd");
  expectClose(newMean, expectedMean, "newRunningMean");
  expectClose(newVariance, expectedVariance, "newRunningVariance");
}

TEST_P(BatchNormalisation, TheVarianceThatMovesTheRunningOneMayBeUnbiased) {
  const BatchNorm unbiased(
      setup, {.input = s.shape(), .epsilon = epsilon, .momentum = momentum, .unbiased = true, .lanes = s.lanes});
  expectGoodManners(setup, {y, mean, inverseStd, newMean, newVariance}, [&](Stream& q) {
    unbiased.trainForward(q, x, scale, bias, runningMean, runningVariance, {}, y, mean, inverseStd, newMean,
                          newVariance);
  });
  const Statistics batch = statisticsOf(s, toDouble(x));
  const double count = static_cast<double>(s.samples * s.inner), correction = count > 1 ? count / (count - 1) : 1;
  Values expectedVariance;
  for (std::size_t c = 0; c < batch.mean.size(); ++c)
    expectedVariance.push_back(runningVariance.values()[c] * momentum +
                               batch.variance[c] * correction * (1 - momentum));
  expectClose(newVariance, expectedVariance, "newRunningVariance");
  expectClose(y, normalise(s, toDouble(x), toDouble(scale), toDouble(bias), batch), "y");
}

TEST_P(BatchNormalisation, RunningStatisticsMayBeReplacedInPlaceOrLeftOut) {
  RoomyStream q;
  norm.trainForward(q, x, scale, bias, runningMean, runningVariance, {}, y, mean, inverseStd, newMean, newVariance);
  norm.trainForward(q, x, scale, bias, runningMean, runningVariance, {}, y, mean, inverseStd, {}, {});
  norm.trainForward(q, x, scale, bias, runningMean, runningVariance, {}, y, mean, inverseStd, runningMean,
                    runningVariance);
  EXPECT_TRUE(std::ranges::equal(runningMean.values(), newMean.values()));
  EXPECT_TRUE(std::ranges::equal(runningVariance.values(), newVariance.values()));
}

TEST_P(BatchNormalisation, GradientIsTheDerivative) {
  const Statistics batch = statisticsOf(s, toDouble(x));
  for (std::size_t c = 0; c < batch.mean.size(); ++c) {
    mean.values()[c] = static_cast<float>(batch.mean[c]);
    inverseStd.values()[c] = static_cast<float>(1 / std::sqrt(batch.variance[c] + epsilon));
  }
  expectGoodManners(setup, {dx, dscale, dbias}, [&](Stream& q) {
    norm.gradient(q, dy, x, scale, mean, inverseStd, {}, {}, dx, dscale, dbias, {});
  });
  const Values in = toDouble(x), dOut = toDouble(dy), scales = toDouble(scale), biases = toDouble(bias);
  expectClose(dx,
              centralDifferences(
                  in, [&](const Values& v) { return dot(dOut, normalise(s, v, scales, biases, statisticsOf(s, v))); }),
              "dx");
  expectClose(
      dscale,
      centralDifferences(scales, [&](const Values& v) { return dot(dOut, normalise(s, in, v, biases, batch)); }),
      "dscale");
  expectClose(
      dbias, centralDifferences(biases, [&](const Values& v) { return dot(dOut, normalise(s, in, scales, v, batch)); }),
      "dbias");

  // In place.
  RoomyStream q;
  norm.gradient(q, dy, x, scale, mean, inverseStd, {}, {}, dy, dscale, dbias, {});
  EXPECT_TRUE(std::ranges::equal(dy.values(), dx.values()));
}

TEST_P(BatchNormalisation, WithReluAndResidualHasTheBitsOfSeparateSteps) {
  const Buffer<float> r = randomBuffer(s.count(), 7), g = room(s.count()), fused = room(s.count()),
                      dxFused = room(s.count()), dr = room(s.count()), dscaleFused = room(s.channels),
                      dbiasFused = room(s.channels);
  const BatchNorm whole(setup,
                        {.input = s.shape(), .epsilon = epsilon, .momentum = momentum, .relu = true, .lanes = s.lanes});
  for (const View<const float> residual : {View<const float>(), View<const float>(r)})
    expectGoodManners(setup, {fused, dxFused, dscaleFused, dbiasFused, dr}, [&](Stream& q) {
      norm.trainForward(q, x, scale, bias, runningMean, runningVariance, {}, y, mean, inverseStd, {}, {});
      for (std::int64_t i = 0; i < s.count(); ++i) y[i] = std::max(residual ? y[i] + residual[i] : y[i], 0.0f);
      whole.trainForward(q, x, scale, bias, runningMean, runningVariance, residual, fused, mean, inverseStd, {}, {});
      EXPECT_TRUE(std::ranges::equal(fused.values(), y.values()));
      for (std::int64_t i = 0; i < s.count(); ++i) g[i] = dy[i] * (y[i] > 0 ? 1.0f : 0.0f);
      norm.gradient(q, g, x, scale, mean, inverseStd, {}, {}, dx, dscale, dbias, {});
      whole.gradient(q, dy, x, scale, mean, inverseStd, y, {}, dxFused, dscaleFused, dbiasFused, dr);
      EXPECT_TRUE(std::ranges::equal(dxFused.values(), dx.values()));
      EXPECT_TRUE(std::ranges::equal(dr.values(), g.values()));
      EXPECT_TRUE(std::ranges::equal(dscaleFused.values(), dscale.values()));
      EXPECT_TRUE(std::ranges::equal(dbiasFused.values(), dbias.values()));
    });

  // In place: the sum where the residual is, dresidual where dy is, dx where x is.
  RoomyStream q;
  whole.trainForward(q, x, scale, bias, runningMean, runningVariance, r, r, mean, inverseStd, {}, {});
  EXPECT_TRUE(std::ranges::equal(r.values(), fused.values()));
  whole.gradient(q, dy, x, scale, mean, inverseStd, r, {}, x, dscale, dbias, dy);
  EXPECT_TRUE(std::ranges::equal(x.values(), dx.values()));
  EXPECT_TRUE(std::ranges::equal(dy.values(), g.values()));
  EXPECT_TRUE(std::ranges::equal(dscaleFused.values(), dscale.values()));
  EXPECT_TRUE(std::ranges::equal(dbiasFused.values(), dbias.values()));
}

TEST_P(BatchNormalisation, ReluIsFoundAgainFromTheInput) {
  const Buffer<float> dxAgain = room(s.count()), g = room(s.count()), gAgain = room(s.count()),
                      dscaleAgain = room(s.channels), dbiasAgain = room(s.channels);
  const BatchNorm whole(setup,
                        {.input = s.shape(), .epsilon = epsilon, .momentum = momentum, .relu = true, .lanes = s.lanes});
  for (const bool residual : {false, true})
    expectGoodManners(setup, {y, mean, inverseStd, dxAgain, gAgain, dscaleAgain, dbiasAgain}, [&](Stream& q) {
      whole.trainForward(q, x, scale, bias, runningMean, runningVariance, {}, y, mean, inverseStd, {}, {});
      whole.gradient(q, dy, x, scale, mean, inverseStd, y, {}, dx, dscale, dbias, residual ? g.view() : View<float>());
      whole.gradient(q, dy, x, scale, mean, inverseStd, {}, bias, dxAgain, dscaleAgain, dbiasAgain, gAgain);
      EXPECT_TRUE(std::ranges::equal(dxAgain.values(), dx.values()));
      EXPECT_TRUE(!residual || std::ranges::equal(gAgain.values(), g.values()));
      EXPECT_TRUE(std::ranges::equal(dscaleAgain.values(), dscale.values()));
      EXPECT_TRUE(std::ranges::equal(dbiasAgain.values(), dbias.values()));
    });
}

TEST_P(BatchNormalisation, AgainHasTheBitsOfTheFirstTime) {
  const Buffer<float> r = randomBuffer(s.count(), 7), again = room(s.count());
  for (const bool relu : {false, true}) {
    const BatchNorm whole(
        setup, {.input = s.shape(), .epsilon = epsilon, .momentum = momentum, .relu = relu, .lanes = s.lanes});
    for (const View<const float> residual : {View<const float>(), View<const float>(r)})
      expectGoodManners(setup, {y, again}, [&](Stream& q) {
        whole.trainForward(q, x, scale, bias, runningMean, runningVariance, residual, y, mean, inverseStd, {}, {});
        whole.trainForwardAgain(q, x, scale, bias, mean, inverseStd, residual, again);
        EXPECT_TRUE(std::ranges::equal(again.values(), y.values()));
      });
  }
}

TEST_P(BatchNormalisation, ViewsOffTheAlignmentOfAllocationsChangeNothing) {
  const BatchNorm whole(setup,
                        {.input = s.shape(), .epsilon = epsilon, .momentum = momentum, .relu = true, .lanes = s.lanes});
  const Buffer<float> shiftedX = room(s.count() + 1), shiftedDy = room(s.count() + 1), shiftedY = room(s.count() + 1),
                      shiftedDx = room(s.count() + 1), otherMean = room(s.channels), otherInverse = room(s.channels),
                      otherScale = room(s.channels), otherBias = room(s.channels);
  std::ranges::copy(x.values(), &shiftedX[1]);
  std::ranges::copy(dy.values(), &shiftedDy[1]);
  RoomyStream q;
  whole.trainForward(q, x, scale, bias, runningMean, runningVariance, {}, y, mean, inverseStd, {}, {});
  whole.gradient(q, dy, x, scale, mean, inverseStd, y, {}, dx, dscale, dbias, {});
  whole.trainForward(q, &shiftedX[1], scale, bias, runningMean, runningVariance, {}, &shiftedY[1], otherMean,
                     otherInverse, {}, {});
  whole.gradient(q, &shiftedDy[1], &shiftedX[1], scale, mean, inverseStd, y, {}, &shiftedDx[1], otherScale, otherBias,
                 {});
  const auto afterFirst = [](const Buffer<float>& shifted) {
    Values values = toDouble(shifted);
    values.erase(values.begin());
    return values;
  };
  expectClose(mean, toDouble(otherMean), "mean");
  expectClose(inverseStd, toDouble(otherInverse), "inverseStd");
  expectClose(y, afterFirst(shiftedY), "y");
  expectClose(dx, afterFirst(shiftedDx), "dx");
  expectClose(dscale, toDouble(otherScale), "dscale");
  expectClose(dbias, toDouble(otherBias), "dbias");
}

TEST_P(BatchNormalisation, WithFrozenStatisticsIsAnAffineMap) {
  const Statistics frozen = {toDouble(runningMean), toDouble(runningVariance)};
  const Values in = toDouble(x), dOut = toDouble(dy), scales = toDouble(scale), biases = toDouble(bias);
  expectGoodManners(setup, {y}, [&](Stream& q) { norm.forward(q, x, scale, bias, runningMean, runningVariance, y); });
  expectClose(y, normalise(s, in, scales, biases, frozen), "y");
  expectGoodManners(setup, {dx, dscale, dbias}, [&](Stream& q) {
    norm.frozenGradient(q, dy, x, scale, runningMean, runningVariance, dx, dscale, dbias);
  });
  expectClose(
      dx, centralDifferences(in, [&](const Values& v) { return dot(dOut, normalise(s, v, scales, biases, frozen)); }),
      "dx");
  expectClose(
      dscale,
      centralDifferences(scales, [&](const Values& v) { return dot(dOut, normalise(s, in, v, biases, frozen)); }),
      "dscale");
  expectClose(
      dbias,
      centralDifferences(biases, [&](const Values& v) { return dot(dOut, normalise(s, in, scales, v, frozen)); }),
      "dbias");

  // In place.
  RoomyStream q;
  norm.frozenGradient(q, dy, x, scale, runningMean, runningVariance, dy, dscale, dbias);
  EXPECT_TRUE(std::ranges::equal(dy.values(), dx.values()));
  norm.forward(q, x, scale, bias, runningMean, runningVariance, x);
  EXPECT_TRUE(std::ranges::equal(x.values(), y.values()));
}

INSTANTIATE_TEST_SUITE_P(Shapes, BatchNormalisation,
                         testing::Values(Sizes{4, 3, 25}, Sizes{1, 2, 49}, Sizes{7, 5, 1}, Sizes{2, 17, 4},
                                         Sizes{3, 1, 64}));

#ifdef TESTS_CUDA
// All channels together, of one tile and several, whole accesses or none; some of them.
INSTANTIATE_TEST_SUITE_P(Lanes, BatchNormalisation,
                         testing::Values(Sizes{4, 16, 9, 16}, Sizes{2, 64, 5, 64}, Sizes{3, 80, 7, 80},
                                         Sizes{1, 2048, 2, 2048}, Sizes{7, 144, 1, 144}, Sizes{1, 32, 1, 32},
                                         Sizes{2, 48, 7, 16}, Sizes{2, 6, 11, 3}, Sizes{3, 18, 5, 18}));
#endif

/// Sums over thousands of elements lose nothing: what is returned is rounded once.
class BatchNormAccuracy : public testing::TestWithParam<Sizes> {};

TEST_P(BatchNormAccuracy, SumsAreTakenInDouble) {
  const Sizes s = GetParam();
  const Buffer<float> x = randomBuffer(s.count(), 1), dy = randomBuffer(s.count(), 2),
                      scale = randomBuffer(s.channels, 3), bias = randomBuffer(s.channels, 4), y = room(s.count()),
                      dx = room(s.count()), mean = room(s.channels), inverse = room(s.channels),
                      dscale = room(s.channels), dbias = room(s.channels);
  for (float& value : x.values()) value += 3;
  pdcrt::Setup setup;
  const BatchNorm norm(setup, {.input = s.shape(), .epsilon = epsilon, .momentum = momentum, .lanes = s.lanes});
  expectGoodManners(setup, {y, mean, inverse, dx, dscale, dbias}, [&](Stream& q) {
    norm.trainForward(q, x, scale, bias, {}, {}, {}, y, mean, inverse, {}, {});
    norm.gradient(q, dy, x, scale, mean, inverse, {}, {}, dx, dscale, dbias, {});
  });
  const Statistics exact = statisticsOf(s, toDouble(x));
  Values exactInverse, exactScale(exact.mean.size()), exactBias(exact.mean.size());
  for (double variance : exact.variance) exactInverse.push_back(1 / std::sqrt(variance + epsilon));
  for (std::size_t i = 0; i < x.values().size(); ++i) {
    const std::size_t c = s.channelOf(i);
    exactBias[c] += dy.values()[i];
    exactScale[c] += dy.values()[i] * (double(x.values()[i]) - mean.values()[c]) * inverse.values()[c];
  }
  constexpr double once = 6.0e-8; // 2⁻²⁴
  EXPECT_LE(relativeError(mean, exact.mean), once);
  EXPECT_LE(relativeError(inverse, exactInverse), once);
  EXPECT_LE(relativeError(dscale, exactScale), once);
  EXPECT_LE(relativeError(dbias, exactBias), once);
}

// Few channels, which many blocks share; many, of whole and of odd planes, with much for a thread to do.
INSTANTIATE_TEST_SUITE_P(Shapes, BatchNormAccuracy,
                         testing::Values(Sizes{8, 2, 1 << 14}, Sizes{1, 1024, 4300}, Sizes{3, 1024, 421}));

#ifdef TESTS_CUDA
INSTANTIATE_TEST_SUITE_P(Lanes, BatchNormAccuracy,
                         testing::Values(Sizes{8, 64, 1500, 64}, Sizes{5, 160, 333, 160}, Sizes{4, 2048, 49, 2048},
                                         Sizes{3, 64, 1001, 16}, Sizes{2, 6, 5003, 6}));
#endif

TEST(BatchNormOptions, AnInputWithoutChannelsIsRefused) {
  pdcrt::Setup setup;
  EXPECT_THROW(BatchNorm(setup, {.input = {7}}), std::runtime_error);
}
TEST(BatchNormOptions, LanesThatDoNotDivideTheChannelsAreRefused) {
  pdcrt::Setup setup;
  EXPECT_THROW(BatchNorm(setup, {.input = {2, 24, 3}, .lanes = 16}), std::runtime_error);
  EXPECT_THROW(BatchNorm(setup, {.input = {2, 24, 3}, .lanes = 0}), std::runtime_error);
}

} // namespace
