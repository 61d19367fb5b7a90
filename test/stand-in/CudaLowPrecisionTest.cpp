// Kernels for CUDA in bf16 and f16 against the definition, computed in double precision from the same rounded operands.
// What they sum up is not rounded before it is complete.
#include "AttentionDefinition.h"
#include "Derivatives.h"
#include "KernelTest.h"
#include "TeamMember.h"
#include "pdcrt/Conversions.h"
#include "pdcrt/kernels/Attention.h"
#include "pdcrt/kernels/Conv2d.h"
#include "pdcrt/kernels/LayerNorm.h"
#include "pdcrt/kernels/Linear.h"
#include "pdcrt/kernels/MatMul.h"
#include "pdcrt/kernels/Pad.h"
#include "pdcrt/kernels/Reduce.h"
#include "pdcrt/kernels/SoftmaxCrossEntropy.h"
#include "pdcrt/kernels/SoftmaxCrossEntropyParts.h"

using namespace pdcrt;

namespace {

template <class T>
class LowPrecision : public testing::Test {
protected:
  /// Of one rounding to nearest: 2^-8 and 2^-11 of each element at most.
  static constexpr double tolerance = std::is_same_v<T, bfloat16> ? 0x1p-8 : 0x1p-11;

  static Buffer<T> random(std::int64_t count, std::uint32_t seed) {
    const Buffer<float> exact = randomBuffer(count, seed);
    Buffer<T> rounded(count);
    for (std::int64_t i = 0; i < count; ++i) rounded[i] = T(exact[i]);
    return rounded;
  }
  static void expectRounded(const Buffer<T>& actual, const std::vector<double>& expected, const char* what,
                            double factor = 1) {
    Buffer<float> wide(actual.count());
    for (std::int64_t i = 0; i < actual.count(); ++i) wide[i] = actual[i];
    EXPECT_LE(relativeError(wide, expected), factor * tolerance) << what; // NaN fails too
  }
  /// The same values, for a kernel in f32.
  static Buffer<float> widened(const Buffer<T>& narrow) {
    Buffer<float> wide(narrow.count());
    for (std::int64_t i = 0; i < narrow.count(); ++i) wide[i] = narrow[i];
    return wide;
  }
  static std::vector<double> zeros(const Buffer<T>& like) { return std::vector<double>(like.values().size()); }

