// Linear layers with int8 weights for tests: quantised by the formulas, with the definition in integers of 64 bits and
// the distance that it may have from the layer in f32.
#pragma once

#include "KernelTest.h"
#include "pdcrt/kernels/LinearInt8.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <ostream>
#include <vector>

namespace pdcrt {

inline constexpr double infinite = std::numeric_limits<double>::infinity();

struct Int8Case {
  std::int64_t rows, inputs, outputs;
  double alpha = 6;
  std::int64_t kept = 0;
  bool bias = false;
  double spread = 1; ///< some inputs are so much larger: outliers

  friend std::ostream& operator<<(std::ostream& out, const Int8Case& c) {
    return out << c.rows << " rows, " << c.inputs << " inputs, " << c.outputs << " outputs, alpha " << c.alpha << ", "
               << c.kept << " kept";
  }
};

/// A layer, quantised here by the formulas.
struct QuantisedLayer {
  explicit QuantisedLayer(const Int8Case& c)
      : o{.rows = c.rows, .inputs = c.inputs, .outputs = c.outputs, .kept = c.kept, .bias = c.bias, .alpha = c.alpha},
        x(randomBuffer(c.rows * c.inputs, 1)), original(randomBuffer(c.outputs * c.inputs, 2)), w(c.outputs * c.inputs),
        scale(c.outputs), kept(c.kept * c.outputs), keptInputs(c.kept), bias(randomBuffer(c.outputs, 3)),
        y(c.rows * c.outputs) {
    for (std::int64_t j = 0; j < o.rows; ++j)
      for (std::int64_t i = 0; i < o.inputs; ++i) {
        float& value = x[j * o.inputs + i];
        if (i % 7 == 3) value *= static_cast<float>(c.spread);
        if (j % 5 == 4 || (i % 11 == 2 && o.inputs > 2)) value = 0; // rows and columns of zeros
      }
    for (std::int64_t k = 0; k < o.outputs; ++k) {
      float most = 0;
      for (std::int64_t i = 0; i < o.inputs; ++i) {
        float& value = original[k * o.inputs + i];
        if (k % 6 == 5) value = 0;
        most = std::max(most, std::fabs(value));
      }
      scale[k] = most / 127.0f;
      for (std::int64_t i = 0; i < o.inputs; ++i)
        w[k * o.inputs + i] = scale[k] == 0
                                  ? std::int8_t{0}
                                  : static_cast<std::int8_t>(std::nearbyint(original[k * o.inputs + i] / scale[k]));
    }
    for (std::int64_t e = 0; e < o.kept; ++e) {
      keptInputs[e] = static_cast<std::int32_t>(e * o.inputs / o.kept);
      for (std::int64_t k = 0; k < o.outputs; ++k) kept[e * o.outputs + k] = original[k * o.inputs + keptInputs[e]];
    }
  }

  std::int64_t keptRow(std::int64_t input) const {
    for (std::int64_t e = 0; e < o.kept; ++e)
      if (keptInputs[e] == input) return e;
    return -1;
  }
  float weight(std::int64_t k, std::int64_t i) const {
    const std::int64_t e = keptRow(i);
    return e >= 0 ? kept[e * o.outputs + k] : static_cast<float>(w[k * o.inputs + i]) * scale[k];
  }
  std::vector<bool> outliers() const {
    std::vector<bool> found(static_cast<std::size_t>(o.inputs));
    for (std::int64_t i = 0; i < o.inputs; ++i) {
      bool is = keptRow(i) >= 0;
      for (std::int64_t j = 0; j < o.rows; ++j) is |= !(std::fabs(x[j * o.inputs + i]) < static_cast<float>(o.alpha));
      found[static_cast<std::size_t>(i)] = is;
    }
    return found;
  }

