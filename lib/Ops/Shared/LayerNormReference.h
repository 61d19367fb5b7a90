// The definition of layer normalisation (Ba, Kiros and Hinton 2016), of root mean square normalisation (Zhang and
// Sennrich 2019), and of their gradients. Sums are in f64, as the kernel's.
#pragma once

#include "Raise/NormNeighbours.h"
#include "Shared/Define.h"

#include <cmath>

namespace pdc::ops {

/// X as [rows, size].
struct NormRows {
  std::int64_t rows, size;

  NormRows(const Operation& op, std::size_t x) : NormRows(operandType(op, x).shape, op.attributes.getInt("axis")) {}
  NormRows(const Shape& x, std::int64_t axis)
      : rows(product(x, 0, static_cast<std::size_t>(axis))),
        size(product(x, static_cast<std::size_t>(axis), x.size())) {}
};

template <class T>
std::span<const T> optionalOperand(const ReferenceContext& c, std::size_t i) {
  return i < c.operands.size() && c.operands[i] ? c.in<T>(i) : std::span<const T>{};
}

/// Both normalisations; sums are in f64, as the kernel's.
template <class T>
void layerNormReference(ReferenceContext& c, bool centred) {
  const NormRows s(c.op, 0);
  const auto x = c.in<T>(0), scale = optionalOperand<T>(c, 1),
             bias = centred ? optionalOperand<T>(c, 2) : std::span<const T>{};
  const auto added = optionalOperand<T>(c, addedToNorm(c.op));
  const std::size_t inverseAt = centred ? 2 : 1, sumAt = sumOfNorm(c.op);
  for (std::int64_t row = 0; row < s.rows; ++row) {
    std::vector<T> values(x.begin() + row * s.size, x.begin() + (row + 1) * s.size);
    for (std::int64_t i = 0; !added.empty() && i < s.size; ++i) values[i] += added[row * s.size + i];
    if (c.results[sumAt]) std::copy(values.begin(), values.end(), c.out<T>(sumAt).begin() + row * s.size);
    double mean = 0, square = 0;
    for (T value : values) mean += centred ? value : T(0);
    mean /= static_cast<double>(s.size);
    for (T value : values) square += (value - mean) * (value - mean);
    const double inverse = 1 / std::sqrt(square / static_cast<double>(s.size) + c.op.attributes.getFloat("epsilon"));
    if (centred && c.results[1]) c.out<T>(1)[row] = static_cast<T>(mean);
    if (c.results[inverseAt]) c.out<T>(inverseAt)[row] = static_cast<T>(inverse);
    for (std::int64_t i = 0; i < s.size; ++i) {
      const T y =
          static_cast<T>((values[i] - mean) * inverse * (scale.empty() ? 1 : scale[i]) + (bias.empty() ? 0 : bias[i]));
      c.out<T>(0)[row * s.size + i] = y;
      if (c.results[sumAt + 1]) c.out<T>(sumAt + 1)[row * s.size + i] = y;
    }
  }
}

/// Operands: dY, X, scale, [mean,] inverse. With x̂ the normalised X and g = dY · scale:
/// dX = (g - mean of g - x̂ · mean of g · x̂) · inverse, plus what is added; without centring the mean of g does not
/// count.
template <class T>
void layerNormInputGradientReference(ReferenceContext& c, bool centred) {
  const NormRows s(c.op, 1);
  const auto dy = c.in<T>(0), x = c.in<T>(1), scale = optionalOperand<T>(c, 2);
  const auto inverse = c.in<T>(centred ? 4 : 3);
  const auto added = optionalOperand<T>(c, centred ? 5 : 4);
  const auto dx = c.out<T>(0);
  for (std::int64_t row = 0; row < s.rows; ++row) {
    const double mean = centred ? c.in<T>(3)[row] : 0;
    const auto gradient = [&](std::int64_t i) { return dy[row * s.size + i] * double(scale.empty() ? 1 : scale[i]); };
    const auto normal = [&](std::int64_t i) { return (x[row * s.size + i] - mean) * inverse[row]; };
    double sum = 0, products = 0;
    for (std::int64_t i = 0; i < s.size; ++i) {
      sum += centred ? gradient(i) : 0;
      products += gradient(i) * normal(i);
    }
    const double count = static_cast<double>(s.size);
    for (std::int64_t i = 0; i < s.size; ++i) {
      const std::int64_t at = row * s.size + i;
      dx[at] = static_cast<T>((gradient(i) - sum / count - normal(i) * products / count) * inverse[row]);
      if (!added.empty()) dx[at] += added[at];
      if (c.results[1]) c.out<T>(1)[at] = dx[at];
    }
  }
}

/// Operands: dY, X, [mean,] inverse.
template <class T>
void layerNormWeightGradientReference(ReferenceContext& c, bool centred) {
  const NormRows s(c.op, 1);
  const auto dy = c.in<T>(0), x = c.in<T>(1), inverse = c.in<T>(centred ? 3 : 2);
  for (std::int64_t i = 0; i < s.size; ++i) {
    double scale = 0, bias = 0;
    for (std::int64_t row = 0; row < s.rows; ++row) {
      const T gradient = dy[row * s.size + i];
      scale += gradient * (x[row * s.size + i] - (centred ? c.in<T>(2)[row] : T(0))) * inverse[row];
      bias += gradient;
    }
    c.out<T>(0)[i] = static_cast<T>(scale);
    if (centred && c.results[1]) c.out<T>(1)[i] = static_cast<T>(bias);
  }
}

} // namespace pdc::ops