  pdcrt::Setup setup;
};

using Types = testing::Types<bfloat16, float16>;
TYPED_TEST_SUITE(LowPrecision, Types);

TYPED_TEST(LowPrecision, LinearLayersAreTheDefinition) {
  using T = TypeParam;
  for (bool transposed : {false, true}) {
    const Linear::Options o = {
        .rows = 17, .inputs = 300, .outputs = 40, .transposed = transposed, .bias = true, .element = elementOf<T>()};
    const Linear linear(this->setup, o);
    const Buffer<T> x = this->random(o.rows * o.inputs, 1), w = this->random(o.inputs * o.outputs, 2),
                    b = this->random(o.outputs, 3), dy = this->random(o.rows * o.outputs, 4);
    const Buffer<T> y(dy.count()), dx(x.count()), dw(w.count()), db(b.count());
    expectGoodManners(this->setup, {y, dx, dw, db}, [&](Stream& q) {
      linear.forward(q, x, w, b, y.view());
      linear.inputGradient(q, dy, w, dx.view());
      linear.weightGradient(q, x, dy, dw.view(), db.view());
    });
    auto wantedY = this->zeros(y), wantedX = this->zeros(dx), wantedW = this->zeros(dw), wantedB = this->zeros(db);
    for (std::int64_t row = 0; row < o.rows; ++row)
      for (std::int64_t j = 0; j < o.outputs; ++j) {
        const std::int64_t at = row * o.outputs + j;
        wantedY[static_cast<std::size_t>(at)] += b[j];
        wantedB[static_cast<std::size_t>(j)] += dy[at];
        for (std::int64_t i = 0; i < o.inputs; ++i) {
          const std::int64_t xAt = row * o.inputs + i, wAt = transposed ? j * o.inputs + i : i * o.outputs + j;
          wantedY[static_cast<std::size_t>(at)] += double(x[xAt]) * w[wAt];
          wantedX[static_cast<std::size_t>(xAt)] += double(dy[at]) * w[wAt];
          wantedW[static_cast<std::size_t>(wAt)] += double(x[xAt]) * dy[at];
        }
      }
    this->expectRounded(y, wantedY, "y");
    this->expectRounded(dx, wantedX, "dx");
    this->expectRounded(dw, wantedW, "dw");
    this->expectRounded(db, wantedB, "db");

    Linear::Options wider = o;
    wider.wideGradient = true;
    const Linear wide(this->setup, wider);
    const Buffer<float> wideW(w.count()), wideB(b.count());
    expectGoodManners(this->setup, {wideW, wideB},
                      [&](Stream& q) { wide.weightGradient(q, x.view(), dy.view(), wideW.view(), wideB.view()); });
    EXPECT_LE(relativeError(wideW, wantedW), 1e-6);
    EXPECT_LE(relativeError(wideB, wantedB), 1e-6);
  }
}

TYPED_TEST(LowPrecision, ProductsOfMatricesAreTheDefinition) {
  using T = TypeParam;
  const MatMul::Options o = {.batch = 3, .m = 5, .k = 130, .n = 9, .transposeB = true, .element = elementOf<T>()};
  const MatMul matmul(this->setup, o);
  const Buffer<T> a = this->random(o.batch * o.m * o.k, 1), b = this->random(o.batch * o.n * o.k, 2);
  const Buffer<T> c(o.batch * o.m * o.n);
  expectGoodManners(this->setup, {c}, [&](Stream& q) { matmul.forward(q, a, b, c.view()); });
  std::vector<double> expected;
  for (std::int64_t g = 0; g < o.batch; ++g)
    for (std::int64_t i = 0; i < o.m; ++i)
      for (std::int64_t j = 0; j < o.n; ++j) {
        double sum = 0;
        for (std::int64_t k = 0; k < o.k; ++k) sum += double(a[(g * o.m + i) * o.k + k]) * b[(g * o.n + j) * o.k + k];
        expected.push_back(sum);
      }
  this->expectRounded(c, expected, "c");
}

/// A bias, and paddings that differ, which a padded copy stands for.
TYPED_TEST(LowPrecision, ConvolutionsAreTheDefinition) {
  using T = TypeParam;
  const Conv2d::Options o = {.input = {2, 8, 7, 6},
                             .filter = {16, 8, 3, 3},
                             .strides = {2, 1},
                             .pads = {1, 0, 0, 2},
                             .bias = true,
                             .element = elementOf<T>()};
  const Conv2d convolution(this->setup, o);
  const Shape out = Conv2d::outputShape(o);
  const Buffer<T> x = this->random(o.input.elements(), 1), w = this->random(o.filter.elements(), 2),
                  b = this->random(o.filter.dims[0], 3), dy = this->random(out.elements(), 4);
  const Buffer<T> y(dy.count()), dx(x.count()), dw(w.count()), db(b.count());
  expectGoodManners(this->setup, {y, dx, dw, db}, [&](Stream& q) {
    convolution.forward(q, x, w, b, y.view());
    convolution.inputGradient(q, dy, w, dx.view());
    convolution.weightGradient(q, x, dy, dw.view(), db.view());
  });
  auto wantedY = this->zeros(y), wantedX = this->zeros(dx), wantedW = this->zeros(dw), wantedB = this->zeros(db);
  const auto [channels, height, width] = std::tuple(o.input.dims[1], o.input.dims[2], o.input.dims[3]);
  std::int64_t at = 0;
  for (std::int64_t n = 0; n < out.dims[0]; ++n)
    for (std::int64_t k = 0; k < out.dims[1]; ++k)
      for (std::int64_t i = 0; i < out.dims[2]; ++i)
        for (std::int64_t j = 0; j < out.dims[3]; ++j, ++at) {
          wantedY[static_cast<std::size_t>(at)] += b[k];
          wantedB[static_cast<std::size_t>(k)] += dy[at];
          for (std::int64_t c = 0; c < channels; ++c)
            for (std::int64_t r = 0; r < 3; ++r)
              for (std::int64_t s = 0; s < 3; ++s) {
                const std::int64_t row = i * 2 - o.pads.top + r, column = j - o.pads.left + s;
                if (row < 0 || row >= height || column < 0 || column >= width) continue;
                const std::int64_t xAt = ((n * channels + c) * height + row) * width + column,
                                   wAt = ((k * channels + c) * 3 + r) * 3 + s;
                wantedY[static_cast<std::size_t>(at)] += double(x[xAt]) * w[wAt];
                wantedX[static_cast<std::size_t>(xAt)] += double(dy[at]) * w[wAt];
                wantedW[static_cast<std::size_t>(wAt)] += double(x[xAt]) * dy[at];
              }
        }
  this->expectRounded(y, wantedY, "y", 2); // the bias is added to what was rounded
  this->expectRounded(dx, wantedX, "dx");
  this->expectRounded(dw, wantedW, "dw");
  this->expectRounded(db, wantedB, "db");
}

/// Rows that are longer than a block of threads and shorter, causal, with heads that share keys, with a bias of f32
/// that hides, and with dropout. Weights and the gradients of scores are rounded before they are multiplied.
TYPED_TEST(LowPrecision, AttentionIsTheDefinition) {
  using T = TypeParam;
  const Element element = elementOf<T>();
  for (const Attention::Options& o : std::vector<Attention::Options>{
           {.batch = 2, .heads = 4, .groups = 2, .queries = 3, .keys = 700, .size = 8, .valueSize = 6, .scale = 0.35},
           {.heads = 2, .groups = 2, .queries = 40, .keys = 45, .size = 8, .valueSize = 8, .causal = true},
           {.batch = 2, .queries = 5, .keys = 9, .size = 3, .valueSize = 2, .bias = {2, 1, 1, 9}, .hides = true},
           {.heads = 3, .groups = 1, .queries = 7, .keys = 11, .size = 4, .valueSize = 4, .ratio = 0.3, .op = 2}}) {
    SCOPED_TRACE(std::to_string(o.queries) + " queries, " + std::to_string(o.keys) + " keys");
    Attention::Options low = o;
    low.element = element;
    const Attention attention(this->setup, low);
    const attention::Inputs in(o);
    const Buffer<T> q = attention::rounded<T>(in.q), k = attention::rounded<T>(in.k), v = attention::rounded<T>(in.v),
                    dy = attention::rounded<T>(in.dy);
    if (o.hides) in.bias[2] = in.bias[13] = -1e31f;
    const View<const float> bias = o.bias.rank ? View<const float>(in.bias) : View<const float>();
    const std::int64_t rows = o.batch * o.heads * o.queries;
    const Buffer<T> y(dy.count()), dq(q.count()), dk(k.count()), dv(v.count());
    const Buffer<float> largest(rows), inverse(rows);
    const Buffer<std::uint8_t> mask(o.ratio > 0 ? rows * o.keys : 0);
    expectGoodManners(this->setup, {y, largest, inverse, mask}, [&](Stream& stream) {
      if (o.ratio > 0)
        attention.forwardDropped(stream, {.seed = 4, .minibatch = 2}, q, k, v, bias, y.view(), largest, inverse, mask);
      else
        attention.forward(stream, q, k, v, bias, y.view(), largest, inverse);
    });
    expectGoodManners(this->setup, {dq, dk, dv}, [&](Stream& stream) {
      attention.inputGradient(stream, dy, q, k, v, bias, largest, inverse,
                              o.ratio > 0 ? View<const std::uint8_t>(mask) : View<const std::uint8_t>(), dq.view(),
                              dk.view(), dv.view());
    });
    const attention::Outcome exact = expected(o, in, {mask.values().begin(), mask.values().end()});
    this->expectRounded(y, exact.y, "y", 2);
    this->expectRounded(dq, exact.dq, "dq", 2);
    this->expectRounded(dk, exact.dk, "dk", 2);
    this->expectRounded(dv, exact.dv, "dv", 2);
  }
}

TYPED_TEST(LowPrecision, ReductionsAreTheDefinition) {
  using T = TypeParam;
  constexpr std::int64_t rows = 6, columns = 700;
  const Buffer<T> x = this->random(rows * columns, 1);
  const Buffer<T> sums(columns), means(rows), largest(rows);
  const Reduce sum(this->setup, {.input = {rows, columns}, .axes = {0}}),
      mean(this->setup, {.input = {rows, columns}, .axes = {1}, .kind = Reduction::mean}),
      max(this->setup, {.input = {rows, columns}, .axes = {1}, .kind = Reduction::max});
  expectGoodManners(this->setup, {sums, means, largest}, [&](Stream& q) {
    sum.forward(q, x, sums.view());
    mean.forward(q, x, means.view());
    max.forward(q, x, largest.view());
  });
  std::vector<double> wantedSums(columns), wantedMeans(rows), wantedLargest(rows, -1e30);
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t column = 0; column < columns; ++column) {
      const double value = x[row * columns + column];
      wantedSums[static_cast<std::size_t>(column)] += value;
      wantedMeans[static_cast<std::size_t>(row)] += value / columns;
      wantedLargest[static_cast<std::size_t>(row)] = std::max(wantedLargest[static_cast<std::size_t>(row)], value);
    }
  this->expectRounded(sums, wantedSums, "sums");
  this->expectRounded(means, wantedMeans, "means");
  this->expectRounded(largest, wantedLargest, "largest", 0);
}

