// Work on many arrays, most of them small, in few launches.
#pragma once

#include "Cuda.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <span>

namespace pdcrt::cuda {

#if defined(__CUDACC__) || defined(PDCRT_CUDA_STAND_IN)

/// A thread's part of a row: first, first + step, …
struct RowShare {
  std::int64_t first, step;
};

/// The rows of one launch, by value: so a graph records them. Each has blocks of its own.
template <class Row>
struct Table {
  static constexpr std::size_t bytes = 4096; // of arguments, which every device has room for
  static constexpr std::size_t most = (bytes - alignof(Row)) / (sizeof(Row) + sizeof(unsigned));
  Row rows[most];
  unsigned firstBlock[most + 1]; ///< after the last row: the number of all blocks

  /// The row of this block.
  __device__ unsigned row() const {
    // Counted, not searched: no comparison waits for the one before.
    unsigned at = 0;
    for (std::size_t next = 1; next < most; ++next) at += blockIdx.x >= firstBlock[next];
    return at;
  }
  __device__ RowShare shareOf(unsigned row) const {
    const unsigned block = blockIdx.x - firstBlock[row], blocks = firstBlock[row + 1] - firstBlock[row];
    return {std::int64_t{block} * blockDim.x + threadIdx.x, std::int64_t{blocks} * blockDim.x};
  }
};

/// Launches `kernel` for tables of rowOf(item), each with blocksOf(row) blocks, until all items had their turn.
template <class Row, class Item, class RowOf, class BlocksOf>
void launchTables(Stream& q, const char* name, void (*kernel)(Table<Row>), std::span<const Item> items, RowOf rowOf,
                  BlocksOf blocksOf) {
  static_assert(sizeof(Table<Row>) <= Table<Row>::bytes);
  for (std::size_t next = 0; next < items.size(); next += Table<Row>::most) {
    Table<Row> table{};
    unsigned blocks = 0;
    std::size_t row = 0;
    for (const Item& item : items.subspan(next, std::min(Table<Row>::most, items.size() - next))) {
      table.rows[row] = rowOf(item);
      table.firstBlock[row] = blocks;
      blocks += blocksOf(table.rows[row++]);
    }
    std::fill(table.firstBlock + row, std::end(table.firstBlock), blocks);
    launchBlocks(q, name, kernel, blocks, table);
  }
}

#endif

} // namespace pdcrt::cuda
