// LINK: pdcOps
// Conversions of Attention and RotaryEmbedding against their definitions.
#include "OpsNode.h"

#include <complex>
#include <functional>

using namespace pdc;
using namespace pdc::testing;

namespace {

using Ints = std::vector<std::int64_t>;

Tensor inputOf(Node& node, const char* name) {
  return Inputs(4).of(node.graph()).at(name);
}

/// Sizes of Q [batch, queryHeads, queries, size], K and V [batch, heads, keys, size].
struct Sizes {
  std::int64_t batch, queryHeads, heads, queries, keys, size;
};

/// The definition; `seen(b, head, i, j)` says whether query i may look at key j. A query that sees none gives 0.
Tensor attention(const Sizes& s, const Tensor& q, const Tensor& k, const Tensor& v, double softcap,
                 const std::function<bool(std::int64_t, std::int64_t, std::int64_t, std::int64_t)>& seen) {
  Tensor y(Type{ElementType::f64, {s.batch, s.queryHeads, s.queries, s.size}});
  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t h = 0; h < s.queryHeads; ++h)
      for (std::int64_t i = 0; i < s.queries; ++i) {
        const std::int64_t row = ((b * s.queryHeads + h) * s.queries + i) * s.size;
        const std::int64_t shared = (b * s.heads + h / (s.queryHeads / s.heads)) * s.keys * s.size;
        double total = 0;
        for (std::int64_t j = 0; j < s.keys; ++j) {
          double score = 0;
          for (std::int64_t d = 0; d < s.size; ++d)
            score += q.asDouble(row + d) * k.asDouble(shared + j * s.size + d) / std::sqrt(double(s.size));
          if (softcap > 0) score = softcap * std::tanh(score / softcap);
          const double weight = seen(b, h, i, j) ? std::exp(score) : 0;
          total += weight;
          for (std::int64_t d = 0; d < s.size; ++d)
            y.set(row + d, y.asDouble(row + d) + weight * v.asDouble(shared + j * s.size + d));
        }
        for (std::int64_t d = 0; d < s.size; ++d) y.set(row + d, total == 0 ? 0 : y.asDouble(row + d) / total);
      }
  return y;
}

void expectNear(const Tensor& actual, const Tensor& expected) {
  ASSERT_EQ(actual.elements(), expected.elements());
  for (std::int64_t i = 0; i < actual.elements(); ++i) EXPECT_NEAR(actual.asDouble(i), expected.asDouble(i), 1e-7) << i;
}

} // namespace

TEST(OpsConvertAttention, QueryHeadsShareKeysAndSeeNoneThatComeLater) {
  const Sizes s{2, 6, 2, 3, 3, 4};
  Node node("Attention", 23);
  ASSERT_TRUE(node.floats({2, 6, 3, 4})
                  .floats({2, 2, 3, 4})
                  .floats({2, 2, 3, 4})
                  .attribute("is_causal", std::int64_t{1})
                  .attribute("softcap", 2.0)
                  .convert())
      << node.error();
  expectNear(node.run(), attention(s, inputOf(node, "x0"), inputOf(node, "x1"), inputOf(node, "x2"), 2,
                                   [](auto, auto, std::int64_t i, std::int64_t j) { return j <= i; }));
}

TEST(OpsConvertAttention, AQueryThatSeesNoKeyTakesNothing) {
  const Sizes s{1, 2, 2, 3, 4, 4};
  Node node("Attention", 24);
  ASSERT_TRUE(node.floats({1, 2, 3, 4})
                  .floats({1, 2, 4, 4})
                  .floats({1, 2, 4, 4})
                  .constant(Tensor::ofInts({3, 3}, Ints{1, 0, 1, 0, 0, 0, 1, 1, 0}, ElementType::boolean))
                  .convert())
      << node.error();
  const Tensor mask = Tensor::ofInts({3, 4}, Ints{1, 0, 1, 0, 0, 0, 0, 0, 1, 1, 0, 0}); // key 3 has no mask: hidden
  expectNear(node.run(), attention(s, inputOf(node, "x0"), inputOf(node, "x1"), inputOf(node, "x2"), 0,
                                   [&](auto, auto, std::int64_t i, std::int64_t j) { return mask.asInt(i * 4 + j); }));
}

