// LINK: pdcrt_kernels
// Linear layers of which some rows are left out, against the definition in double precision. Rows of x that are left
// out are not finite here, so that a result shows whether they were read.
#include "KernelTest.h"
#include "pdcrt/kernels/LinearOfRows.h"

#include <limits>
#include <string>

using namespace pdcrt;

namespace {

struct Case {
  std::string name;
  LinearOfRows::Options options;
  std::function<bool(std::int64_t)> live;
};

class LinearOfRowsIs : public testing::TestWithParam<Case> {};

TEST_P(LinearOfRowsIs, TheDefinition) {
  const LinearOfRows::Options& o = GetParam().options;
  pdcrt::Setup setup;
  const LinearOfRows linear(setup, o);
  Buffer<float> x = randomBuffer(o.rows * o.inputs, 1), live(o.rows);
  const Buffer<float> w = randomBuffer(o.inputs * o.outputs, 2), b = randomBuffer(o.bias ? o.outputs : 0, 3),
                      y(o.rows * o.outputs);
  for (std::int64_t row = 0; row < o.rows; ++row) {
    live[row] = GetParam().live(row) ? 1.0f : 0.0f;
    for (std::int64_t i = 0; live[row] == 0 && i < o.inputs; ++i)
      x[row * o.inputs + i] = std::numeric_limits<float>::infinity();
  }
  std::vector<double> expected(y.values().size());
  for (std::int64_t row = 0; row < o.rows; ++row)
    for (std::int64_t j = 0; live[row] != 0 && j < o.outputs; ++j) {
      double sum = o.bias ? b[j] : 0;
      for (std::int64_t i = 0; i < o.inputs; ++i)
        sum += double(x[row * o.inputs + i]) * w[o.transposed ? j * o.inputs + i : i * o.outputs + j];
      expected[static_cast<std::size_t>(row * o.outputs + j)] = sum;
    }
  expectGoodManners(
      setup, {y}, [&](Stream& q) { linear.forward(q, x, w, live, b, y); }, productMemory, "forward");
  expectClose(y, expected, "y");
}

const LinearOfRows::Options large = {.rows = 200, .inputs = 96, .outputs = 130, .transposed = true, .bias = true},
                            straight = {.rows = 70, .inputs = 65, .outputs = 64},
                            small = {.rows = 5, .inputs = 3, .outputs = 2, .bias = true};

INSTANTIATE_TEST_SUITE_P(Of, LinearOfRowsIs,
                         testing::Values(Case{"Halves", large, [](std::int64_t row) { return row % 50 < 25; }},
                                         Case{"EverySecond", large, [](std::int64_t row) { return row % 2 == 1; }},
                                         Case{"All", large, [](std::int64_t) { return true; }},
                                         Case{"AllButOne", large, [](std::int64_t row) { return row != 77; }},
                                         Case{"None", large, [](std::int64_t) { return false; }},
                                         Case{"TheLast", straight, [](std::int64_t row) { return row == 69; }},
                                         Case{"Some", straight, [](std::int64_t row) { return row % 7 < 3; }},
                                         Case{"Few", small, [](std::int64_t row) { return row % 2 == 0; }}),
                         [](const testing::TestParamInfo<Case>& test) { return test.param.name; });

} // namespace
