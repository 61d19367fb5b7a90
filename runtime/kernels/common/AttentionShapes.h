// What both targets' Attention asks of its options.
#pragma once

#include "DropoutOptions.h"
#include "Shapes.h"
#include "pdcrt/kernels/Attention.h"

#include <stdexcept>

namespace pdcrt {

/// How far apart a bias has the scores of neighbours: 0 where it is the same for all.
struct BiasStrides {
  std::int64_t batch = 0, head = 0, query = 0;

  BiasStrides() = default;
  explicit BiasStrides(const Shape& bias) {
    if (bias.rank != 4) return;
    query = bias.dims[2] == 1 ? 0 : bias.dims[3];
    head = bias.dims[1] == 1 ? 0 : bias.dims[2] * bias.dims[3];
    batch = bias.dims[0] == 1 ? 0 : bias.dims[1] * bias.dims[2] * bias.dims[3];
  }
};

/// Throws std::runtime_error with the sizes.
[[noreturn]] inline void refuseAttention(const Attention::Options& o, const std::string& why) {
  throw std::runtime_error("attention of " + toString({o.batch, o.heads, o.queries, o.size}) + " to " +
                           toString({o.batch, o.groups, o.keys, o.size}) + ": " + why);
}

/// Throws std::runtime_error where sizes are not positive or do not fit.
inline void checkSizes(const Attention::Options& o) {
  const auto fail = [&](const std::string& what) { refuseAttention(o, what); };
  if (o.batch < 1 || o.heads < 1 || o.groups < 1 || o.queries < 1 || o.keys < 1 || o.size < 1 || o.valueSize < 1)
    fail("sizes must be positive");
  if (o.heads % o.groups != 0) fail("heads do not divide");
  if (o.causal && o.keys < o.queries) fail("a causal one needs as many keys as queries");
  if (!(o.ratio >= 0 && o.ratio < 1)) fail("ratio " + std::to_string(o.ratio) + " is not in [0, 1)");
  const Shape scores{o.batch, o.heads, o.queries, o.keys};
  if (!isPart(scores.elements(), o.run, o.members))
    fail("the weights are no runs of " + std::to_string(o.run) + " of one of " + std::to_string(o.members) +
         " members");
  if (o.ratio > 0 && !canCount(scores.elements(), o.run, o.members)) fail("dropout takes at most 2^34 weights");
  bool fits = o.bias.rank == 0 || (o.bias.rank == 4 && o.bias.dims[3] == o.keys);
  for (int axis = 0; fits && axis < o.bias.rank; ++axis)
    fits = o.bias.dims[axis] == scores.dims[axis] || o.bias.dims[axis] == 1;
  if (!fits) fail("a bias of " + toString(o.bias));
}

} // namespace pdcrt
