// What the recurrent kernels share: products of one step, and rows whose sequence is over.
#pragma once

#include "Product.h"
#include "common/RecurrentShapes.h"

#include <initializer_list>
#include <numeric>

namespace pdcrt::cuda {

/// What matrices of these elements are aligned to, in bytes, where each may be any of several that lie one behind the
/// other.
inline std::uint32_t alignmentOf(std::initializer_list<std::int64_t> elements) {
  std::int64_t bytes = 64; // of the first
  for (std::int64_t count : elements) bytes = std::gcd(bytes, count * static_cast<std::int64_t>(sizeof(float)));
  return static_cast<std::uint32_t>(bytes);
}

/// c += a · op(b) of one of many steps.
inline Product stepProduct(std::int64_t m, std::int64_t k, std::int64_t n, bool transposeB) {
  return Product({.m = m,
                  .k = k,
                  .n = n,
                  .transposeB = transposeB,
                  .accumulate = true,
                  .alignment = alignmentOf({m * k, k * n, m * n})});
}

/// The floats that a recurrent kernel has for itself, behind the products' workspace.
inline float* ownFloats(Stream& q) {
  return reinterpret_cast<float*>(q.workspace() + roundedUp(productBytes));
}

inline void zero(Stream& q, float* to, std::int64_t count) {
  PDCRT_CUDA(cudaMemsetAsync(to, 0, static_cast<std::size_t>(count) * sizeof(float), streamOf(q)));
}
inline void copy(Stream& q, const float* from, std::int64_t count, float* to) {
  PDCRT_CUDA(
      cudaMemcpyAsync(to, from, static_cast<std::size_t>(count) * sizeof(float), cudaMemcpyDefault, streamOf(q)));
}

/// Row b of step t keeps its state.
__device__ inline bool isOver(const std::int32_t* lengths, std::int64_t b, std::int64_t t) {
  return lengths && t >= lengths[b];
}

} // namespace pdcrt::cuda