  LinearInt8::Options o;
  Buffer<float> x, original;
  Buffer<std::int8_t> w;
  Buffer<float> scale, kept;
  Buffer<std::int32_t> keptInputs;
  Buffer<float> bias, y;
};

/// The definition in LinearInt8.h, and the bound of its distance from the layer in f32.
struct Int8Definition {
  explicit Int8Definition(const QuantisedLayer& l) {
    const LinearInt8::Options& o = l.o;
    const std::vector<bool> isOutlier = l.outliers();
    std::vector<std::int64_t> q(isOutlier.size());
    for (std::int64_t j = 0; j < o.rows; ++j) {
      const float* const x = l.x.view().data + j * o.inputs;
      float most = 0;
      for (std::size_t i = 0; i < q.size(); ++i)
        if (!isOutlier[i]) most = std::max(most, std::fabs(x[i]));
      const float step = most / 127.0f;
      for (std::size_t i = 0; i < q.size(); ++i)
        q[i] = isOutlier[i] || step == 0
                   ? 0
                   : static_cast<std::int64_t>(std::clamp(std::nearbyint(x[i] / step), -127.0f, 127.0f));
      for (std::int64_t k = 0; k < o.outputs; ++k) {
        std::int64_t sum = 0;
        for (std::size_t i = 0; i < q.size(); ++i)
          sum += q[i] * std::int64_t{l.w[k * o.inputs + static_cast<std::int64_t>(i)]};
        float y = static_cast<float>(sum) * (step * l.scale[k]);
        double exact = o.bias ? l.bias[k] : 0, bound = 0, size = std::fabs(exact);
        for (std::size_t n = 0; n < q.size(); ++n) {
          const auto i = static_cast<std::int64_t>(n);
          const double value = x[i], weight = l.weight(k, i), original = l.original[k * o.inputs + i];
          if (isOutlier[n]) y = std::fma(x[i], l.weight(k, i), y);
          exact += value * original;
          size += std::fabs(value * original);
          // Half a step of the weight, and of the activation.
          if (l.keptRow(i) < 0) bound += static_cast<double>(l.scale[k]) / 2 * std::fabs(value);
          if (!isOutlier[n]) bound += static_cast<double>(step) / 2 * std::fabs(weight);
        }
        ys.push_back(o.bias ? y + l.bias[k] : y);
        exacts.push_back(exact);
        // Roundings of the sums, and of quotients at the edge of a half.
        bounds.push_back(bound * (1 + 1e-5) + size * 1e-7 * static_cast<double>(o.inputs + 4));
      }
    }
  }
  std::vector<float> ys;
  std::vector<double> exacts, bounds;
};

inline std::int64_t differingBits(const Buffer<float>& actual, const std::vector<float>& expected) {
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < actual.count(); ++i)
    count += std::memcmp(&actual[i], &expected[static_cast<std::size_t>(i)], sizeof(float)) != 0;
  return count;
}

inline const Int8Case int8Cases[] = {
    Int8Case{.rows = 1, .inputs = 1, .outputs = 1},
    Int8Case{.rows = 3, .inputs = 5, .outputs = 7, .bias = true},
    Int8Case{.rows = 13, .inputs = 64, .outputs = 32, .alpha = infinite, .bias = true},
    Int8Case{.rows = 24, .inputs = 96, .outputs = 65, .bias = true, .spread = 10},
    Int8Case{.rows = 17, .inputs = 100, .outputs = 33, .alpha = 0, .bias = true},
    Int8Case{.rows = 17, .inputs = 100, .outputs = 33, .kept = 100},
    Int8Case{.rows = 29, .inputs = 131, .outputs = 70, .kept = 9, .bias = true, .spread = 10},
    Int8Case{.rows = 40, .inputs = 600, .outputs = 96, .alpha = 2.5},
    Int8Case{.rows = 5, .inputs = 37, .outputs = 48, .alpha = infinite, .spread = 1e6},
    Int8Case{.rows = 70, .inputs = 900, .outputs = 700, .bias = true, .spread = 10},
    Int8Case{.rows = 2, .inputs = 300000, .outputs = 3, .alpha = infinite}};

} // namespace pdcrt
