// LINK: pdcrt_kernels
// Softmax and SoftmaxCrossEntropy against their definitions; gradients against their closed forms and, so that
// these are not believed blindly, against central differences of the definitions.
#include "Derivatives.h"
#include "KernelTest.h"
#include "TeamMember.h"
#include "pdcrt/kernels/Softmax.h"
#include "pdcrt/kernels/SoftmaxCrossEntropy.h"
#include "pdcrt/kernels/SoftmaxCrossEntropyParts.h"

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

// ---- SoftmaxCrossEntropyParts, and the gradient of a part ----

SoftmaxCrossEntropyParts::Options partsOf(const SoftmaxCrossEntropy::Options& o, std::int64_t members) {
  return {.batch = o.batch,
          .classes = (o.classes + members - 1) / members,
          .inner = o.inner,
          .total = o.classes,
          .hasIgnoreIndex = o.hasIgnoreIndex,
          .ignoreIndex = o.ignoreIndex,
          .labelSmoothing = o.labelSmoothing};
}

/// What a team makes of logits whose classes it divides.
class LossOfTeam {
  SoftmaxCrossEntropyParts::Options o_;
  int members_;
  std::int64_t positions_;
  pdcrt::Setup setup_;
  std::vector<Buffer<float>> logits_;
  const Buffer<float> own_ = room(positions_);

public:
  LossOfTeam(const SoftmaxCrossEntropy::Options& o, std::int64_t members, const Buffer<float>& logits)
      : o_(partsOf(o, members)), members_(static_cast<int>(members)), positions_(o.batch * o.inner) {
    for (int m = 0; m < members_; ++m) {
      const Buffer<float>& own = logits_.emplace_back(positions_ * o_.classes);
      for (std::int64_t i = 0; i < own.count(); ++i) {
        const std::int64_t c = m * o_.classes + i / o.inner % o_.classes, row = i / o.inner / o_.classes;
        own[i] = c < o.classes ? logits[(row * o.classes + c) * o.inner + i % o.inner]
                               : std::numeric_limits<float>::quiet_NaN(); // nobody looks there
      }
    }
  }

  template <class Label>
  void forward(const Buffer<Label>& labels, View<const float> weights) {
    const SoftmaxCrossEntropyParts kernel(setup_, o_);
    std::fill_n(maxima.values().begin(), positions_, -std::numeric_limits<float>::infinity());
    std::fill_n(sums.values().begin(), 3 * positions_, 0.0f);
    for (int m = 0; m < members_; ++m) {
      call(m, {own_}, [&](Stream& q) { kernel.maxima(q, logits_[std::size_t(m)], own_); });
      for (std::int64_t i = 0; i < positions_; ++i) maxima[i] = std::max(maxima[i], own_[i]);
    }
    for (int m = 0; m < members_; ++m) {
      const Buffer<float> own(3 * positions_);
      call(m, {own}, [&](Stream& q) { kernel.sums(q, logits_[std::size_t(m)], labels, maxima, weights, own); });
      for (std::int64_t i = 0; i < own.count(); ++i) sums[i] += own[i];
    }
    call(0, {loss, statistics}, [&](Stream& q) { kernel.ofSums(q, sums, maxima, labels, weights, loss, statistics); });
  }
  /// All classes, put together.
  template <class Label>
  Buffer<float> gradient(const SoftmaxCrossEntropy::Options& whole, const Buffer<float>& dloss,
                         const Buffer<Label>& labels, const Buffer<float>& known, View<const float> weights) {
    SoftmaxCrossEntropy::Options o = whole;
    o.classes = o_.classes;
    o.total = o_.total;
    const SoftmaxCrossEntropy kernel(setup_, o);
    Buffer<float> all(positions_ * o.total);
    for (int m = 0; m < members_; ++m) {
      const Buffer<float>& x = logits_[std::size_t(m)];
      const Buffer<float> own(x.count());
      call(m, {own}, [&](Stream& q) { kernel.inputGradient(q, dloss, labels, x, known, weights, own); });
      for (std::int64_t i = 0; i < own.count(); ++i) {
        const std::int64_t c = m * o.classes + i / o.inner % o.classes, row = i / o.inner / o.classes;
        if (c < o.total)
          all[(row * o.total + c) * o.inner + i % o.inner] = own[i];
        else
          EXPECT_EQ(own[i], 0) << "padding of member " << m;
      }
      RoomyStream q; // in place
      TeamMember team(m, members_);
      q.join(&team);
      kernel.inputGradient(q, dloss, labels, x, known, weights, x);
      EXPECT_TRUE(std::ranges::equal(x.values(), own.values()));
    }
    return all;
  }