// The last query stands at the last key that is no padding, whose number differs from sample to sample.
TEST(OpsConvertAttention, KeysBeyondASamplesLengthArePadding) {
  const Sizes s{2, 2, 1, 2, 4, 3};
  Node node("Attention", 24);
  ASSERT_TRUE(node.floats({2, 2, 2, 3})
                  .floats({2, 1, 4, 3})
                  .floats({2, 1, 4, 3})
                  .absent()
                  .absent()
                  .absent()
                  .integers({3, 1})
                  .attribute("is_causal", std::int64_t{1})
                  .convert())
      << node.error();
  const std::int64_t lengths[] = {3, 1};
  expectNear(node.run(), attention(s, inputOf(node, "x0"), inputOf(node, "x1"), inputOf(node, "x2"), 0,
                                   [&](std::int64_t b, auto, std::int64_t i, std::int64_t j) {
                                     return j < lengths[b] && j <= i + lengths[b] - 2;
                                   }));
}

TEST(OpsConvertAttention, AWindowLimitsHowFarAQueryLooks) {
  const Sizes s{1, 1, 1, 5, 5, 2};
  Node node("Attention", 25);
  ASSERT_TRUE(node.floats({1, 1, 5, 2})
                  .floats({1, 1, 5, 2})
                  .floats({1, 1, 5, 2})
                  .attribute("left_window_size", std::int64_t{2})
                  .attribute("right_window_size", std::int64_t{1})
                  .convert())
      << node.error();
  expectNear(node.run(),
             attention(s, inputOf(node, "x0"), inputOf(node, "x1"), inputOf(node, "x2"), 0,
                       [](auto, auto, std::int64_t i, std::int64_t j) { return j >= i - 2 && j <= i + 1; }));
}

TEST(OpsConvertAttention, HeadsMayLieSideBySide) {
  const Sizes s{1, 2, 1, 3, 3, 2};
  Node flat("Attention", 23);
  ASSERT_TRUE(flat.floats({1, 3, 4})
                  .floats({1, 3, 2})
                  .floats({1, 3, 2})
                  .attribute("q_num_heads", std::int64_t{2})
                  .attribute("kv_num_heads", std::int64_t{1})
                  .convert())
      << flat.error();
  const Tensor x = inputOf(flat, "x0"), y = flat.run();
  Tensor q(Type{ElementType::f64, {1, 2, 3, 2}});
  for (std::int64_t i = 0; i < 12; ++i) q.set(i, x.asDouble(i / 2 % 3 * 4 + i / 6 * 2 + i % 2));
  const Tensor expected =
      attention(s, q, inputOf(flat, "x1"), inputOf(flat, "x2"), 0, [](auto, auto, auto, auto) { return true; });
  ASSERT_EQ(y.shape(), (Shape{1, 3, 4}));
  for (std::int64_t i = 0; i < 12; ++i)
    EXPECT_NEAR(y.asDouble(i / 2 % 3 * 4 + i / 6 * 2 + i % 2), expected.asDouble(i), 1e-7);
}

TEST(OpsConvertAttention, HeadsThatDoNotFitAreRefused) {
  Node node("Attention", 23);
  EXPECT_FALSE(node.floats({1, 3, 2, 4}).floats({1, 2, 2, 4}).floats({1, 2, 2, 4}).convert());
  EXPECT_NE(node.error().find("which do not fit"), std::string::npos) << node.error();
}

// A pair is a complex number that is multiplied by another.
TEST(OpsConvertAttention, RotaryEmbeddingTurnsPairs) {
  for (std::int64_t interleaved : {0, 1}) {
    Node node("RotaryEmbedding", 23);
    ASSERT_TRUE(node.floats({1, 2, 3, 6})
                    .floats({5, 2})
                    .floats({5, 2})
                    .constant(Tensor::ofInts({1, 3}, Ints{4, 0, 2}))
                    .attribute("rotary_embedding_dim", std::int64_t{4})
                    .attribute("interleaved", interleaved)
                    .convert())
        << node.error();
    const Tensor x = inputOf(node, "x0"), cos = inputOf(node, "x1"), sin = inputOf(node, "x2"), y = node.run();
    const std::int64_t positions[] = {4, 0, 2};
    for (std::int64_t row = 0; row < 6; ++row)
      for (std::int64_t pair = 0; pair < 2; ++pair) {
        const std::int64_t first = row * 6 + (interleaved ? 2 * pair : pair), second = first + (interleaved ? 1 : 2);
        const std::int64_t angle = positions[row % 3] * 2 + pair;
        const std::complex<double> turned = std::complex(x.asDouble(first), x.asDouble(second)) *
                                            std::complex(cos.asDouble(angle), sin.asDouble(angle));
        EXPECT_NEAR(y.asDouble(first), turned.real(), 1e-7);
        EXPECT_NEAR(y.asDouble(second), turned.imag(), 1e-7);
        EXPECT_EQ(y.asDouble(row * 6 + 4 + pair), x.asDouble(row * 6 + 4 + pair)); // beyond what is turned
      }
  }
}
