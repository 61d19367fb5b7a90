// Rows that indices name, for sums over those with one index: without atomic sums, in the order of the indices.
#pragma once

#include "Cuda.h"

#include <cstdint>

namespace pdcrt::cuda {

/// The row that `index` names, or -1.
__device__ inline std::int64_t rowOf(std::int64_t index, std::int64_t size) {
  if (index < 0) index += size;
  return index >= 0 && index < size ? index : -1;
}

/// Where each row's first and last index is.
template <class Index>
__global__ void findEnds(std::int64_t size, std::int64_t count, const Index* indices, int* first, int* last) {
  for (std::int64_t i = thread(); i < count; i += threads()) {
    const std::int64_t row = rowOf(indices[i], size);
    if (row < 0) continue;
    atomicMin(first + row, static_cast<int>(i));
    atomicMax(last + row, static_cast<int>(i));
  }
}

/// Where the next index of the same row is; `count` after the last. Each is looked for once, whatever the rows' length.
template <class Index>
__global__ void findNext(std::int64_t size, std::int64_t count, const Index* indices, const int* last, int* next) {
  for (std::int64_t i = thread(); i < count; i += threads()) {
    const std::int64_t row = rowOf(indices[i], size);
    std::int64_t other = row < 0 || last[row] == i ? count : i + 1;
    while (other < count && rowOf(indices[other], size) != row) ++other;
    next[i] = static_cast<int>(other);
  }
}

/// For kernels in which the block of a row's first index goes on from each index to the next.
struct IndexedRows {
  const int *first, *next;
};

/// In the workspace (`indexedRowBytes`), for the launches that follow in the stream.
template <class Index>
IndexedRows indexRows(Stream& q, std::int64_t size, std::int64_t count, const Index* indices) {
  int* const first = reinterpret_cast<int*>(q.workspace());
  int* const last = first + size;
  int* const next = last + size;
  const auto bytes = static_cast<std::size_t>(size) * sizeof(int);
  PDCRT_CUDA(cudaMemsetAsync(first, 0x7F, bytes, streamOf(q)));
  PDCRT_CUDA(cudaMemsetAsync(last, 0xFF, bytes, streamOf(q)));
  launchLoop(q, "ends of rows", findEnds<Index>, count, size, count, indices, first, last);
  launchLoop(q, "order of rows", findNext<Index>, count, size, count, indices, last, next);
  return {first, next};
}

} // namespace pdcrt::cuda