TYPED_TEST(LowPrecision, PadsHaveTheValueAsItIsRounded) {
  using T = TypeParam;
  const Pad pad(this->setup, {.input = {3, 5}, .before = {0, 1}, .after = {2, 2}, .value = 1.0 / 3});
  const Buffer<T> x = this->random(15, 1), y(5 * 8);
  expectGoodManners(this->setup, {y}, [&](Stream& q) { pad.forward<T>(q, x, y.view()); });
  for (std::int64_t i = 0; i < 5; ++i)
    for (std::int64_t j = 0; j < 8; ++j) {
      const bool inside = i < 3 && j >= 1 && j < 6;
      ASSERT_EQ(float(y[i * 8 + j]), float(inside ? x[i * 5 + j - 1] : T(1.0f / 3))) << i << ", " << j;
    }
}

/// Against the kernel in f32, whose tests have the definition. Rows begin and end inside of 16 bytes.
TYPED_TEST(LowPrecision, CrossEntropyIsThatOfFloats) {
  using T = TypeParam;
  const SoftmaxCrossEntropy::Options sizes[] = {
      {.batch = 5, .classes = 37},
      {.batch = 5, .classes = 37, .gap = 3},
      {.batch = 3, .classes = 2051, .hasIgnoreIndex = true, .ignoreIndex = 1, .labelSmoothing = 0.25, .gap = 5},
      {.batch = 2, .classes = 5, .inner = 6, .gap = 1}};
  for (SoftmaxCrossEntropy::Options o : sizes) {
    SCOPED_TRACE(testing::Message() << o.classes << " classes, gap of " << o.gap);
    const std::int64_t positions = o.batch * o.inner, count = positions * (o.classes + o.gap);
    const Buffer<T> logits = this->random(count, 1), dlogits(count);
    const Buffer<float> wide = this->widened(logits), expected(count), dloss = {0.75f}, loss(1),
                        statistics(2 * positions), expectedLoss(1), expectedStatistics(2 * positions);
    Buffer<std::int64_t> labels(positions);
    for (std::int64_t i = 0; i < positions; ++i) labels[i] = i * 7 % o.classes;
    RoomyStream q;
    const SoftmaxCrossEntropy inFloats(this->setup, o);
    inFloats.forward(q, wide, labels, {}, expectedLoss, expectedStatistics);
    inFloats.inputGradient(q, dloss, labels, wide, expectedStatistics, {}, expected);
    o.element = elementOf<T>();
    const SoftmaxCrossEntropy kernel(this->setup, o);
    expectGoodManners(this->setup, {loss, statistics},
                      [&](Stream& s) { kernel.forward(s, logits, labels, {}, loss, statistics); });
    expectGoodManners(this->setup, {dlogits},
                      [&](Stream& s) { kernel.inputGradient(s, dloss, labels, logits, statistics, {}, dlogits); });
    EXPECT_NEAR(loss[0], expectedLoss[0], 1e-6 * expectedLoss[0]);
    expectClose(statistics, toDouble(expectedStatistics), "statistics");
    this->expectRounded(dlogits, toDouble(expected), "dlogits");
  }
}

