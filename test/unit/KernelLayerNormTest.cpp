// LINK: pdcrt_kernels
// LayerNorm against its definition in double precision, and its gradients against central differences of that.
#include "KernelTest.h"
#include "pdcrt/kernels/LayerNorm.h"

#include <ostream>

using namespace pdcrt;

namespace {

using Values = std::vector<double>;

constexpr double epsilon = 1e-3;

struct Case {
  std::int64_t rows, size;
  bool centred, affine;
};

void PrintTo(const Case& c, std::ostream* stream) {
  *stream << c.rows << "x" << c.size << (c.centred ? "" : " rms") << (c.affine ? "" : " without scale");
}

class LayerNormRows : public testing::TestWithParam<Case> {
protected:
  const Case c = GetParam();
  const std::int64_t count = c.rows * c.size;
  const Buffer<float> x = randomBuffer(count, 1), dy = randomBuffer(count, 2), scale = randomBuffer(c.size, 3),
                      bias = randomBuffer(c.size, 4), y = room(count), dx = room(count), mean = room(c.rows),
                      inverse = room(c.rows), dscale = room(c.size), dbias = room(c.size);
  pdcrt::Setup setup;
  const LayerNorm norm{setup, {.rows = c.rows, .size = c.size, .epsilon = epsilon}};

  void SetUp() override {
    for (float& value : x.values()) value = value * 0.5f + 3; // a mean far from 0
    for (float& value : scale.values()) value = c.affine ? value : 1;
    for (float& value : bias.values()) value = c.affine && c.centred ? value : 0;
  }

  static Values toDouble(const Buffer<float>& buffer) { return {buffer.values().begin(), buffer.values().end()}; }

  Values definition(const Values& in, const Values& scales, const Values& biases) const {
    Values out;
    const auto size = static_cast<std::size_t>(c.size);
    for (std::size_t begin = 0; begin < in.size(); begin += size) {
      double average = 0, square = 0;
      for (std::size_t i = 0; c.centred && i < size; ++i) average += in[begin + i] / static_cast<double>(size);
      for (std::size_t i = 0; i < size; ++i)
        square += (in[begin + i] - average) * (in[begin + i] - average) / static_cast<double>(size);
      for (std::size_t i = 0; i < size; ++i)
        out.push_back((in[begin + i] - average) / std::sqrt(square + epsilon) * scales[i] + biases[i]);
    }
    return out;
  }

  /// ∂(dy · f)/∂at.
  Values differences(Values at, const std::function<Values(const Values&)>& function) const {
    const Values weights = toDouble(dy);
    const auto value = [&](const Values& v) {
      const Values result = function(v);
      double sum = 0;
      for (std::size_t i = 0; i < result.size(); ++i) sum += weights[i] * result[i];
      return sum;
    };
    Values gradient;
    for (double& element : at) {
      const double middle = element, step = 1e-5;
      element = middle + step;
      const double above = value(at);
      element = middle - step;
      gradient.push_back((above - value(at)) / (2 * step));
      element = middle;
    }
    return gradient;
  }

