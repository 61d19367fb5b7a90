// LINK: pdcrt_kernels
// Gradients of linear layers where rows of dy are zeros, against the definition in double precision. What is multiplied
// by such a row here is not finite, so that a result shows whether it was read.
#include "KernelTest.h"
#include "pdcrt/kernels/Linear.h"

#include <limits>
#include <string>

using namespace pdcrt;

namespace {

constexpr float infinite = std::numeric_limits<float>::infinity();

struct Case {
  std::string name;
  Linear::Options options;
  std::function<bool(std::int64_t)> live; ///< whether a row of dy is not zeros
};

class LiveRowsOfLinear : public testing::TestWithParam<Case> {
protected:
  const Linear::Options o = GetParam().options;
  pdcrt::Setup setup;
  const Linear linear{setup, o};
  Buffer<float> dy = randomBuffer(o.rows * o.outputs, 1);

  LiveRowsOfLinear() {
    for (std::int64_t i = 0; i < dy.count(); ++i)
      if (!isLive(i / o.outputs)) dy[i] = i % 3 == 0 ? -0.0f : 0.0f;
  }
  bool isLive(std::int64_t row) const { return GetParam().live(row); }
  std::int64_t weightIndex(std::int64_t input, std::int64_t output) const {
    return o.transposed ? output * o.inputs + input : input * o.outputs + output;
  }
};

TEST_P(LiveRowsOfLinear, InputGradientIsTheDerivative) {
  const Buffer<float> w = randomBuffer(o.inputs * o.outputs, 2), dx(o.rows * o.inputs);
  expectGoodManners(
      setup, {dx}, [&](Stream& q) { linear.inputGradient(q, dy, w, dx); }, productMemory, "inputGradient");
  std::vector<double> expected(dx.values().size());
  for (std::int64_t row = 0; row < o.rows; ++row)
    for (std::int64_t i = 0; isLive(row) && i < o.inputs; ++i)
      for (std::int64_t j = 0; j < o.outputs; ++j)
        expected[static_cast<std::size_t>(row * o.inputs + i)] +=
            double(dy[row * o.outputs + j]) * w[weightIndex(i, j)];
  expectClose(dx, expected, "dx");
}

TEST_P(LiveRowsOfLinear, WeightGradientIsTheDerivative) {
  const Buffer<float> x = randomBuffer(o.rows * o.inputs, 3), dw(o.inputs * o.outputs), db(o.bias ? o.outputs : 0);
  expectGoodManners(
      setup, {dw, db}, [&](Stream& q) { linear.weightGradient(q, x, dy, dw, o.bias ? db.view() : View<float>()); },
      productMemory, "weightGradient");
  std::vector<double> expected(dw.values().size()), expectedBias(db.values().size());
  for (std::int64_t row = 0; row < o.rows; ++row)
    for (std::int64_t j = 0; isLive(row) && j < o.outputs; ++j) {
      for (std::int64_t i = 0; i < o.inputs; ++i)
        expected[static_cast<std::size_t>(weightIndex(i, j))] +=
            double(x[row * o.inputs + i]) * dy[row * o.outputs + j];
      if (o.bias) expectedBias[static_cast<std::size_t>(j)] += dy[row * o.outputs + j];
    }
  expectClose(dw, expected, "dw");
  expectClose(db, expectedBias, "db");
}

const Linear::Options large = {.rows = 200, .inputs = 96, .outputs = 130, .transposed = true, .bias = true},
                      straight = {.rows = 70, .inputs = 65, .outputs = 64};

INSTANTIATE_TEST_SUITE_P(Rows, LiveRowsOfLinear,
                         testing::Values(Case{"AllButOne", large, [](std::int64_t row) { return row != 77; }},
                                         Case{"AllButTheLastTile", large, [](std::int64_t row) { return row < 192; }},
                                         Case{"Padded", large, [](std::int64_t row) { return row % 50 < 21; }},
                                         Case{"FirstRowsAreZeros", large, [](std::int64_t row) { return row >= 100; }},
                                         Case{"Last", large, [](std::int64_t row) { return row == 199; }},
                                         Case{"None", large, [](std::int64_t) { return false; }},
                                         Case{"Scattered", straight, [](std::int64_t row) { return row * 7 % 5 == 1; }},
                                         Case{"WholeTile", straight, [](std::int64_t row) { return row < 16; }},
                                         Case{"AllZeros", straight, [](std::int64_t) { return false; }}),
                         [](const auto& p) { return p.param.name; });

/// What meets a row of zeros is left out, also where it is not finite; a NaN in dy is not zero.
TEST(LiveRowsOfLinear, OthersAreNotRead) {
  const Linear::Options o = {.rows = 64, .inputs = 64, .outputs = 80, .transposed = true};
  pdcrt::Setup setup;
  const Linear linear(setup, o);
  GuardedBytes workspace(setup.workspaceBytes());
  Stream q(workspace.data(), workspace.size());
  const Buffer<float> x = randomBuffer(o.rows * o.inputs, 1), w = randomBuffer(o.inputs * o.outputs, 2),
                      dy = randomBuffer(o.rows * o.outputs, 3), dx(x.count()), dw(w.count());
  std::fill_n(dy.view().data + 10 * o.outputs, 30 * o.outputs, 0.0f);
  std::fill_n(x.view().data + 10 * o.inputs, 30 * o.inputs, infinite);
  linear.weightGradient(q, x, dy, dw, {});
  EXPECT_TRUE(std::all_of(dw.values().begin(), dw.values().end(), [](float value) { return std::isfinite(value); }));
  w[5] = infinite; // of output 0, input 5
  linear.inputGradient(q, dy, w, dx);
  for (std::int64_t row = 0; row < o.rows; ++row)
    EXPECT_EQ(std::isfinite(dx[row * o.inputs + 5]), row >= 10 && row < 40) << row;
  dy[20 * o.outputs + 79] = std::numeric_limits<float>::quiet_NaN();
  linear.weightGradient(q, x, dy, dw, {});
  EXPECT_TRUE(std::isnan(dw[79 * o.inputs]));
}

} // namespace
