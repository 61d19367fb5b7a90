// LINK: pdcrt_kernels
// Linear on CPUs where it makes its results in parts, of which the stream is told.
#include "KernelTest.h"
#include "pdcrt/kernels/Linear.h"

#include <stdexcept>
#include <vector>

using namespace pdcrt;

namespace {

TEST(LinearInParts, EachPartIsToldWhenItIsThere) {
  const Linear::Options o{.rows = 96, .inputs = 40, .outputs = 24, .bias = true, .parts = 4};
  pdcrt::Setup setup;
  const Linear linear(setup, o);
  const Buffer<float> x = randomBuffer(o.rows * o.inputs, 1), w = randomBuffer(o.inputs * o.outputs, 2),
                      b = randomBuffer(o.outputs, 3);
  struct Taker : ResultTaker {
    explicit Taker(std::vector<float>& of) : result(of) {}
    void take(const std::byte* end) override {
      const auto count = reinterpret_cast<const float*>(end) - result.data();
      counts.push_back(count);
      there.assign(result.begin(), result.begin() + count);
    }
    std::vector<float>& result;
    std::vector<std::ptrdiff_t> counts;
    std::vector<float> there; ///< what was final
  };
  const auto run = [&](std::int64_t columns, const auto& kernel, const std::vector<double>& expected) {
    std::vector<float> y(static_cast<std::size_t>(o.rows * columns), -1);
    std::vector<std::byte> workspace(setup.workspaceBytes());
    Stream q(workspace.data(), workspace.size());
    Taker taker(y);
    q.giveResultTo(&taker);
    kernel(q, View<float>(y.data()));
    const std::ptrdiff_t part = o.rows * columns / 4;
    EXPECT_EQ(taker.counts, (std::vector<std::ptrdiff_t>{part, 2 * part, 3 * part, 4 * part}));
    EXPECT_EQ(taker.there, y) << "it was changed later";
    for (std::size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], expected[i], 1e-4) << i;
  };
  std::vector<double> y(static_cast<std::size_t>(o.rows * o.outputs)), dx(static_cast<std::size_t>(o.rows * o.inputs));
  const Buffer<float> dy = randomBuffer(o.rows * o.outputs, 4);
  for (std::size_t r = 0; r < 96; ++r)
    for (std::size_t j = 0; j < 24; ++j) {
      y[r * 24 + j] = b.values()[j];
      for (std::size_t i = 0; i < 40; ++i) {
        y[r * 24 + j] += double(x.values()[r * 40 + i]) * w.values()[i * 24 + j];
        dx[r * 40 + i] += double(dy.values()[r * 24 + j]) * w.values()[i * 24 + j];
      }
    }
  run(
      o.outputs, [&](Stream& q, View<float> to) { linear.forward(q, x, w, b, to); }, y);
  run(
      o.inputs, [&](Stream& q, View<float> to) { linear.inputGradient(q, dy, w, to); }, dx);
}

TEST(LinearInParts, PartsThatAreNotEqualAreRefused) {
  pdcrt::Setup setup;
  EXPECT_THROW(Linear(setup, {.rows = 6, .inputs = 2, .outputs = 3, .parts = 4}), std::runtime_error);
  EXPECT_THROW(Linear(setup, {.rows = 6, .inputs = 2, .outputs = 3, .parts = 0}), std::runtime_error);
}

} // namespace