  View<const float> given(const Buffer<float>& weight) const {
    return c.affine ? View<const float>(weight) : View<const float>();
  }
  void forward(Stream& q, View<float> to) const {
    if (c.centred) return norm.forward(q, x.view(), given(scale), given(bias), {}, to, mean, inverse, {}, {});
    norm.rmsForward(q, x.view(), given(scale), {}, to, inverse, {}, {});
  }
  void inputGradient(Stream& q, View<const float> from, View<float> to, View<const float> added = {}) const {
    if (c.centred) return norm.inputGradient(q, from, x, given(scale), mean, inverse, added, to, {});
    norm.rmsInputGradient(q, from, x, given(scale), inverse, added, to, {});
  }
};

TEST_P(LayerNormRows, IsTheDefinitionAndItsDerivatives) {
  expectGoodManners(setup, {y, inverse}, [&](Stream& q) { forward(q, y); });
  const Values in = toDouble(x), scales = toDouble(scale), biases = toDouble(bias);
  expectClose(y, definition(in, scales, biases), "y");

  expectGoodManners(setup, {dx}, [&](Stream& q) { inputGradient(q, dy, dx); });
  expectClose(dx, differences(in, [&](const Values& v) { return definition(v, scales, biases); }), "dx");

  expectGoodManners(setup, {dscale}, [&](Stream& q) {
    if (c.centred) return norm.weightGradient(q, dy.view(), x, mean, inverse, dscale, dbias);
    norm.rmsWeightGradient(q, dy.view(), x, inverse, dscale);
  });
  expectClose(dscale, differences(scales, [&](const Values& v) { return definition(in, v, biases); }), "dscale");
  if (c.centred)
    expectClose(dbias, differences(biases, [&](const Values& v) { return definition(in, scales, v); }), "dbias");
}

TEST_P(LayerNormRows, TheGradientMayBeAddedToAnother) {
  RoomyStream q;
  forward(q, y);
  inputGradient(q, dy, dx);
  const Buffer<float> added = randomBuffer(count, 5), sum = room(count);
  expectGoodManners(setup, {sum}, [&](Stream& s) { inputGradient(s, dy, sum, added); });
  Values expected = toDouble(dx);
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += added.values()[i];
  expectClose(sum, expected, "sum");
}

TEST_P(LayerNormRows, ResultsMayLieInTheirOperands) {
  RoomyStream q;
  forward(q, y);
  const Buffer<float> added = randomBuffer(count, 5), sum = room(count);
  inputGradient(q, dy, sum, added);
  inputGradient(q, dy, added, added);
  EXPECT_TRUE(std::ranges::equal(added.values(), sum.values()));
  inputGradient(q, dy, dx);
  inputGradient(q, dy, dy);
  forward(q, x);
  EXPECT_TRUE(std::ranges::equal(dy.values(), dx.values()));
  EXPECT_TRUE(std::ranges::equal(x.values(), y.values()));
}

TEST_P(LayerNormRows, SomethingMayBeAddedBefore) {
  const Buffer<float> added = randomBuffer(count, 5), sum = room(count), ofSum = room(count);
  const auto withAdded = [&](Stream& s, View<float> to) {
    if (c.centred)
      return norm.forward(s, x.view(), given(scale), given(bias), added, ofSum.view(), mean, inverse, to, {});
    norm.rmsForward(s, x.view(), given(scale), added, ofSum.view(), inverse, to, {});
  };
  expectGoodManners(setup, {ofSum, inverse, sum}, [&](Stream& s) { withAdded(s, sum); });
  for (std::int64_t i = 0; i < count; ++i) ASSERT_EQ(sum[i], x[i] + added[i]) << "element " << i;
  expectClose(ofSum, definition(toDouble(sum), toDouble(scale), toDouble(bias)), "y");
  RoomyStream q;
  withAdded(q, added);
  EXPECT_TRUE(std::ranges::equal(added.values(), sum.values())) << "in place of what is added";
}

INSTANTIATE_TEST_SUITE_P(Shapes, LayerNormRows,
                         testing::Values(Case{5, 10, true, true}, Case{1, 33, true, true}, Case{4, 64, true, false},
                                         Case{5, 10, false, true}, Case{3, 49, false, false}, Case{2, 1, true, true},
                                         // Held by a warp, by a block, and in pieces; four at once, and one by one.
                                         Case{9, 132, true, true}, Case{3, 150, false, true}, Case{2, 1028, true, true},
                                         Case{1, 2051, true, true}, Case{1, 4100, true, true},
                                         Case{1, 4100, false, false},
                                         // More rows than threads that add them up.
                                         Case{300, 12, true, true}, Case{150, 7, true, true}));

} // namespace