  const Buffer<float> loss = room(1), maxima = room(positions_), sums = room(3 * positions_),
                      statistics = room(2 * positions_);

private:
  void call(int member, std::initializer_list<std::reference_wrapper<const GuardedBytes>> results,
            const std::function<void(Stream&)>& function) {
    TeamMember team(member, members_);
    expectGoodManners(setup_, results, [&](Stream& q) {
      q.join(&team);
      function(q);
    });
  }
};

class CrossEntropyParts : public CrossEntropy {};

TEST_P(CrossEntropyParts, TogetherAreTheWhole) {
  RoomyStream q;
  kernel.forward(q, logits, labels, weights(), loss, statistics);
  kernel.inputGradient(q, dloss, labels, logits, statistics, weights(), dlogits);
  for (std::int64_t members : {2, 3}) {
    SCOPED_TRACE(testing::Message() << members << " members");
    LossOfTeam team(o, members, logits), narrow(o, members, logits);
    team.forward(labels, weights());
    narrow.forward(labels32, weights());
    expectClose(team.loss, toDouble(loss), "loss");
    expectClose(team.statistics, toDouble(statistics), "statistics");
    EXPECT_EQ(narrow.loss[0], team.loss[0]);
    expectClose(team.gradient(o, dloss, labels, team.statistics, weights()), toDouble(dlogits), "dlogits");
    expectClose(narrow.gradient(o, dloss, labels32, team.statistics, weights()), toDouble(dlogits), "dlogits");
  }
}

// Four classes leave the last of three members without one.
INSTANTIATE_TEST_SUITE_P(
    Shapes, CrossEntropyParts,
    testing::Combine(
        testing::Values(
            SoftmaxCrossEntropy::Options{.batch = 4, .classes = 5},
            SoftmaxCrossEntropy::Options{.batch = 4, .classes = 5, .labelSmoothing = 0.25},
            SoftmaxCrossEntropy::Options{.batch = 3, .classes = 6, .inner = 4, .labelSmoothing = 0.1},
            SoftmaxCrossEntropy::Options{.batch = 9, .classes = 5, .hasIgnoreIndex = true, .labelSmoothing = 1},
            SoftmaxCrossEntropy::Options{
                .batch = 2, .classes = 4, .inner = 7, .hasIgnoreIndex = true, .ignoreIndex = 2},
            SoftmaxCrossEntropy::Options{.batch = 3, .classes = 4099, .hasIgnoreIndex = true, .ignoreIndex = 3},
            SoftmaxCrossEntropy::Options{.batch = 3, .classes = 2051, .labelSmoothing = 0.1}),
        testing::Bool()));

TEST(CrossEntropyParts, ALabelOutsideTheClassesMakesTheLossNaN) {
  const SoftmaxCrossEntropy::Options o = {.batch = 2, .classes = 5};
  for (std::int64_t bad : {-1, 5}) { // which is the padding's place
    LossOfTeam team(o, 3, randomBuffer(10, 1));
    team.forward(Buffer<std::int64_t>{bad, 0}, {});
    EXPECT_TRUE(std::isnan(team.loss[0])) << "label " << bad;
  }
}

TEST(CrossEntropyParts, WithNoLabelLeftTheLossIsZero) {
  LossOfTeam team({.batch = 2, .classes = 5, .hasIgnoreIndex = true}, 2, randomBuffer(10, 1));
  team.forward(Buffer<std::int64_t>{-100, -100}, {});
  EXPECT_EQ(team.loss[0], 0);
}

TEST(CrossEntropyParts, NaNSpoilsTheLossWhereverItIs) {
  for (std::int64_t at = 0; at < 5; ++at) {
    const Buffer<float> x = randomBuffer(5, 1);
    x[at] = std::numeric_limits<float>::quiet_NaN();
    LossOfTeam team({.batch = 1, .classes = 5}, 2, x);
    team.forward(Buffer<std::int64_t>{1}, {});
    EXPECT_TRUE(std::isnan(team.loss[0])) << "at " << at;
  }
}

TEST(CrossEntropyParts, LogitsOfMinusInfinityMakeNoNaNWhereAnotherIsFinite) {
  const float none = -std::numeric_limits<float>::infinity();
  const SoftmaxCrossEntropy::Options o = {.batch = 2, .classes = 4, .hasIgnoreIndex = true, .ignoreIndex = 3};
  LossOfTeam team(o, 2, {none, none, 1, 1, none, none, none, none});
  team.forward(Buffer<std::int64_t>{2, 3}, {}); // the second row does not count
  EXPECT_NEAR(team.loss[0], std::log(2.0), 1e-6);
  for (float sum : team.sums.values()) EXPECT_FALSE(std::isnan(sum));
  team.forward(Buffer<std::int64_t>{2, 0}, {});
  EXPECT_TRUE(std::isnan(team.loss[0]));
  EXPECT_TRUE(std::isnan(team.statistics[3])) << "the factor of probabilities";
}

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