/// The last of three members, whose logits end with padding.
TYPED_TEST(LowPrecision, PartsOfCrossEntropyAreThoseOfFloats) {
  using T = TypeParam;
  TeamMember last(2, 3);
  SoftmaxCrossEntropyParts::Options o = {.batch = 3, .classes = 37, .total = 109, .labelSmoothing = 0.25};
  const std::int64_t count = o.batch * o.classes;
  const Buffer<T> logits = this->random(count, 1), dlogits(count);
  const Buffer<float> wide = this->widened(logits), expected(count), dloss = {0.75f}, maxima(o.batch),
                      expectedMaxima(o.batch), sums(3 * o.batch), expectedSums(3 * o.batch),
                      statistics = {2, 3, 4, 0.01f, 0.02f, 0.03f};
  const Buffer<std::int64_t> labels = {108, 73, 90};
  RoomyStream q;
  q.join(&last);
  const SoftmaxCrossEntropyParts inFloats(this->setup, o);
  inFloats.maxima(q, wide, expectedMaxima);
  inFloats.sums(q, wide, labels, expectedMaxima, {}, expectedSums);
  SoftmaxCrossEntropy::Options whole = {
      .batch = o.batch, .classes = o.classes, .labelSmoothing = 0.25, .total = o.total};
  SoftmaxCrossEntropy(this->setup, whole).inputGradient(q, dloss, labels, wide, statistics, {}, expected);
  o.element = whole.element = elementOf<T>();
  const SoftmaxCrossEntropyParts kernel(this->setup, o);
  kernel.maxima(q, logits, maxima);
  kernel.sums(q, logits, labels, maxima, {}, sums);
  SoftmaxCrossEntropy(this->setup, whole).inputGradient(q, dloss, labels, logits, statistics, {}, dlogits);
  EXPECT_TRUE(std::ranges::equal(maxima.values(), expectedMaxima.values()));
  expectClose(sums, toDouble(expectedSums), "sums");
  this->expectRounded(dlogits, toDouble(expected), "dlogits");
  for (std::int64_t row = 0; row < o.batch; ++row)
    for (std::int64_t c = 35; c < 37; ++c) EXPECT_EQ(float(dlogits[row * 37 + c]), 0) << "padding";
}

