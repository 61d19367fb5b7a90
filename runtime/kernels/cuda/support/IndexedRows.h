// Rows that indices name, for sums over those with one index: without atomic sums, in one order. The indices are sorted
// by their rows, so that those of a row are neighbours.
#pragma once

#include "device/cuda/Cuda.h"
#include "pdcrt/CudaWorkspace.h"

#include <cstdint>
#include <utility>

namespace pdcrt::cuda {

/// The rows that a member of a team has of a table.
struct TableRows {
  std::int64_t size;       ///< of them
  std::int64_t first = 0;  ///< of them
  std::int64_t all = size; ///< of the table
};
inline constexpr std::int64_t outsideOfTable = -1, rowOfOthers = -2;

/// Which of the rows `index` names; or it is outside of the table, or another member's.
__device__ inline std::int64_t rowOf(std::int64_t index, const TableRows& rows) {
  if (index < 0) index += rows.all;
  if (index < 0 || index >= rows.all) return outsideOfTable;
  return index >= rows.first && index < rows.first + rows.size ? index - rows.first : rowOfOthers;
}

/// A row and the place of an index that names it: no two are equal, and those of a row are in the order of the indices.
using RowKey = std::uint64_t;
/// Of indices that name no row: after all others.
inline constexpr std::int64_t noRow = 0xFFFFFFFF;

__device__ inline RowKey rowKey(std::int64_t row, std::int64_t place) {
  return static_cast<RowKey>(row) << 32 | static_cast<RowKey>(place);
}
__device__ inline std::int64_t rowOfKey(RowKey key) {
  return static_cast<std::int64_t>(key >> 32);
}
__device__ inline std::int64_t placeOfKey(RowKey key) {
  return static_cast<std::int64_t>(key & 0xFFFFFFFF);
}

/// Where in begin … end - 1, which are sorted, the first key is that is not smaller than `key`; else `end`.
__device__ inline std::int64_t lowerBound(const RowKey* keys, std::int64_t begin, std::int64_t end, RowKey key) {
  while (begin < end) {
    const std::int64_t middle = begin + (end - begin) / 2;
    if (keys[middle] < key)
      begin = middle + 1;
    else
      end = middle;
  }
  return begin;
}

/// Indices that a block sorts by itself.
inline constexpr std::int64_t firstRun = threadsPerBlock;

/// Sorts runs of `firstRun` keys: each goes where the number of smaller ones says.
template <class Index>
__global__ void sortRuns(TableRows rows, std::int64_t count, const Index* indices, RowKey* keys) {
  __shared__ RowKey run[threadsPerBlock];
  for (std::int64_t begin = blockIdx.x * firstRun; begin < count; begin += gridDim.x * firstRun) {
    const std::int64_t i = begin + threadIdx.x, row = i < count ? rowOf(indices[i], rows) : outsideOfTable;
    const RowKey key = i < count ? rowKey(row < 0 ? noRow : row, i) : ~RowKey{0};
    run[threadIdx.x] = key;
    __syncthreads();
    int rank = 0;
    for (unsigned other = 0; other < threadsPerBlock; ++other) rank += run[other] < key;
    if (i < count) keys[begin + rank] = key;
    __syncthreads();
  }
}

/// Merges every 32 sorted runs to one. A warp looks for the place of a key, each of its threads in another run.
template <class Key>
__global__ void mergeRuns(std::int64_t count, std::int64_t run, const Key* keys, Key* merged) {
  const std::int64_t lane = threadIdx.x % warpSize32;
  for (std::int64_t i = thread() / warpSize32; i < count; i += threads() / warpSize32) {
    const std::int64_t begin = i / (run * warpSize32) * (run * warpSize32), from = begin + lane * run;
    const Key key = keys[i];
    int rank = from < count ? static_cast<int>(lowerBound(keys, from, minimum(from + run, count), key) - from) : 0;
    for (int distance = warpSize32 / 2; distance > 0; distance /= 2)
      rank += __shfl_xor_sync(0xFFFFFFFFu, rank, distance);
    if (lane == 0) merged[begin + rank] = key;
  }
}

/// Sorted keys of the indices, in the workspace (`sortedRowBytes`), for the launches that follow in the stream.
template <class Index>
const RowKey* sortRows(Stream& q, const TableRows& rows, std::int64_t count, const Index* indices) {
  auto* keys = reinterpret_cast<RowKey*>(q.workspace());
  auto* other = reinterpret_cast<RowKey*>(q.workspace() + sortedRowBytes(count) / 2);
  launchBlocks(q, "order of rows", sortRuns<Index>, (count + firstRun - 1) / firstRun, rows, count, indices, keys);
  for (std::int64_t run = firstRun; run < count; run *= warpSize32) {
    launchLoop(q, "order of rows", mergeRuns<RowKey>, count * warpSize32, count, run, keys, other);
    std::swap(keys, other);
  }
  return keys;
}

} // namespace pdcrt::cuda
