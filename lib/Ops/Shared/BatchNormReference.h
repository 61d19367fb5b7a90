// The definition of batch normalisation (Ioffe and Szegedy 2015) and of its gradients. Sums are in f64, as the
// kernel's.
#pragma once

#include "Shared/Define.h"

#include <algorithm>
#include <cmath>

namespace pdc::ops {

/// X as [samples, channels, inner].
struct NormChannels {
  std::int64_t samples, channels, inner;

  explicit NormChannels(const Shape& x) : samples(x[0]), channels(x[1]), inner(product(x, 2, x.size())) {}
  double perChannel() const { return static_cast<double>(samples * inner); }
  /// Calls visit(position, channel) for all elements.
  template <class Visit>
  void forEach(Visit visit) const {
    for (std::int64_t i = 0; i < samples * channels * inner; ++i) visit(i, i / inner % channels);
  }
};

/// y from the statistics that training saves.
template <class T>
void batchNormReference(ReferenceContext& c, std::span<const T> mean, std::span<const T> inverse) {
  const auto x = c.in<T>(0), scale = c.in<T>(1), bias = c.in<T>(2);
  const auto y = c.out<T>(0);
  const bool relu = c.op.attributes.getOr("relu", false);
  NormChannels(operandType(c.op, 0).shape).forEach([&](std::int64_t i, std::int64_t channel) {
    y[i] = (x[i] - mean[channel]) * inverse[channel] * scale[channel] + bias[channel];
    if (c.operands.size() > 5 && c.operands[5]) y[i] += c.in<T>(5)[i];
    if (relu && y[i] < 0) y[i] = 0;
  });
}

template <class T>
void batchNormTrainingReference(ReferenceContext& c) {
  const NormChannels size(operandType(c.op, 0).shape);
  const auto x = c.in<T>(0);
  const auto mean = c.out<T>(1), inverse = c.out<T>(2);
  // The mean is subtracted before squares are taken, which keeps f32 accurate; sums are in f64 as the kernel's.
  const auto count = static_cast<std::size_t>(size.channels);
  std::vector<double> sums(count, 0), squares(count, 0);
  size.forEach([&](std::int64_t i, std::int64_t channel) { sums[channel] += x[i]; });
  for (double& sum : sums) sum /= size.perChannel();
  size.forEach([&](std::int64_t i, std::int64_t channel) {
    const double distance = x[i] - sums[channel];
    squares[channel] += distance * distance;
  });
  const double momentum = c.op.attributes.getFloat("momentum");
  for (std::size_t channel = 0; channel < count; ++channel) {
    const double variance = squares[channel] / size.perChannel();
    mean[channel] = static_cast<T>(sums[channel]);
    inverse[channel] = static_cast<T>(1 / std::sqrt(variance + c.op.attributes.getFloat("epsilon")));
    const auto blend = [&](std::size_t running, std::size_t result, double batch) {
      if (c.results[result])
        c.out<T>(result)[channel] = static_cast<T>(c.in<T>(running)[channel] * momentum + batch * (1 - momentum));
    };
    blend(3, 3, sums[channel]);
    const bool unbiased = c.op.attributes.getOr("unbiased", false) && size.perChannel() > 1;
    blend(4, 4, unbiased ? variance * (size.perChannel() / (size.perChannel() - 1)) : variance);
  }
  batchNormReference<T>(c, mean, inverse);
}

template <class T>
void batchNormGradientReference(ReferenceContext& c) {
  const NormChannels size(operandType(c.op, 0).shape);
  const auto given = c.in<T>(0), x = c.in<T>(1), scale = c.in<T>(2), mean = c.in<T>(3), inverse = c.in<T>(4);
  const auto dx = c.out<T>(0), dscale = c.out<T>(1), dbias = c.out<T>(2);
  std::vector<T> dy(given.begin(), given.end());
  if (c.op.attributes.getOr("relu", false))
    size.forEach([&](std::int64_t i, std::int64_t channel) {
      const T before = c.operands[5] ? c.in<T>(5)[i]
                                     : (x[i] - mean[channel]) * inverse[channel] * scale[channel] +
                                           c.in<T>(6)[channel]; // as batchNormReference
      dy[static_cast<std::size_t>(i)] *= before > 0 ? T(1) : T(0);
    });
  if (c.results.size() > 3 && c.results[3]) std::copy(dy.begin(), dy.end(), c.out<T>(3).begin());
  const auto count = static_cast<std::size_t>(size.channels);
  std::vector<double> sums(count, 0), products(count, 0);
  const auto normal = [&](std::int64_t i, std::int64_t channel) { return (x[i] - mean[channel]) * inverse[channel]; };
  size.forEach([&](std::int64_t i, std::int64_t channel) {
    sums[channel] += dy[i];
    products[channel] += dy[i] * normal(i, channel);
  });
  for (std::size_t channel = 0; channel < count; ++channel) {
    dscale[channel] = static_cast<T>(products[channel]);
    dbias[channel] = static_cast<T>(sums[channel]);
  }
  // Mean and variance depend on every x: what they share is subtracted.
  size.forEach([&](std::int64_t i, std::int64_t channel) {
    dx[i] = static_cast<T>(
        scale[channel] * inverse[channel] *
        (dy[i] - sums[channel] / size.perChannel() - normal(i, channel) * products[channel] / size.perChannel()));
  });
}

template <class T>
void batchNormFrozenGradientReference(ReferenceContext& c) {
  const NormChannels size(operandType(c.op, 0).shape);
  const auto dy = c.in<T>(0), x = c.in<T>(1), scale = c.in<T>(2), mean = c.in<T>(3), variance = c.in<T>(4);
  const double epsilon = c.op.attributes.getFloat("epsilon");
  const auto count = static_cast<std::size_t>(size.channels);
  std::vector<double> sums(count, 0), products(count, 0);
  size.forEach([&](std::int64_t i, std::int64_t channel) {
    const double inverse = 1 / std::sqrt(variance[channel] + epsilon);
    if (c.results[0]) c.out<T>(0)[i] = static_cast<T>(dy[i] * scale[channel] * inverse);
    sums[channel] += dy[i];
    products[channel] += dy[i] * (x[i] - mean[channel]) * inverse;
  });
  for (std::size_t channel = 0; channel < count; ++channel) {
    if (c.results[1]) c.out<T>(1)[channel] = static_cast<T>(products[channel]);
    if (c.results[2]) c.out<T>(2)[channel] = static_cast<T>(sums[channel]);
  }
}

} // namespace pdc::ops
