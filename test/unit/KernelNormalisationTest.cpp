// LINK: pdcrt_kernels
// Softmax and SoftmaxCrossEntropy against their definitions; gradients against their closed forms and, so that
// these are not believed blindly, against central differences of the definitions.
#include "Derivatives.h"
#include "KernelTest.h"
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
    const Buffer<float> statistics(2);
    SoftmaxCrossEntropy(setup, {.batch = 1, .classes = classes}).forward(q, x, label, {}, loss, statistics);
    EXPECT_EQ(statistics[0], 1000);
    EXPECT_EQ(statistics[1], 1);
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
  const std::int64_t positions = o.batch * o.inner, count = positions * (o.classes + o.gap);
  const Buffer<float> logits = randomBuffer(count, 1), loss = room(1), statistics = room(2 * positions),
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
    for (std::int64_t i = 0; i < positions; ++i)
      for (std::int64_t c = o.classes; c < o.classes + o.gap; ++c)
        logits.values()[at(i, c)] = std::numeric_limits<float>::quiet_NaN(); // nobody looks there
  }

  std::size_t at(std::int64_t position, std::int64_t label) const {
    return static_cast<std::size_t>((position / o.inner * (o.classes + o.gap) + label) * o.inner + position % o.inner);
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
  expectGoodManners(setup, {loss, statistics},
                    [&](Stream& q) { kernel.forward(q, logits, labels, weights(), loss, statistics); });
  expectClose(loss, {definition(toDouble(logits))}, "loss");
  Values expected(statistics.values().size());
  for (std::int64_t p = 0; p < positions; ++p) {
    double largest = logits.values()[at(p, 0)], sum = 0;
    for (std::int64_t c = 0; c < o.classes; ++c) largest = std::max(largest, double(logits.values()[at(p, c)]));
    for (std::int64_t c = 0; c < o.classes; ++c) sum += std::exp(double(logits.values()[at(p, c)]) - largest);
    const auto first = static_cast<std::size_t>(p / o.inner * 2 * o.inner + p % o.inner);
    expected[first] = largest;
    expected[first + static_cast<std::size_t>(o.inner)] = 1 / sum;
  }
  expectClose(statistics, expected, "statistics");
  expectGoodManners(setup, {dlogits},
                    [&](Stream& q) { kernel.inputGradient(q, dloss, labels, logits, statistics, weights(), dlogits); });
  expectClose(dlogits, centralDifferences(toDouble(logits), [&](const Values& v) { return 0.75 * definition(v); }),
              "dlogits");
}

TEST_P(CrossEntropy, NarrowLabelsAndAnUnwantedResultChangeNoBit) {
  RoomyStream q;
  kernel.forward(q, logits, labels, weights(), loss, statistics);
  kernel.inputGradient(q, dloss, labels, logits, statistics, weights(), dlogits);
  const Buffer<float> loss32(1), statistics32(2 * positions), lossAlone(1);
  kernel.forward(q, logits, labels32, weights(), loss32, statistics32);
  kernel.forward(q, logits, labels, weights(), lossAlone, {});
  EXPECT_EQ(loss32[0], loss[0]);
  EXPECT_EQ(lossAlone[0], loss[0]);
  EXPECT_TRUE(std::ranges::equal(statistics32.values(), statistics.values()));
  kernel.inputGradient(q, dloss, labels32, logits, statistics, weights(), logits); // in place
  EXPECT_TRUE(std::ranges::equal(logits.values(), dlogits.values()));
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, CrossEntropy,
    testing::Combine(
        testing::Values(
            SoftmaxCrossEntropy::Options{.batch = 32, .classes = 10},
            SoftmaxCrossEntropy::Options{.batch = 1, .classes = 37},
            SoftmaxCrossEntropy::Options{.batch = 3, .classes = 5, .inner = 4, .labelSmoothing = 0.1},
            SoftmaxCrossEntropy::Options{
                .batch = 9, .classes = 6, .hasIgnoreIndex = true, .ignoreIndex = -1, .labelSmoothing = 1},
            SoftmaxCrossEntropy::Options{
                .batch = 2, .classes = 4, .inner = 7, .hasIgnoreIndex = true, .ignoreIndex = 2},
            SoftmaxCrossEntropy::Options{.batch = 4, .classes = 37, .hasIgnoreIndex = true, .ignoreIndex = 3, .gap = 3},
            SoftmaxCrossEntropy::Options{.batch = 3, .classes = 5, .inner = 4, .labelSmoothing = 0.25, .gap = 2}),
        testing::Bool()));