TYPED_TEST(LowPrecision, NormalisationIsThatOfFloats) {
  using T = TypeParam;
  for (const auto& [rows, size] : {std::array{7, 64}, {3, 37}, {5, 768}, {2, 1100}, {70, 4}}) {
    SCOPED_TRACE(testing::Message() << rows << " x " << size);
    const LayerNorm::Options o = {.rows = rows, .size = size};
    const std::int64_t count = o.rows * o.size;
    const Buffer<T> y(count), dy = this->random(count, 2);
    const Buffer<float> x = randomBuffer(count, 1), scale = randomBuffer(size, 3), bias = randomBuffer(size, 4),
                        wideDy = this->widened(dy), expectedY(count), mean(rows), inverse(rows), dx(count),
                        expectedDx(count), dscale(size), dbias(size), expectedDscale(size), expectedDbias(size);
    RoomyStream q;
    const LayerNorm kernel(this->setup, o);
    kernel.forward(q, x.view(), scale, bias, {}, expectedY.view(), mean, inverse, {}, {});
    expectGoodManners(this->setup, {y},
                      [&](Stream& s) { kernel.forward(s, x.view(), scale, bias, {}, y.view(), {}, {}, {}, {}); });
    this->expectRounded(y, toDouble(expectedY), "y");
    const Buffer<float> added = randomBuffer(count, 5);
    const Buffer<T> low(count);
    kernel.inputGradient(q, wideDy.view(), x, scale, mean, inverse, added, expectedDx, {});
    expectGoodManners(this->setup, {dx, low}, [&](Stream& s) {
      kernel.inputGradient(s, dy.view(), x, scale, mean, inverse, added, dx, low.view());
    });
    expectClose(dx, toDouble(expectedDx), "dx");
    for (std::int64_t i = 0; i < count; ++i) ASSERT_EQ(float(low[i]), float(T(dx[i]))) << "low " << i;
    kernel.weightGradient(q, wideDy.view(), x, mean, inverse, expectedDscale, expectedDbias);
    expectGoodManners(this->setup, {dscale, dbias},
                      [&](Stream& s) { kernel.weightGradient(s, dy.view(), x, mean, inverse, dscale, dbias); });
    expectClose(dscale, toDouble(expectedDscale), "dscale");
    expectClose(dbias, toDouble(expectedDbias), "dbias");
    kernel.rmsForward(q, x.view(), scale, {}, expectedY.view(), inverse, {}, {});
    expectGoodManners(this->setup, {y},
                      [&](Stream& s) { kernel.rmsForward(s, x.view(), scale, {}, y.view(), {}, {}, {}); });
    this->expectRounded(y, toDouble(expectedY), "y, root mean square");
    kernel.rmsInputGradient(q, wideDy.view(), x, scale, inverse, {}, expectedDx, {});
    expectGoodManners(this->setup, {dx},
                      [&](Stream& s) { kernel.rmsInputGradient(s, dy.view(), x, scale, inverse, {}, dx, {}); });
    expectClose(dx, toDouble(expectedDx), "dx, root mean square");
    kernel.rmsWeightGradient(q, wideDy.view(), x, inverse, expectedDscale);
    expectGoodManners(this->setup, {dscale},
                      [&](Stream& s) { kernel.rmsWeightGradient(s, dy.view(), x, inverse, dscale); });
    expectClose(dscale, toDouble(expectedDscale), "dscale, root mean square");
  }
}

