// What the recurrent kernels share: products of one step, and rows whose sequence is over.
#pragma once

#include "Product.h"
#include "RecurrentShapes.h"

namespace pdcrt::cuda {

/// c += a · op(b), where matrices lie at steps of `columns` floats and are aligned to that only.
inline Product stepProduct(std::int64_t m, std::int64_t k, std::int64_t n, bool transposeB) {
  return Product({.m = m, .k = k, .n = n, .transposeB = transposeB, .accumulate = true, .alignment = 4});
}

/// The floats that a recurrent kernel has for itself, behind the products' workspace.
inline float* ownFloats(Stream& q) {
  return reinterpret_cast<float*>(q.workspace() + roundedUp(productBytes));
}

inline void zero(Stream& q, float* to, std::int64_t count) {
  PDCRT_CUDA(cudaMemsetAsync(to, 0, static_cast<std::size_t>(count) * sizeof(float), streamOf(q)));
}
inline void copy(Stream& q, const float* from, std::int64_t count, float* to) {
  PDCRT_CUDA(cudaMemcpyAsync(to, from, static_cast<std::size_t>(count) * sizeof(float), cudaMemcpyDeviceToDevice,
                             streamOf(q)));
}

/// Row b of step t keeps its state.
__device__ inline bool isOver(const std::int32_t* lengths, std::int64_t b, std::int64_t t) {
  return lengths && t >= lengths[b];
}

} // namespace pdcrt::cuda