TEST(CrossEntropyRows, OfManyClassesBeginAnywhereAndMayHaveOneLargeLogit) {
  constexpr std::int64_t batch = 3;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (std::int64_t classes : {4099, 8193, 12346}) {
    const std::int64_t count = batch * classes;
    const Buffer<float> logits = randomBuffer(count, 1), loss(1), statistics(2 * batch), dlogits(count), dloss = {1};
    const Buffer<std::int64_t> labels = {5, classes - 1, 0};
    logits[classes + 7] = -std::numeric_limits<float>::infinity();
    logits[2 * classes - 1] = 40; // nearly certain, and the last one that is read
    pdcrt::Setup setup;
    const SoftmaxCrossEntropy kernel(setup, {.batch = batch, .classes = classes});
    expectGoodManners(setup, {loss, statistics},
                      [&](Stream& q) { kernel.forward(q, logits, labels, {}, loss, statistics); });
    expectGoodManners(setup, {dlogits},
                      [&](Stream& q) { kernel.inputGradient(q, dloss, labels, logits, statistics, {}, dlogits); });
    Values gradient(static_cast<std::size_t>(count));
    double expectedLoss = 0;
    for (std::int64_t row = 0; row < batch; ++row) {
      double sum = 0;
      for (std::int64_t c = 0; c < classes; ++c) sum += std::exp(double(logits[row * classes + c]));
      for (std::int64_t c = 0; c < classes; ++c) {
        const auto i = static_cast<std::size_t>(row * classes + c);
        gradient[i] = (std::exp(double(logits[row * classes + c])) / sum - (c == labels[row])) / double(batch);
      }
      expectedLoss += (std::log(sum) - logits[row * classes + labels[row]]) / double(batch);
    }
    expectClose(loss, {expectedLoss}, "loss");
    expectClose(dlogits, gradient, "dlogits");
    RoomyStream q;
    const Buffer<float> place(count);
    std::ranges::copy(logits.values(), place.values().begin());
    kernel.inputGradient(q, dloss, labels, place, statistics, {}, place);
    EXPECT_TRUE(std::ranges::equal(place.values(), dlogits.values()));
    logits[classes - 1] = nan;
    kernel.forward(q, logits, labels, {}, loss, {});
    EXPECT_TRUE(std::isnan(loss[0]));
  }
}

TEST(CrossEntropyGradient, HasItsDigitsWhereTheLabelIsNearlyCertain) {
  const Buffer<float> logits = {-1, 17, 0.5f, 1}, loss(1), statistics(4), dlogits(4), dloss = {1};
  const Buffer<std::int64_t> labels = {1};
  double others = 0;
  for (std::int64_t c : {0, 2, 3}) others += std::exp(double(logits[c]) - logits[1]);
  pdcrt::Setup setup;
  RoomyStream q;
  for (double smoothing : {0.0, 1e-9}) {
    const SoftmaxCrossEntropy kernel(setup, {.batch = 1, .classes = 4, .labelSmoothing = smoothing});
    kernel.forward(q, logits, labels, {}, loss, statistics);
    kernel.inputGradient(q, dloss, labels, logits, statistics, {}, dlogits);
    const double exact = -others / (1 + others) * (1 - smoothing) + smoothing * (1 / (1 + others) - 0.25);
    EXPECT_NEAR(dlogits[1], exact, 1e-6 * -exact) << "smoothing " << smoothing;
  }
}

TEST(CrossEntropyLabels, OneOutsideTheClassesMakesTheLossNaN) {
  const Buffer<float> logits = {1, 2, 3, 4}, loss(1), statistics(4);
  pdcrt::Setup setup;
  RoomyStream q;
  const SoftmaxCrossEntropy kernel(setup, {.batch = 2, .classes = 2});
  for (std::int64_t bad : {-1, 2}) {
    const Buffer<std::int64_t> labels = {bad, 0};
    kernel.forward(q, logits, labels, {}, loss, statistics);
    EXPECT_TRUE(std::isnan(loss[0])) << "label " << bad;
  }
}

TEST(CrossEntropyLabels, WithNoneLeftTheLossAndTheGradientAreZero) {
  const Buffer<float> logits = {1, 2, 3, 4}, loss = {1}, statistics(4), dlogits(4), dloss = {1};
  const Buffer<std::int64_t> labels = {-100, -100};
  pdcrt::Setup setup;
  RoomyStream q;
  const SoftmaxCrossEntropy kernel(setup, {.batch = 2, .classes = 2, .hasIgnoreIndex = true});
  kernel.forward(q, logits, labels, {}, loss, statistics);
  kernel.inputGradient(q, dloss, labels, logits, statistics, {}, dlogits);
  EXPECT_EQ(loss[0], 0);
  for (float value : dlogits.values()) EXPECT_EQ(value, 0);
}

} // namespace
