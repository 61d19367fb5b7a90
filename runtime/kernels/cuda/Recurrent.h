// What the recurrent kernels share: products of one step, and rows whose sequence is over.
#pragma once

#include "Product.h"

#include <string>

namespace pdcrt::cuda {

/// The position of the step that is taken n-th.
inline std::int64_t position(std::int64_t n, std::int64_t steps, bool reverse) {
  return reverse ? steps - 1 - n : n;
}

/// c += a · op(b), where matrices lie at steps of `columns` floats and are aligned to that only.
inline Product stepProduct(std::int64_t m, std::int64_t k, std::int64_t n, bool transposeB) {
  return Product({.m = m, .k = k, .n = n, .transposeB = transposeB, .accumulate = true, .alignment = 4});
}

/// Throws unless the sizes are positive.
template <class Options>
void checkSizes(const char* layer, const Options& o) {
  if (o.steps < 1 || o.batch < 1 || o.hidden < 1)
    throw std::runtime_error(std::string(layer) + " of " + std::to_string(o.steps) + " steps, batch " +
                             std::to_string(o.batch) + ", " + std::to_string(o.hidden) +
                             " hidden units: sizes must be positive");
}

/// Where `gate` stands in `order`; throws if it does not.
inline std::int64_t place(const std::string& order, char gate, std::size_t gates) {
  const std::size_t at = order.find(gate);
  if (order.size() != gates || at == std::string::npos)
    throw std::runtime_error("'" + order + "' is no order of gates, '" + gate + "' is missing");
  return static_cast<std::int64_t>(at);
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
