// LINK: pdcrt_kernels
// Linear layers with int8 weights have the bits of the definition with integers of 64 bits, and are near the layer that
// was quantised, element by element.
#include "Int8Layer.h"
#include "pdcrt/Int8.h"
#include "pdcrt/Threads.h"

using namespace pdcrt;

namespace {

class Int8Layer : public testing::TestWithParam<Int8Case> {
protected:
  void TearDown() override { kernelThreads = 1; }
};

} // namespace

TEST_P(Int8Layer, IsAsNearAsTheRoundingsAllow) {
  const QuantisedLayer l(GetParam());
  const Int8Definition expected(l);
  pdcrt::Setup setup;
  const LinearInt8 kernel(setup, l.o);
  expectGoodManners(
      setup, {l.y}, [&](Stream& q) { kernel.forward(q, l.x, l.w, l.scale, l.kept, l.keptInputs, l.bias, l.y); }, 0,
      "forward");
  EXPECT_EQ(differingBits(l.y, expected.ys), 0);
  std::int64_t beyond = 0;
  for (std::size_t i = 0; i < expected.exacts.size(); ++i)
    beyond += !(std::fabs(l.y[static_cast<std::int64_t>(i)] - expected.exacts[i]) <= expected.bounds[i]);
  EXPECT_EQ(beyond, 0) << "elements are further off than their bound";
}

TEST_P(Int8Layer, GradientIsTheProductWithTheWeights) {
  const QuantisedLayer l(GetParam());
  const Buffer<float> dy = randomBuffer(l.o.rows * l.o.outputs, 7), dx = room(l.o.rows * l.o.inputs);
  if (l.o.rows * l.o.inputs * l.o.outputs > std::int64_t{1} << 26) GTEST_SKIP() << "for the sums of integers";
  std::vector<double> expected(static_cast<std::size_t>(dx.count()));
  for (std::int64_t k = 0; k < l.o.outputs; ++k)
    for (std::int64_t i = 0; i < l.o.inputs; ++i) {
      const double weight = l.weight(k, i);
      for (std::int64_t j = 0; j < l.o.rows; ++j)
        expected[static_cast<std::size_t>(j * l.o.inputs + i)] += dy[j * l.o.outputs + k] * weight;
    }
  for (int threads : {1, 2}) {
    kernelThreads = threads;
    pdcrt::Setup setup;
    const LinearInt8 kernel(setup, l.o);
    expectGoodManners(
        setup, {dx}, [&](Stream& q) { kernel.inputGradient(q, dy, l.w, l.scale, l.kept, l.keptInputs, dx); },
        threads == 1 ? productMemory : std::size_t{2} << 20, "inputGradient");
    expectClose(dx, expected, "dX");
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, Int8Layer, testing::ValuesIn(int8Cases));

// What is not a number or infinite is multiplied as it is, whatever alpha.
TEST(Int8Sums, NotFiniteInputsAreOutliers) {
  Buffer<float> x{std::numeric_limits<float>::infinity(), 1, 2, std::numeric_limits<float>::quiet_NaN()}, scale{1},
      y(2);
  const Buffer<std::int8_t> w{127, 127};
  pdcrt::Setup setup;
  const LinearInt8 kernel(setup, {.rows = 2, .inputs = 2, .outputs = 1, .alpha = infinite});
  const GuardedBytes workspace(setup.workspaceBytes());
  Stream q(workspace.data(), workspace.size());
  kernel.forward(q, x, w, scale, {}, {}, {}, y);
  EXPECT_EQ(y[0], std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(y[1]));
}

// A row whose scale is subnormal, or nothing.
TEST(Int8Sums, TinyRowsStayWithinTheIntegers) {
  EXPECT_EQ(int8::quantized(1e-45f, int8::scaleOf(1e-45f)), 0);
  const float tiny = 190 * std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(int8::quantized(tiny, int8::scaleOf(tiny)), 127);
  EXPECT_EQ(int8::quantized(-tiny, int8::scaleOf(tiny)), -127);
  EXPECT_EQ(int8::quantized(2.5f, 1), 2);
  EXPECT_EQ(int8::quantized(3.5f, 1), 4);
  Buffer<float> x{tiny}, scale{1e30f}, y(1);
  const Buffer<std::int8_t> w{127};
  pdcrt::Setup setup;
  const LinearInt8 kernel(setup, {.rows = 1, .inputs = 1, .outputs = 1});
  const GuardedBytes workspace(setup.workspaceBytes());
  Stream q(workspace.data(), workspace.size());
  kernel.forward(q, x, w, scale, {}, {}, {}, y);
  EXPECT_EQ(y[0], 127.0f * 127.0f * (int8::scaleOf(tiny) * 1e30f));
}
