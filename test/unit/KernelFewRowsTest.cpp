// LINK: pdcrt_kernels
// Gradients of large weights that few rows meet: in parts they are those that are made as a whole, by one thread or by
// several; and on processors without AVX-512 they are the definition too.
#include "FewRows.h"
#include "KernelTest.h"
#include "pdcrt/Threads.h"
#include "pdcrt/kernels/Linear.h"

#include <atomic>
#include <limits>

using namespace pdcrt;

namespace {

class FewRows : public testing::TestWithParam<Linear::Options> {
protected:
  const Linear::Options o = GetParam();
  const Buffer<float> x = randomBuffer(o.rows * o.inputs, 1), dy = randomBuffer(o.rows * o.outputs, 2),
                      dw = room(o.inputs * o.outputs), db = room(o.outputs);
  void TearDown() override { kernelThreads = 1; }
};

TEST_P(FewRows, PartsAreTheWhole) {
  ASSERT_GT(Linear::partSize(o), 0);
  ASSERT_LT(Linear::partSize(o), o.inputs * o.outputs);
  pdcrt::Setup whole;
  const Linear linear(whole, o);
  expectGoodManners(
      whole, {dw, db}, [&](Stream& q) { linear.weightGradient(q, x, dy, dw, db); }, 0, "weightGradient");
  for (int threads : {1, 2, 3}) {
    SCOPED_TRACE(threads);
    kernelThreads = threads;
    pdcrt::Setup setup;
    const Linear kernel(setup, o);
    const Buffer<float> part = room(Linear::partSize(o)), bias = room(o.outputs), made = room(o.inputs * o.outputs);
    const GuardedBytes workspace(setup.workspaceBytes("weightGradientInParts"));
    Stream q(workspace.data(), workspace.size());
    std::atomic<std::int64_t> elements = 0;
    kernel.weightGradientInParts(q, x, dy, part, bias, [&](const float* values, Elements of) {
      elements += of.count;
      std::copy(values, values + of.count, made.view().data + of.begin);
    });
    EXPECT_EQ(elements, o.inputs * o.outputs) << "some elements were taken twice, or never";
    EXPECT_TRUE(std::ranges::equal(made.values(), dw.values()));
    EXPECT_TRUE(std::ranges::equal(bias.values(), db.values()));
    for (const GuardedBytes* bytes : {&part.bytes(), &bias.bytes(), &made.bytes(), &workspace})
      EXPECT_TRUE(bytes->guardsIntact());
  }
}

TEST_P(FewRows, BothGradientsInPartsAreThoseApart) {
  const Buffer<float> w = randomBuffer(o.inputs * o.outputs, 3), dx = room(o.rows * o.inputs);
  for (int threads : {1, 2, 3}) {
    SCOPED_TRACE(threads);
    kernelThreads = threads;
    pdcrt::Setup setup;
    const Linear kernel(setup, o);
    const GuardedBytes apart(setup.workspaceBytes()), workspace(setup.workspaceBytes("gradientsInParts"));
    Stream before(apart.data(), apart.size()), q(workspace.data(), workspace.size());
    kernel.inputGradient(before, dy, w, dx);
    kernel.weightGradient(before, x, dy, dw, db);
    const Buffer<float> part = room(Linear::partSize(o)), bias = room(o.outputs), made = room(w.count()),
                        input = room(dx.count()), changed = room(w.count());
    std::copy(w.values().begin(), w.values().end(), changed.values().begin());
    std::fill_n(input.view().data, input.count(), std::numeric_limits<float>::quiet_NaN());
    std::atomic<std::int64_t> elements = 0;
    kernel.gradientsInParts(q, x, dy, changed, part, bias, input, [&](const float* values, Elements of) {
      elements += of.count;
      std::copy(values, values + of.count, made.view().data + of.begin);
      std::fill_n(changed.view().data + of.begin, of.count, 1e9F); // an update: no other gradient may see it
    });
    EXPECT_EQ(elements, o.inputs * o.outputs) << "some elements were taken twice, or never";
    EXPECT_TRUE(std::ranges::equal(made.values(), dw.values()));
    EXPECT_TRUE(std::ranges::equal(bias.values(), db.values()));
    EXPECT_TRUE(std::ranges::equal(input.values(), dx.values()));
    for (const GuardedBytes* bytes : {&part.bytes(), &bias.bytes(), &made.bytes(), &input.bytes(), &workspace})
      EXPECT_TRUE(bytes->guardsIntact());
  }
}

/// Puts the parts of a gradient together.
class Whole : public GradientTaker {
public:
  explicit Whole(View<float> gradient) : gradient_(gradient) {}
  void take(int parameter, const float* values, Elements of) override {
    EXPECT_EQ(parameter, 17);
    std::copy(values, values + of.count, gradient_.data + of.begin);
  }

private:
  View<float> gradient_;
};

TEST_P(FewRows, PartsGoToTheTakerOfTheStreamWithoutAllocation) {
  pdcrt::Setup setup;
  const Linear linear(setup, o);
  const Buffer<float> part = room(Linear::partSize(o)), made = room(o.inputs * o.outputs);
  Whole whole(made);
  expectGoodManners(
      setup, {made, db},
      [&](Stream& q) {
        q.giveGradientsTo(&whole);
        linear.weightGradientInParts(q, x, dy, part, db, q.updater(17));
      },
      0, "weightGradientInParts");
  EXPECT_TRUE(part.bytes().guardsIntact());
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, FewRows,
    testing::Values(Linear::Options{.rows = 5, .inputs = 2050, .outputs = 1031, .transposed = true, .bias = true},
                    Linear::Options{.rows = 8, .inputs = 1040, .outputs = 2051, .bias = true},
                    Linear::Options{.rows = 32, .inputs = 1101, .outputs = 2000, .transposed = true, .bias = true},
                    Linear::Options{.rows = 1, .inputs = 7, .outputs = 300000, .transposed = true, .bias = true},
                    // A row of the weights is more than a part should be.
                    Linear::Options{.rows = 3, .inputs = 700003, .outputs = 3, .transposed = true, .bias = true}),
    [](const auto& p) {
      const Linear::Options& o = p.param;
      return std::to_string(o.rows) + "x" + std::to_string(o.inputs) + "x" + std::to_string(o.outputs);
    });

// Where there are more rows, or weights that a cache holds, nothing would be gained.
TEST(FewRowsSizes, OthersHaveNoParts) {
  EXPECT_EQ(Linear::partSize({.rows = 33, .inputs = 2050, .outputs = 1031}), 0);
  EXPECT_EQ(Linear::partSize({.rows = 4, .inputs = 512, .outputs = 512}), 0);
}

// Columns of a that are neighbours of others.
TEST(FewRowsProduct, WithoutAvx512IsTheDefinition) {
  constexpr std::int64_t m = 5, n = 2063, stride = 9, first = 3;
  for (std::int64_t k = 1; k <= fewrows::mostSteps; ++k) {
    const Buffer<float> a = randomBuffer(k * stride, 1), b = randomBuffer(k * n, 2), c = room(m * n);
    fewrows::portableMultiplyTransposed(m, k, n, a.view().data + first, stride, b.view().data, c.view().data);
    EXPECT_TRUE(c.bytes().guardsIntact());
    std::vector<double> expected(static_cast<std::size_t>(m * n));
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j)
        for (std::int64_t l = 0; l < k; ++l)
          expected[static_cast<std::size_t>(i * n + j)] += double(a[l * stride + first + i]) * b[l * n + j];
    expectClose(c, expected, "c");
  }
}

} // namespace
