// LINK: pdcrt_kernels
// BatchNorm, Softmax and SoftmaxCrossEntropy against their definitions; gradients against their closed forms and, so
// that these are not believed blindly, against central differences of the definitions.
#include "KernelTest.h"
#include "pdcrt/kernels/BatchNorm.h"
#include "pdcrt/kernels/Softmax.h"
#include "pdcrt/kernels/SoftmaxCrossEntropy.h"

#include <limits>
#include <ostream>
#include <stdexcept>

using namespace pdcrt;

// Where GoogleTest looks for them: beside the types.
namespace pdcrt {

static void PrintTo(const Softmax::Options& o, std::ostream* stream) {
  *stream << o.rows << "x" << o.classes << (o.logarithm ? " logarithm" : "");
}

static void PrintTo(const SoftmaxCrossEntropy::Options& o, std::ostream* stream) {
  *stream << o.batch << "x" << o.classes << "x" << o.inner << (o.hasIgnoreIndex ? " with ignored labels" : "")
          << " smoothing " << o.labelSmoothing;
}

} // namespace pdcrt

namespace {

using Values = std::vector<double>;

Values toDouble(const Buffer<float>& buffer) {
  return {buffer.values().begin(), buffer.values().end()};
}

/// The derivative of a scalar function with respect to each element of `at`.
Values centralDifferences(Values at, const std::function<double(const Values&)>& function) {
  Values gradient;
  for (double& element : at) {
    const double value = element, step = 1e-5;
    element = value + step;
    const double above = function(at);
    element = value - step;
    gradient.push_back((above - function(at)) / (2 * step));
    element = value;
  }
  return gradient;
}

double dot(const Values& a, const Values& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// ---- BatchNorm ----

constexpr double epsilon = 1e-3, momentum = 0.8;

struct Sizes {
  std::int64_t samples, channels, inner;
  Shape shape() const { return inner == 1 ? Shape{samples, channels} : Shape{samples, channels, inner}; }
  std::int64_t count() const { return samples * channels * inner; }
  std::size_t channelOf(std::size_t i) const {
    return i / static_cast<std::size_t>(inner) % static_cast<std::size_t>(channels);
  }
};

void PrintTo(const Sizes& s, std::ostream* stream) {
  *stream << s.samples << "x" << s.channels << "x" << s.inner;
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
  const BatchNorm norm{setup, {.input = s.shape(), .epsilon = epsilon, .momentum = momentum}};

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
  expectGoodManners(setup, {dx, dscale, dbias},
                    [&](Stream& q) { norm.gradient(q, dy, x, scale, mean, inverseStd, {}, dx, dscale, dbias, {}); });
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
  norm.gradient(q, dy, x, scale, mean, inverseStd, {}, dy, dscale, dbias, {});
  EXPECT_TRUE(std::ranges::equal(dy.values(), dx.values()));
}

TEST_P(BatchNormalisation, WithReluAndResidualHasTheBitsOfSeparateSteps) {
  const Buffer<float> r = randomBuffer(s.count(), 7), g = room(s.count()), fused = room(s.count()),
                      dxFused = room(s.count()), dr = room(s.count()), dscaleFused = room(s.channels),
                      dbiasFused = room(s.channels);
  const BatchNorm whole(setup, {.input = s.shape(), .epsilon = epsilon, .momentum = momentum, .relu = true});
  for (const View<const float> residual : {View<const float>(), View<const float>(r)})
    expectGoodManners(setup, {fused, dxFused, dscaleFused, dbiasFused, dr}, [&](Stream& q) {
      norm.trainForward(q, x, scale, bias, runningMean, runningVariance, {}, y, mean, inverseStd, {}, {});
      for (std::int64_t i = 0; i < s.count(); ++i) y[i] = std::max(residual ? y[i] + residual[i] : y[i], 0.0f);
      whole.trainForward(q, x, scale, bias, runningMean, runningVariance, residual, fused, mean, inverseStd, {}, {});
      EXPECT_TRUE(std::ranges::equal(fused.values(), y.values()));
      for (std::int64_t i = 0; i < s.count(); ++i) g[i] = dy[i] * (y[i] > 0 ? 1.0f : 0.0f);
      norm.gradient(q, g, x, scale, mean, inverseStd, {}, dx, dscale, dbias, {});
      whole.gradient(q, dy, x, scale, mean, inverseStd, y, dxFused, dscaleFused, dbiasFused, dr);
      EXPECT_TRUE(std::ranges::equal(dxFused.values(), dx.values()));
      EXPECT_TRUE(std::ranges::equal(dr.values(), g.values()));
      EXPECT_TRUE(std::ranges::equal(dscaleFused.values(), dscale.values()));
      EXPECT_TRUE(std::ranges::equal(dbiasFused.values(), dbias.values()));
    });
}

TEST_P(BatchNormalisation, AgainHasTheBitsOfTheFirstTime) {
  const Buffer<float> r = randomBuffer(s.count(), 7), again = room(s.count());
  for (const bool relu : {false, true}) {
    const BatchNorm whole(setup, {.input = s.shape(), .epsilon = epsilon, .momentum = momentum, .relu = relu});
    for (const View<const float> residual : {View<const float>(), View<const float>(r)})
      expectGoodManners(setup, {y, again}, [&](Stream& q) {
        whole.trainForward(q, x, scale, bias, runningMean, runningVariance, residual, y, mean, inverseStd, {}, {});
        whole.trainForwardAgain(q, x, scale, bias, mean, inverseStd, residual, again);
        EXPECT_TRUE(std::ranges::equal(again.values(), y.values()));
      });
  }
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
}

INSTANTIATE_TEST_SUITE_P(Shapes, BatchNormalisation,
                         testing::Values(Sizes{4, 3, 25}, Sizes{1, 2, 49}, Sizes{7, 5, 1}, Sizes{2, 17, 4},
                                         Sizes{3, 1, 64}));

/// Sums over a hundred thousand elements lose nothing: what is returned is rounded once.
TEST(BatchNormAccuracy, SumsAreTakenInDouble) {
  const Sizes s = {8, 2, 1 << 14};
  const Buffer<float> x = randomBuffer(s.count(), 1), dy = randomBuffer(s.count(), 2), scale = randomBuffer(2, 3),
                      bias = randomBuffer(2, 4), y = room(s.count()), dx = room(s.count()), mean = room(2),
                      inverse = room(2), dscale = room(2), dbias = room(2);
  for (float& value : x.values()) value += 3;
  pdcrt::Setup setup;
  const BatchNorm norm(setup, {.input = s.shape(), .epsilon = epsilon, .momentum = momentum});
  expectGoodManners(setup, {y, mean, inverse, dx, dscale, dbias}, [&](Stream& q) {
    norm.trainForward(q, x, scale, bias, {}, {}, {}, y, mean, inverse, {}, {});
    norm.gradient(q, dy, x, scale, mean, inverse, {}, dx, dscale, dbias, {});
  });
  const Statistics exact = statisticsOf(s, toDouble(x));
  Values exactInverse, exactScale(2), exactBias(2);
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

TEST(BatchNormOptions, AnInputWithoutChannelsIsRefused) {
  pdcrt::Setup setup;
  EXPECT_THROW(BatchNorm(setup, {.input = {7}}), std::runtime_error);
}

// ---- Softmax ----

Values softmax(const Values& x, std::size_t classes, bool logarithm) {
  Values y;
  for (std::size_t begin = 0; begin < x.size(); begin += classes) {
    double sum = 0;
    for (std::size_t i = 0; i < classes; ++i) sum += std::exp(x[begin + i]);
    for (std::size_t i = 0; i < classes; ++i)
      y.push_back(logarithm ? x[begin + i] - std::log(sum) : std::exp(x[begin + i]) / sum);
  }
  return y;
}

class SoftmaxRows : public testing::TestWithParam<Softmax::Options> {};

TEST_P(SoftmaxRows, IsTheDefinitionAndItsDerivative) {
  const Softmax::Options o = GetParam();
  const auto classes = static_cast<std::size_t>(o.classes);
  const Buffer<float> x = randomBuffer(o.rows * o.classes, 1), dy = randomBuffer(o.rows * o.classes, 2),
                      y(o.rows * o.classes), dx(o.rows * o.classes);
  for (float& value : x.values()) value *= 5;
  pdcrt::Setup setup;
  const Softmax kernel(setup, o);
  expectGoodManners(setup, {y}, [&](Stream& q) { kernel.forward(q, x, y); });
  expectClose(y, softmax(toDouble(x), classes, o.logarithm), "y");
  expectGoodManners(setup, {dx}, [&](Stream& q) { kernel.inputGradient(q, dy, y, dx); });
  const Values dOut = toDouble(dy);
  expectClose(
      dx, centralDifferences(toDouble(x), [&](const Values& v) { return dot(dOut, softmax(v, classes, o.logarithm)); }),
      "dx");

  // In place.
  RoomyStream q;
  kernel.forward(q, x, x);
  kernel.inputGradient(q, dy, y, dy);
  EXPECT_TRUE(std::ranges::equal(x.values(), y.values()));
  EXPECT_TRUE(std::ranges::equal(dy.values(), dx.values()));
}

INSTANTIATE_TEST_SUITE_P(Shapes, SoftmaxRows,
                         testing::Values(Softmax::Options{.rows = 5, .classes = 10},
                                         Softmax::Options{.rows = 1, .classes = 33},
                                         Softmax::Options{.rows = 3, .classes = 1},
                                         Softmax::Options{.rows = 5, .classes = 10, .logarithm = true},
                                         Softmax::Options{.rows = 2, .classes = 67, .logarithm = true}));

TEST(SoftmaxRange, LargeLogitsDoNotOverflow) {
  const Buffer<float> x = {1e4f, 1e4f - 1, -1e4f}, y(3);
  pdcrt::Setup setup;
  RoomyStream q;
  Softmax(setup, {.rows = 1, .classes = 3}).forward(q, x, y);
  expectClose(y, softmax({0, -1, -1e3}, 3, false), "y");
}

TEST(SoftmaxRange, TheLargestLogitIsSubtractedWhereverItIs) {
  constexpr std::int64_t classes = 83; // beyond vectors
  pdcrt::Setup setup;
  RoomyStream q;
  for (std::int64_t at = 0; at < classes; ++at) {
    SCOPED_TRACE(at);
    Buffer<float> x(classes), y(classes), expected(classes), loss(1);
    x[at] = 1000; // whose exponential is infinite
    expected[at] = 1;
    Softmax(setup, {.rows = 1, .classes = classes}).forward(q, x, y);
    EXPECT_TRUE(std::ranges::equal(y.values(), expected.values()));
    const Buffer<std::int64_t> label = {at};
    SoftmaxCrossEntropy(setup, {.batch = 1, .classes = classes}).forward(q, x, label, {}, loss, y);
    EXPECT_TRUE(std::ranges::equal(y.values(), expected.values()));
    EXPECT_EQ(loss[0], 0);
  }
}

TEST(SoftmaxRange, ANaNSpoilsItsRowAndNoOther) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  pdcrt::Setup setup;
  RoomyStream q;
  for (std::int64_t at : {0, 7, 19}) {
    const Buffer<float> x(40), y(40), loss(1);
    x[at] = nan;
    for (bool logarithm : {false, true}) {
      Softmax(setup, {.rows = 2, .classes = 20, .logarithm = logarithm}).forward(q, x, y);
      for (std::int64_t i = 0; i < 40; ++i) EXPECT_EQ(std::isnan(y[i]), i < 20) << "element " << i;
    }
    const Buffer<std::int64_t> labels = {3, 3};
    SoftmaxCrossEntropy(setup, {.batch = 2, .classes = 20}).forward(q, x, labels, {}, loss, {});
    EXPECT_TRUE(std::isnan(loss[0]));
  }
}

// ---- SoftmaxCrossEntropy ----

/// Options, and whether the classes have weights.
class CrossEntropy : public testing::TestWithParam<std::tuple<SoftmaxCrossEntropy::Options, bool>> {
protected:
  const SoftmaxCrossEntropy::Options o = std::get<0>(GetParam());
  const bool weighted = std::get<1>(GetParam());
  const Buffer<float> classWeights = randomBuffer(weighted ? o.classes : 0, 5);
  const std::int64_t positions = o.batch * o.inner, count = positions * o.classes;
  const Buffer<float> logits = randomBuffer(count, 1), loss = room(1), probabilities = room(count),
                      dlogits = room(count), dloss = {0.75f};
  const Buffer<std::int64_t> labels = Buffer<std::int64_t>(positions);
  const Buffer<std::int32_t> labels32 = Buffer<std::int32_t>(positions);
  pdcrt::Setup setup;
  const SoftmaxCrossEntropy kernel{setup, o};

  View<const float> weights() const { return weighted ? View<const float>(classWeights) : View<const float>(); }
  double weight(std::int64_t c) const { return weighted ? classWeights[c] : 1; }

  void SetUp() override {
    for (std::int64_t c = 0; weighted && c < o.classes; ++c) classWeights[c] = 0.5f + std::abs(classWeights[c]);
    for (std::int64_t i = 0; i < positions; ++i) labels[i] = (i * 7 + 3) % o.classes;
    if (o.hasIgnoreIndex)
      for (std::int64_t i = 0; i < positions; i += 3) labels[i] = o.ignoreIndex;
    for (std::int64_t i = 0; i < positions; ++i) labels32[i] = static_cast<std::int32_t>(labels[i]);
  }

  std::size_t at(std::int64_t position, std::int64_t label) const {
    return static_cast<std::size_t>((position / o.inner * o.classes + label) * o.inner + position % o.inner);
  }
  double definition(const Values& v) const {
    double sum = 0, labelled = 0;
    for (std::int64_t p = 0; p < positions; ++p) {
      if (o.hasIgnoreIndex && labels[p] == o.ignoreIndex) continue;
      double exponentials = 0;
      for (std::int64_t c = 0; c < o.classes; ++c) exponentials += std::exp(v[at(p, c)]);
      auto nll = [&](std::int64_t c) { return weight(c) * (std::log(exponentials) - v[at(p, c)]); };
      double all = 0;
      for (std::int64_t c = 0; c < o.classes; ++c) all += nll(c);
      sum += (1 - o.labelSmoothing) * nll(labels[p]) + o.labelSmoothing * all / static_cast<double>(o.classes);
      labelled += weight(labels[p]);
    }
    return sum / labelled;
  }
};

TEST_P(CrossEntropy, IsTheDefinitionAndItsDerivative) {
  expectGoodManners(setup, {loss, probabilities},
                    [&](Stream& q) { kernel.forward(q, logits, labels, weights(), loss, probabilities); });
  expectClose(loss, {definition(toDouble(logits))}, "loss");
  Values expectedProbabilities(probabilities.values().size());
  for (std::int64_t p = 0; p < positions; ++p) {
    double sum = 0;
    for (std::int64_t c = 0; c < o.classes; ++c) sum += std::exp(double(logits.values()[at(p, c)]));
    for (std::int64_t c = 0; c < o.classes; ++c)
      expectedProbabilities[at(p, c)] = std::exp(double(logits.values()[at(p, c)])) / sum;
  }
  expectClose(probabilities, expectedProbabilities, "probabilities");
  expectGoodManners(setup, {dlogits},
                    [&](Stream& q) { kernel.inputGradient(q, dloss, labels, probabilities, weights(), dlogits); });
  expectClose(dlogits, centralDifferences(toDouble(logits), [&](const Values& v) { return 0.75 * definition(v); }),
              "dlogits");
}

TEST_P(CrossEntropy, NarrowLabelsAndAnUnwantedResultChangeNoBit) {
  RoomyStream q;
  kernel.forward(q, logits, labels, weights(), loss, probabilities);
  kernel.inputGradient(q, dloss, labels, probabilities, weights(), dlogits);
  const Buffer<float> loss32(1), probabilities32(count), lossAlone(1);
  kernel.forward(q, logits, labels32, weights(), loss32, probabilities32);
  kernel.forward(q, logits, labels, weights(), lossAlone, {});
  EXPECT_EQ(loss32[0], loss[0]);
  EXPECT_EQ(lossAlone[0], loss[0]);
  EXPECT_TRUE(std::ranges::equal(probabilities32.values(), probabilities.values()));
  kernel.inputGradient(q, dloss, labels32, probabilities, weights(), probabilities); // in place
  EXPECT_TRUE(std::ranges::equal(probabilities.values(), dlogits.values()));
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, CrossEntropy,
    testing::Combine(
        testing::Values(SoftmaxCrossEntropy::Options{.batch = 32, .classes = 10},
                        SoftmaxCrossEntropy::Options{.batch = 1, .classes = 37},
                        SoftmaxCrossEntropy::Options{.batch = 3, .classes = 5, .inner = 4, .labelSmoothing = 0.1},
                        SoftmaxCrossEntropy::Options{
                            .batch = 9, .classes = 6, .hasIgnoreIndex = true, .ignoreIndex = -1, .labelSmoothing = 1},
                        SoftmaxCrossEntropy::Options{
                            .batch = 2, .classes = 4, .inner = 7, .hasIgnoreIndex = true, .ignoreIndex = 2}),
        testing::Bool()));

TEST(CrossEntropyGradient, HasItsDigitsWhereTheLabelIsNearlyCertain) {
  const Buffer<float> logits = {-1, 17, 0.5f, 1}, loss(1), probabilities(4), dlogits(4), dloss = {1};
  const Buffer<std::int64_t> labels = {1};
  double others = 0;
  for (std::int64_t c : {0, 2, 3}) others += std::exp(double(logits[c]) - logits[1]);
  pdcrt::Setup setup;
  RoomyStream q;
  for (double smoothing : {0.0, 1e-9}) {
    const SoftmaxCrossEntropy kernel(setup, {.batch = 1, .classes = 4, .labelSmoothing = smoothing});
    kernel.forward(q, logits, labels, {}, loss, probabilities);
    kernel.inputGradient(q, dloss, labels, probabilities, {}, dlogits);
    const double exact = -others / (1 + others) * (1 - smoothing) + smoothing * (1 / (1 + others) - 0.25);
    EXPECT_NEAR(dlogits[1], exact, 1e-6 * -exact) << "smoothing " << smoothing;
  }
}

TEST(CrossEntropyLabels, OneOutsideTheClassesMakesTheLossNaN) {
  const Buffer<float> logits = {1, 2, 3, 4}, loss(1), probabilities(4);
  pdcrt::Setup setup;
  RoomyStream q;
  const SoftmaxCrossEntropy kernel(setup, {.batch = 2, .classes = 2});
  for (std::int64_t bad : {-1, 2}) {
    const Buffer<std::int64_t> labels = {bad, 0};
    kernel.forward(q, logits, labels, {}, loss, probabilities);
    EXPECT_TRUE(std::isnan(loss[0])) << "label " << bad;
  }
}

TEST(CrossEntropyLabels, WithNoneLeftTheLossIsNaNAndTheGradientZero) {
  const Buffer<float> logits = {1, 2, 3, 4}, loss(1), probabilities(4), dlogits(4), dloss = {1};
  const Buffer<std::int64_t> labels = {-100, -100};
  pdcrt::Setup setup;
  RoomyStream q;
  const SoftmaxCrossEntropy kernel(setup, {.batch = 2, .classes = 2, .hasIgnoreIndex = true});
  kernel.forward(q, logits, labels, {}, loss, probabilities);
  kernel.inputGradient(q, dloss, labels, probabilities, {}, dlogits);
  EXPECT_TRUE(std::isnan(loss[0]));
  for (float value : dlogits.values()) EXPECT_EQ(value, 0);
}

} // namespace