/// More arrays than one launch takes, of which some begin at no multiple of 16 bytes, and most end inside of a pack.
TYPED_TEST(LowPrecision, ManyArraysAreConvertedTogether) {
  using T = TypeParam;
  constexpr std::int64_t longest = 3000, arrays = 125; // of 4096 bytes of arguments have room for 113
  std::vector<Buffer<float>> from;
  std::vector<Buffer<T>> to;
  for (std::int64_t i = 0; i < arrays; ++i) {
    from.push_back(randomBuffer(longest, static_cast<unsigned>(i + 1)));
    to.emplace_back(longest);
  }
  const auto at = [&](std::int64_t i) {
    const auto k = static_cast<std::size_t>(i);
    return Conversion<T>{View<const float>(from[k].view().data + i % 3), View<T>(to[k].view().data + i % 3),
                         i * 23 % (longest - 3)};
  };
  for (std::int64_t i = 0; i < arrays; ++i)
    for (T& value : to[static_cast<std::size_t>(i)].values()) value = T(-7.0f);
  RoomyStream q;
  // As many as a program writes down.
  convertAll<T>(q, {at(0), at(1), at(2)});
  std::vector<Conversion<T>> rest;
  for (std::int64_t i = 3; i < arrays; ++i) rest.push_back(at(i));
  convertAll<T>(q, std::span<const Conversion<T>>(rest));
  for (std::int64_t i = 0; i < arrays; ++i) {
    const Conversion<T> c = at(i);
    for (std::int64_t e = 0; e < c.count; ++e) ASSERT_EQ(float(c.to[e]), float(T(c.from[e]))) << i << ": " << e;
    ASSERT_EQ(float(c.to[c.count]), -7.0f) << i << ": what lies behind";
  }
}

