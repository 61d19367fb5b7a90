// A convolution with what it takes over from its neighbours against the same without.
#pragma once

#include "KernelTest.h"
#include "pdcrt/kernels/Conv2d.h"

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
