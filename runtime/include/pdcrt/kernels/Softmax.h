// Softmax and log-softmax over the last axis, and their gradients.
#pragma once

#include "pdcrt/Setup.h"
#include "pdcrt/Stream.h"
#include "pdcrt/View.h"

#include <cstdint>

namespace pdcrt {

/// y[row, ·] = exp(x - max) / sum of it, or its logarithm. y may be x, dx may be dy.
class Softmax {
public:
  struct Options {
    std::int64_t rows = 1, classes = 0;
    bool logarithm = false;
  };

  Softmax(Setup& setup, const Options& options);

  void forward(Stream& q, View<const float> x, View<float> y) const;
  void inputGradient(Stream& q, View<const float> dy, View<const float> y, View<float> dx) const;

private:
  Options options_;
};

} // namespace pdcrt
