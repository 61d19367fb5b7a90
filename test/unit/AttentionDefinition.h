// The definition of attention and its gradients in double precision, and operands for it: what the tests of the kernels
// compare with.
#pragma once

#include "KernelTest.h"
#include "pdcrt/kernels/MultiHeadAttention.h"

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

/// A null view where there is none.
inline View<const float> biasOf(const Attention::Options& o, const Inputs& in) {
  return o.bias.rank > 0 ? View<const float>(in.bias.view()) : View<const float>();
}

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

/// Puts heads that lie apart into their part of rows, or takes them from there.
template <class T>
void putInRows(std::int64_t batch, const MultiHeadAttention::Part& part, const Buffer<T>& apart, const Buffer<T>& rows,
               bool back = false) {
  std::int64_t i = 0;
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t h = 0; h < part.heads; ++h)
      for (std::int64_t position = 0; position < part.positions; ++position)
        for (std::int64_t e = 0; e < part.size; ++e, ++i) {
          T &one = apart[i], &other = rows[part.at(b, h, position, e)];
          back ? one = other : other = one;
        }
}

/// Attention of heads in rows is that of the same heads apart.
template <class T>
void expectDefinitionInRows(const MultiHeadAttention::Options& o, double tolerance) {
  const Attention::Options apart = MultiHeadAttention::attentionOf(o);
  const MultiHeadAttention::Rows rows(o);
  const Inputs in(apart);
  const Buffer<T> q = rounded<T>(in.q), k = rounded<T>(in.k), v = rounded<T>(in.v), dy = rounded<T>(in.dy);
  const std::int64_t ofQuery = o.batch * o.queries * rows.query.row;
  const Buffer<T> queryRows(ofQuery), keyRows(o.packed ? 1 : k.count()), valueRows(o.packed ? 1 : v.count()),
      dyRows(dy.count()), yRows(dy.count()), dqueryRows(ofQuery), dkeyRows(keyRows.count()),
      dvalueRows(valueRows.count());
  putInRows(o.batch, rows.query, q, queryRows);
  putInRows(o.batch, rows.key, k, o.packed ? queryRows : keyRows);
  putInRows(o.batch, rows.value, v, o.packed ? queryRows : valueRows);
  putInRows(o.batch, rows.y, dy, dyRows);
  const Buffer<float> largest(o.batch * o.heads * o.queries), inverse(largest.count());
  const auto own = [&](const Buffer<T>& buffer) { return o.packed ? View<T>() : buffer.view(); };
  const auto ownOperand = [&](const Buffer<T>& buffer) { return View<const T>(own(buffer)); };
  const View<const float> bias = biasOf(apart, in);
  pdcrt::Setup setup;
  const MultiHeadAttention kernel(setup, o);
  const auto forward = [&](Stream& stream) {
    kernel.forward(stream, View<const T>(queryRows.view()), ownOperand(keyRows), ownOperand(valueRows), bias,
                   yRows.view(), largest.view(), inverse.view());
  };
  const auto gradient = [&](Stream& stream) {
    kernel.inputGradient(stream, View<const T>(dyRows.view()), View<const T>(queryRows.view()), ownOperand(keyRows),
                         ownOperand(valueRows), bias, View<const T>(yRows.view()), View<const float>(largest.view()),
                         View<const float>(inverse.view()), dqueryRows.view(), own(dkeyRows), own(dvalueRows));
  };
  expectGoodManners(setup, {yRows, largest, inverse}, forward, productMemory);
  if (o.packed)
    expectGoodManners(setup, {dqueryRows}, gradient, productMemory);
  else
    expectGoodManners(setup, {dqueryRows, dkeyRows, dvalueRows}, gradient, productMemory);
  const Buffer<T> y(dy.count()), dq(q.count()), dk(k.count()), dv(v.count());
  putInRows(o.batch, rows.y, y, yRows, true);
  putInRows(o.batch, rows.query, dq, dqueryRows, true);
  putInRows(o.batch, rows.key, dk, o.packed ? dqueryRows : dkeyRows, true);
  putInRows(o.batch, rows.value, dv, o.packed ? dqueryRows : dvalueRows, true);
  const Outcome exact = expected(apart, in, {});
  EXPECT_LE(attention::relativeError(y, exact.y), tolerance); // NaN fails too
  EXPECT_LE(attention::relativeError(dq, exact.dq), tolerance);
  EXPECT_LE(attention::relativeError(dk, exact.dk), tolerance);
  EXPECT_LE(attention::relativeError(dv, exact.dv), tolerance);
}

} // namespace pdcrt::attention