/// x of 16 bits to which floats are added, and y and dx given in both.
TYPED_TEST(LowPrecision, NormalisationAddsAndRounds) {
  using T = TypeParam;
  for (const auto& [rows, size] : {std::array{7, 64}, {3, 37}, {5, 768}, {2, 1000}, {1, 4100}}) {
    SCOPED_TRACE(testing::Message() << rows << " x " << size);
    const LayerNorm::Options o = {.rows = rows, .size = size};
    const std::int64_t count = o.rows * o.size;
    const Buffer<T> x = this->random(count, 1), low(count);
    const Buffer<float> scale = randomBuffer(size, 3), bias = randomBuffer(size, 4), added = randomBuffer(count, 5),
                        sum(count), y(count), mean(rows), inverse(rows), expectedY(count), expectedMean(rows),
                        expectedInverse(rows);
    const LayerNorm kernel(this->setup, o);
    const auto expectRoundedOf = [&](const Buffer<float>& wide, const char* what) {
      for (std::int64_t i = 0; i < count; ++i) ASSERT_EQ(float(low[i]), float(T(wide[i]))) << what << ' ' << i;
    };
    expectGoodManners(this->setup, {y, mean, inverse, sum, low}, [&](Stream& s) {
      kernel.forward(s, x.view(), scale, bias, added, y.view(), mean, inverse, sum, low.view());
    });
    for (std::int64_t i = 0; i < count; ++i) ASSERT_EQ(sum[i], float(x[i]) + added[i]) << "sum " << i;
    RoomyStream q;
    kernel.forward(q, sum.view(), scale, bias, {}, expectedY.view(), expectedMean, expectedInverse, {}, {});
    expectClose(y, toDouble(expectedY), "y");
    expectClose(mean, toDouble(expectedMean), "mean");
    expectClose(inverse, toDouble(expectedInverse), "inverse");
    expectRoundedOf(y, "y");
    expectGoodManners(this->setup, {y, low}, [&](Stream& s) {
      kernel.rmsForward(s, x.view(), scale, added, y.view(), inverse, sum, low.view());
    });
    kernel.rmsForward(q, sum.view(), scale, {}, expectedY.view(), expectedInverse, {}, {});
    expectClose(y, toDouble(expectedY), "y, root mean square");
    expectRoundedOf(y, "y, root mean square");
    // The gradient of floats, rounded.
    const Buffer<float> dy = randomBuffer(count, 6), dx(count);
    expectGoodManners(this->setup, {dx, low}, [&](Stream& s) {
      kernel.inputGradient(s, dy.view(), sum, scale, mean, inverse, {}, dx, low.view());
    });
    expectRoundedOf(dx, "dx");
  }
}

TYPED_TEST(LowPrecision, ConvolutionsWithReluLeaveNothingBelowZero) {
  using T = TypeParam;
  for (std::int64_t lanes : {1, 8}) {
    Conv2d::Options o = {.input = {2, 8, 5, 3},
                         .filter = {8, 8, 3, 3},
                         .pads = {1, 1, 1, 1},
                         .bias = true,
                         .inputLanes = lanes,
                         .outputLanes = lanes,
                         .element = elementOf<T>()};
    const std::int64_t count = Conv2d::outputShape(o).elements();
    const Buffer<T> x = this->random(o.input.elements(), 1), w = this->random(o.filter.elements(), 2),
                    b = this->random(8, 3), plain(count), y(count);
    RoomyStream q;
    Conv2d(this->setup, o).forward(q, x.view(), w, b, plain.view());
    o.relu = true;
    Conv2d(this->setup, o).forward(q, x.view(), w, b, y.view());
    // The library may round once where there is a ReLU, and where there is none twice.
    std::vector<double> expected(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) expected[static_cast<std::size_t>(i)] = std::max(float(plain[i]), 0.0f);
    this->expectRounded(y, expected, "y", 2);
    for (std::int64_t i = 0; i < count; ++i) ASSERT_GE(float(y[i]), 0.0f) << "element " << i;
  }
}

} // namespace
