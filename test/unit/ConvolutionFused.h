// A convolution with what it takes over from its neighbours against the same without.
#pragma once

#include "KernelTest.h"
#include "pdcrt/kernels/Conv2d.h"
#include "pdcrt/kernels/MaxPool2d.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace pdcrt {

/// Expects what is below zero to be 0, what is not to have the same bits, and NaN to stay. The layouts are those of
/// `o`, in which no element is missing.
inline void expectReluOf(Conv2d::Options o, bool withNaN) {
  const std::int64_t count = Conv2d::outputShape(o).elements();
  const Buffer<float> x = randomBuffer(o.input.elements(), 1), w = randomBuffer(o.filter.elements(), 2),
                      b = randomBuffer(o.filter.dims[0], 3), plain(count), y(count);
  // At two positions: strides may leave one out.
  for (std::int64_t i : {std::int64_t{0}, std::min<std::int64_t>(16, x.count() - 1)})
    if (withNaN) x[i] = std::numeric_limits<float>::quiet_NaN();
  const auto compute = [&](bool relu, const Buffer<float>& to) {
    o.relu = relu;
    Setup setup;
    const Conv2d conv(setup, o);
    const GuardedBytes workspace(setup.workspaceBytes());
    Stream q(workspace.data(), workspace.size());
    conv.forward(q, x, w, o.bias ? b.view() : View<float>(), to);
  };
  compute(false, plain);
  compute(true, y);
  std::int64_t negative = 0, nans = 0, kept = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    negative += plain[i] < 0;
    nans += std::isnan(plain[i]);
    kept += std::isnan(plain[i]) == std::isnan(y[i]) && (std::isnan(y[i]) || y[i] == (plain[i] < 0 ? 0 : plain[i]));
  }
  EXPECT_EQ(kept, count);
  EXPECT_TRUE(withNaN ? nans > 0 : negative > 0); // else nothing was tested
}

/// Expects maxima and their indices to be what pooling the convolution's result gives. The layouts are those of `o`, in
/// which no element is missing.
inline void expectPooledOf(Conv2d::Options o, std::size_t allocation) {
  const Shape y = Conv2d::outputShape(o), pooled = Conv2d::pooledShape(o);
  if (pooled.elements() == 0) GTEST_SKIP() << "smaller than a window";
  const Buffer<float> x = randomBuffer(o.input.elements(), 1), w = randomBuffer(o.filter.elements(), 2),
                      b = randomBuffer(o.filter.dims[0], 3), result(y.elements()), expected(pooled.elements()),
                      maxima(pooled.elements()), alone(pooled.elements());
  const Buffer<std::int32_t> expectedIndex(pooled.elements()), index(pooled.elements());
  x[0] = std::numeric_limits<float>::quiet_NaN();
  for (std::int64_t i = x.count() / 2; i < x.count(); ++i) x[i] = 0; // of another sample, if there is one: all equal
  const View<const float> bias = o.bias ? b.view() : View<float>();
  o.relu = false;
  Setup setup;
  const Conv2d conv(setup, o);
  for (bool relu : {false, true}) {
    const MaxPool2d pool(
        setup,
        {.input = y, .output = pooled, .kernel = {2, 2}, .strides = {2, 2}, .relu = relu, .lanes = o.outputLanes});
    const GuardedBytes workspace(setup.workspaceBytes());
    Stream q(workspace.data(), workspace.size());
    conv.forward(q, x, w, bias, result);
    pool.forward(q, result, expected, expectedIndex);
    o.relu = relu, o.pooled = true;
    Setup own;
    const Conv2d both(own, o);
    expectGoodManners(
        own, {maxima, index}, [&](Stream& s) { both.forwardPooled(s, x, w, bias, maxima, index); }, allocation,
        "forwardPooled");
    expectGoodManners(
        own, {alone}, [&](Stream& s) { both.forwardPooled(s, x, w, bias, alone, {}); }, allocation, "forwardPooled");
    EXPECT_TRUE(std::ranges::equal(index.values(), expectedIndex.values()));
    const auto same = [](float one, float other) { return one == other || (std::isnan(one) && std::isnan(other)); };
    EXPECT_TRUE(std::ranges::equal(maxima.values(), expected.values(), same));
    EXPECT_TRUE(std::ranges::equal(alone.values(), expected.values(), same));
  }
}

/// Expects an input gradient that is added to something to be their sum, wherever it is put. The layouts are those of
/// `o`, in which no element is missing.
inline void expectAddedOf(const Conv2d::Options& o, std::size_t allocation) {
  const Buffer<float> dy = randomBuffer(Conv2d::outputShape(o).elements(), 4), w = randomBuffer(o.filter.elements(), 5),
                      added = randomBuffer(o.input.elements(), 6), dx(added.count()), sum(added.count());
  Setup setup;
  const Conv2d conv(setup, o);
  expectGoodManners(
      setup, {dx}, [&](Stream& q) { conv.inputGradient(q, dy, w, dx); }, allocation, "inputGradient");
  expectGoodManners(
      setup, {sum}, [&](Stream& q) { conv.addedInputGradient(q, dy, w, added, sum); }, allocation,
      "addedInputGradient");
  std::vector<double> expected;
  for (std::int64_t i = 0; i < dx.count(); ++i) expected.push_back(double(added[i]) + dx[i]);
  EXPECT_LE(relativeError(sum, expected), 1e-6);
  const GuardedBytes workspace(setup.workspaceBytes());
  Stream q(workspace.data(), workspace.size());
  conv.addedInputGradient(q, dy, w, added, added);
  EXPECT_TRUE(std::ranges::equal(added.values(), sum.values()));
}

} // namespace pdcrt
