// What the tests of normalisations share: derivatives of definitions in double precision.
#pragma once

#include "KernelTest.h"

#include <functional>
#include <vector>

namespace pdcrt {

using Values = std::vector<double>;

inline Values toDouble(const Buffer<float>& buffer) {
  return {buffer.values().begin(), buffer.values().end()};
}

/// The derivative of a scalar function with respect to each element of `at`.
inline Values centralDifferences(Values at, const std::function<double(const Values&)>& function) {
  Values gradient;
  for (double& element : at) {
    const double value = element, step = 1e-5;
    element = value + step;
    const double above = function(at);
    element = value - step;
    gradient.push_back((above - function(at)) / (2 * step));
    element = value;
  }
  return gradient;
}

inline double dot(const Values& a, const Values& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

} // namespace pdcrt
