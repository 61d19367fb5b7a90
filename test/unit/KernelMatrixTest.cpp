// LINK: pdcrt_kernels
// Linear and MatMul against the definition, computed in double precision.
#include "KernelTest.h"
#include "pdcrt/kernels/Linear.h"
#include "pdcrt/kernels/MatMul.h"

#include <stdexcept>
#include <string>

using namespace pdcrt;

namespace {

std::string sizesName(std::initializer_list<std::int64_t> sizes) {
  std::string name;
  for (std::int64_t size : sizes) name += (name.empty() ? "" : "x") + std::to_string(size);
  return name;
}

class LinearLayer : public testing::TestWithParam<Linear::Options> {
protected:
  const Linear::Options o = GetParam();
  pdcrt::Setup setup;
  const Linear linear{setup, o};

  std::int64_t weightIndex(std::int64_t input, std::int64_t output) const {
    return o.transposed ? output * o.inputs + input : input * o.outputs + output;
  }
  /// Calls visit(x, w, y) with the linear indices of every product.
  template <class Visit>
  void forEachProduct(Visit visit) const {
    for (std::int64_t row = 0; row < o.rows; ++row)
      for (std::int64_t i = 0; i < o.inputs; ++i)
        for (std::int64_t j = 0; j < o.outputs; ++j)
          visit(static_cast<std::size_t>(row * o.inputs + i), static_cast<std::size_t>(weightIndex(i, j)),
                static_cast<std::size_t>(row * o.outputs + j));
  }
};

TEST_P(LinearLayer, ForwardIsTheDefinition) {
  const Buffer<float> x = randomBuffer(o.rows * o.inputs, 1), w = randomBuffer(o.inputs * o.outputs, 2),
                      b = randomBuffer(o.outputs, 3), y(o.rows * o.outputs);
  expectGoodManners(
      setup, {y}, [&](Stream& q) { linear.forward(q, x, w, o.bias ? b.view() : View<float>(), y); }, productMemory,
      "forward");
  std::vector<double> expected(y.values().size());
  if (o.bias)
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = b.values()[i % b.values().size()];
  forEachProduct([&](auto xi, auto wi, auto yi) { expected[yi] += double(x.values()[xi]) * w.values()[wi]; });
  expectClose(y, expected, "y");
}

TEST_P(LinearLayer, InputGradientIsTheDerivative) {
  const Buffer<float> dy = randomBuffer(o.rows * o.outputs, 4), w = randomBuffer(o.inputs * o.outputs, 5),
                      dx(o.rows * o.inputs);
  expectGoodManners(
      setup, {dx}, [&](Stream& q) { linear.inputGradient(q, dy, w, dx); }, productMemory, "inputGradient");
  std::vector<double> expected(dx.values().size());
  forEachProduct([&](auto xi, auto wi, auto yi) { expected[xi] += double(dy.values()[yi]) * w.values()[wi]; });
  expectClose(dx, expected, "dx");
}

TEST_P(LinearLayer, WeightGradientIsTheDerivative) {
  const Buffer<float> x = randomBuffer(o.rows * o.inputs, 6), dy = randomBuffer(o.rows * o.outputs, 7),
                      dw(o.inputs * o.outputs), db(o.bias ? o.outputs : 0);
  expectGoodManners(
      setup, {dw, db}, [&](Stream& q) { linear.weightGradient(q, x, dy, dw, o.bias ? db.view() : View<float>()); },
      productMemory, "weightGradient");
  std::vector<double> expected(dw.values().size()), expectedBias(db.values().size());
  forEachProduct([&](auto xi, auto wi, auto yi) { expected[wi] += double(x.values()[xi]) * dy.values()[yi]; });
  for (std::size_t i = 0; o.bias && i < dy.values().size(); ++i)
    expectedBias[i % expectedBias.size()] += dy.values()[i];
  expectClose(dw, expected, "dw");
  expectClose(db, expectedBias, "db");
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, LinearLayer,
    testing::Values(Linear::Options{.rows = 32, .inputs = 400, .outputs = 120, .transposed = true, .bias = true},
                    Linear::Options{.rows = 32, .inputs = 84, .outputs = 10, .bias = true},
                    Linear::Options{.rows = 1, .inputs = 7, .outputs = 5, .bias = true},
                    Linear::Options{.rows = 3, .inputs = 1, .outputs = 17, .transposed = true},
                    Linear::Options{.rows = 5, .inputs = 33, .outputs = 1},
                    Linear::Options{.rows = 1, .inputs = 1, .outputs = 1, .transposed = true, .bias = true},
                    Linear::Options{.rows = 67, .inputs = 129, .outputs = 65, .transposed = true},
                    Linear::Options{.rows = 130, .inputs = 64, .outputs = 96},
                    // More steps and rows than a cache holds.
                    Linear::Options{.rows = 200, .inputs = 600, .outputs = 70, .transposed = true, .bias = true},
                    Linear::Options{.rows = 300, .inputs = 270, .outputs = 530},
                    Linear::Options{.rows = 120, .inputs = 40, .outputs = 250},
                    // Bound by memory.
                    Linear::Options{.rows = 5, .inputs = 2050, .outputs = 1031, .transposed = true, .bias = true},
                    Linear::Options{.rows = 4, .inputs = 2101, .outputs = 1000, .transposed = true, .bias = true},
                    Linear::Options{.rows = 8, .inputs = 1040, .outputs = 2051, .transposed = true},
                    Linear::Options{.rows = 9, .inputs = 1040, .outputs = 2048},
                    Linear::Options{.rows = 33, .inputs = 1040, .outputs = 2048}),
    [](const auto& p) {
      const Linear::Options& o = p.param;
      return sizesName({o.rows, o.inputs, o.outputs}) + (o.transposed ? "Transposed" : "") + (o.bias ? "WithBias" : "");
    });

class MatrixProduct : public testing::TestWithParam<MatMul::Options> {};

void expectDefinition(const MatMul::Options& o, const Buffer<float>& a, const Buffer<float>& b) {
  const Buffer<float> c(o.batch * o.m * o.n);
  pdcrt::Setup setup;
  const MatMul matmul(setup, o);
  expectGoodManners(
      setup, {c}, [&](Stream& q) { matmul.forward(q, a, b, c); }, productMemory);
  std::vector<double> expected;
  for (std::int64_t g = 0; g < o.batch; ++g)
    for (std::int64_t i = 0; i < o.m; ++i)
      for (std::int64_t j = 0; j < o.n; ++j) {
        double sum = 0;
        for (std::int64_t l = 0; l < o.k; ++l)
          sum += double(a[(o.broadcastA ? 0 : g * o.m * o.k) + (o.transposeA ? l * o.m + i : i * o.k + l)]) *
                 b[(o.broadcastB ? 0 : g * o.k * o.n) + (o.transposeB ? j * o.k + l : l * o.n + j)];
        expected.push_back(sum);
      }
  expectClose(c, expected, "c");
}

TEST_P(MatrixProduct, IsTheDefinition) {
  const MatMul::Options& o = GetParam();
  expectDefinition(o, randomBuffer((o.broadcastA ? 1 : o.batch) * o.m * o.k, 1),
                   randomBuffer((o.broadcastB ? 1 : o.batch) * o.k * o.n, 2));
}

/// Slots of experts that no token has taken: none, some, all but a few, all; in both operands where they are summed
/// over.
TEST(MatrixProductOfExperts, RowsOfZerosAtTheEnd) {
  constexpr std::int64_t batch = 5, rows = 70, left = 250, right = 260;
  for (const bool transposeA : {false, true})
    for (const bool transposeB : {false, true}) {
      const MatMul::Options o = {.batch = batch,
                                 .m = transposeA ? left : rows,
                                 .k = transposeA ? rows : left,
                                 .n = right,
                                 .transposeA = transposeA,
                                 .transposeB = transposeB};
      const Buffer<float> a = randomBuffer(batch * o.m * o.k, 1), b = randomBuffer(batch * o.k * o.n, 2);
      const std::int64_t filledA[batch] = {70, 41, 3, 0, 64}, filledB[batch] = {70, 70, 70, 70, 9};
      for (std::int64_t i = 0; i < batch; ++i) {
        std::fill(a.values().begin() + (i * rows + filledA[i]) * left, a.values().begin() + (i + 1) * rows * left,
                  0.0f);
        if (transposeA && !transposeB)
          std::fill(b.values().begin() + (i * rows + filledB[i]) * right, b.values().begin() + (i + 1) * rows * right,
                    -0.0f);
      }
      expectDefinition(o, a, b);
    }
}

std::vector<MatMul::Options> products() {
  std::vector<MatMul::Options> list;
  for (bool transposeA : {false, true})
    for (bool transposeB : {false, true})
      for (auto [batch, m, k, n] :
           {std::array<std::int64_t, 4>{1, 9, 33, 17}, {6, 16, 8, 24}, {3, 1, 5, 1}, {2, 65, 3, 1}, {2, 37, 41, 35}})
        list.push_back({batch, m, k, n, transposeA, transposeB});
  list.push_back({.batch = 4, .m = 5, .k = 7, .n = 3, .broadcastA = true});
  list.push_back({.batch = 4, .m = 5, .k = 7, .n = 3, .transposeB = true, .broadcastB = true});
  list.push_back({.batch = 3, .m = 40, .k = 50, .n = 33, .transposeA = true, .broadcastA = true});
  list.push_back({.batch = 3, .m = 40, .k = 50, .n = 33, .broadcastB = true});
  return list;
}

INSTANTIATE_TEST_SUITE_P(Shapes, MatrixProduct, testing::ValuesIn(products()), [](const auto& p) {
  const MatMul::Options& o = p.param;
  return sizesName({o.batch, o.m, o.k, o.n}) + (o.transposeA ? "TransposeA" : "") + (o.transposeB ? "TransposeB" : "") +
         (o.broadcastA ? "BroadcastA" : "") + (o.broadcastB ? "BroadcastB" : "");
});

TEST(MatrixOptions, SizesThatAreNotPositiveAreRefused) {
  pdcrt::Setup setup;
  EXPECT_THROW(Linear(setup, {.rows = 0, .inputs = 2, .outputs = 3}), std::runtime_error);
  EXPECT_THROW(MatMul(setup, {.batch = 1, .m = 2, .k = 0, .n = 3}), std::runtime_error);
}

} // namespace
