// The definition of attention and its gradients in double precision, and operands for it: what the tests of the kernels
// compare with.
#pragma once

#include "KernelTest.h"
#include "pdcrt/kernels/Attention.h"

#include <cmath>
#include <cstdint>
#include <vector>

namespace pdcrt::attention {

using Doubles = std::vector<double>;

struct Outcome {
  Doubles y, dq, dk, dv;
};

struct Inputs {
  Buffer<float> q, k, v, bias, dy;
  explicit Inputs(const Attention::Options& o)
      : q(randomBuffer(o.batch * o.heads * o.queries * o.size, 1)),
        k(randomBuffer(o.batch * o.groups * o.keys * o.size, 2)),
        v(randomBuffer(o.batch * o.groups * o.keys * o.valueSize, 3)),
        bias(randomBuffer(o.bias.rank ? o.bias.elements() : 1, 4)),
        dy(randomBuffer(o.batch * o.heads * o.queries * o.valueSize, 5)) {}
};

/// Rounds the values, with which the definition then computes, and returns them as T.
template <class T>
Buffer<T> rounded(const Buffer<float>& values) {
  Buffer<T> same(values.count());
  for (std::int64_t i = 0; i < values.count(); ++i) values[i] = same[i] = T(values[i]);
  return same;
}
template <class T>
double relativeError(const Buffer<T>& actual, const Doubles& expected) {
  Buffer<float> wide(actual.count());
  for (std::int64_t i = 0; i < actual.count(); ++i) wide[i] = actual[i];
  return pdcrt::relativeError(wide, expected);
}

/// From the definition; `mask` may be empty.
inline Outcome expected(const Attention::Options& o, const Inputs& in, const std::vector<std::uint8_t>& mask) {
  Outcome out{Doubles(in.dy.values().size()), Doubles(in.q.values().size()), Doubles(in.k.values().size()),
              Doubles(in.v.values().size())};
  const auto at = [](Doubles& list, std::int64_t i) -> double& { return list[static_cast<std::size_t>(i)]; };
  for (std::int64_t b = 0; b < o.batch; ++b)
    for (std::int64_t h = 0; h < o.heads; ++h)
      for (std::int64_t i = 0; i < o.queries; ++i) {
        const std::int64_t row = (b * o.heads + h) * o.queries + i;
        const std::int64_t keyRow = (b * o.groups + h * o.groups / o.heads) * o.keys;
        Doubles p, dp, kept, hidden;
        double sum = 0, weighted = 0;
        for (std::int64_t j = 0; j < o.keys; ++j) {
          double s = 0;
          for (std::int64_t e = 0; e < o.size; ++e)
            s += double(in.q[row * o.size + e]) * in.k[(keyRow + j) * o.size + e];
          double added = 0;
          if (o.bias.rank) {
            const auto index = [&](int axis, std::int64_t of) { return o.bias.dims[axis] == 1 ? 0 : of; };
            added = in.bias[((index(0, b) * o.bias.dims[1] + index(1, h)) * o.bias.dims[2] + index(2, i)) * o.keys + j];
          }
          const bool seen = !o.causal || j <= i + o.keys - o.queries;
          p.push_back(seen ? std::exp(o.scale * s + added) : 0);
          hidden.push_back(o.hides && added <= -1e30);
          sum += p.back();
        }
        for (std::int64_t j = 0; j < o.keys; ++j) {
          const auto n = static_cast<std::size_t>(j);
          p[n] /= sum;
          kept.push_back(mask.empty() ? 1 : mask[static_cast<std::size_t>(row * o.keys + j)] / (1 - o.ratio));
          dp.push_back(0);
          for (std::int64_t e = 0; e < o.valueSize; ++e) {
            const double value = in.v[(keyRow + j) * o.valueSize + e], dy = in.dy[row * o.valueSize + e];
            at(out.y, row * o.valueSize + e) += p[n] * kept[n] * value;
            at(out.dv, (keyRow + j) * o.valueSize + e) += p[n] * kept[n] * dy;
            dp[n] += dy * value * kept[n];
          }
          weighted += p[n] * dp[n];
        }
        for (std::int64_t j = 0; j < o.keys; ++j) {
          const auto n = static_cast<std::size_t>(j);
          const double ds = hidden[n] != 0 ? 0 : p[n] * (dp[n] - weighted) * o.scale;
          for (std::int64_t e = 0; e < o.size; ++e) {
            at(out.dq, row * o.size + e) += ds * in.k[(keyRow + j) * o.size + e];
            at(out.dk, (keyRow + j) * o.size + e) += ds * in.q[row * o.size + e];
          }
        }
      }
  return out;
}

} // namespace pdcrt::attention
