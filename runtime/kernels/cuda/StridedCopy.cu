// StridedCopy, and fill. One thread per element of the destination's order, where neighbours that stay together count
// as one element of up to 16 bytes; a plane in which source and destination run along different axes goes through tiles
// in shared memory, so that both sides are read and written whole. Where one of these axes is short, as the taps of a
// filter or the channels of an image, a tile is a run of what lies together on one side.
#include "pdcrt/kernels/StridedCopy.h"

#include "cuda/support/Divider.h"

#include <cassert>
#include <utility>

namespace pdcrt {
namespace {

/// A box and its two arrangements, in a form that a kernel takes by value.
struct Loops {
  int rank = 0;
  std::int64_t dims[maxRank] = {}, from[maxRank] = {}, to[maxRank] = {};
  cuda::Divider by[maxRank];
  std::int64_t count = 1;

  /// Where element i is on both sides.
  struct Places {
    std::int64_t from, to;
  };
  __device__ Places at(std::int64_t i) const {
    Places places = {0, 0};
    for (int axis = rank - 1; axis >= 0; --axis) {
      const std::int64_t outer = axis > 0 ? by[axis].quotient(i) : 0, at = i - outer * dims[axis];
      places.from += at * from[axis];
      places.to += at * to[axis];
      i = outer;
    }
    return places;
  }
};

/// A thread loads so many elements before it stores the first one: a single one would leave memory idle.
constexpr int loadsAtOnce = 2;

template <class T>
__global__ void copyElements(Loops loops, const T* from, T* to) {
  for (std::int64_t first = thread(); first < loops.count; first += loadsAtOnce * threads()) {
    T values[loadsAtOnce];
    std::int64_t places[loadsAtOnce];
    for (int i = 0; i < loadsAtOnce; ++i) {
      if (first + i * threads() >= loops.count) continue;
      const Loops::Places at = loops.at(first + i * threads());
      values[i] = from[at.from];
      places[i] = at.to;
    }
    for (int i = 0; i < loadsAtOnce; ++i)
      if (first + i * threads() < loops.count) to[places[i]] = values[i];
  }
}

constexpr int tileSize = 32, tileRows = static_cast<int>(threadsPerBlock) / tileSize;

/// Planes [rows, columns] that the source holds along rows (`from` steps rows by 1) and the destination along columns.
struct Planes {
  std::int64_t rows, columns;     ///< of the destination; its columns are neighbours
  std::int64_t fromColumn, toRow; ///< strides; those of the other axes are 1
  std::int64_t rowTiles, columnTiles, tiles;
  Loops outer;
};

template <class T>
__global__ void copyTiles(Planes p, const T* from, T* to) {
  __shared__ T tile[tileSize][tileSize + 1];
  const int x = static_cast<int>(threadIdx.x) % tileSize, y = static_cast<int>(threadIdx.x) / tileSize;
  for (std::int64_t block = blockIdx.x; block < p.tiles; block += gridDim.x) {
    const Loops::Places plane = p.outer.at(block / (p.rowTiles * p.columnTiles));
    const std::int64_t row0 = block / p.columnTiles % p.rowTiles * tileSize, column0 = block % p.columnTiles * tileSize;
    for (int i = y; i < tileSize; i += tileRows)
      if (row0 + x < p.rows && column0 + i < p.columns)
        tile[i][x] = from[plane.from + (column0 + i) * p.fromColumn + row0 + x];
    __syncthreads();
    for (int i = y; i < tileSize; i += tileRows)
      if (row0 + i < p.rows && column0 + x < p.columns) to[plane.to + (row0 + i) * p.toRow + column0 + x] = tile[x][i];
    __syncthreads();
  }
}

/// Planes of `wide` columns, of which one side holds all `few` elements together, the other side rows of columns.
struct NarrowPlanes {
  std::int64_t few, wide, row; ///< `row`: elements from row to row, on the side that has them
  std::int64_t columns;        ///< of a tile
  std::int64_t tiles;          ///< of a plane
  Loops outer;
};
constexpr std::int64_t mostFew = 32, narrowBytes = 16384;

/// `together`: it is the destination that holds the elements of a column together.
template <bool together, class T>
__global__ void copyNarrowTiles(NarrowPlanes p, const T* from, T* to) {
  __shared__ T tile[narrowBytes / sizeof(T)];
  for (std::int64_t block = blockIdx.x; block < p.outer.count * p.tiles; block += gridDim.x) {
    const Loops::Places plane = p.outer.at(block / p.tiles);
    const std::int64_t first = block % p.tiles * p.columns;
    const int few = static_cast<int>(p.few), lane = static_cast<int>(threadIdx.x);
    const int columns = static_cast<int>(p.wide - first < p.columns ? p.wide - first : p.columns);
    const T* const source = from + plane.from + first * (together ? 1 : few);
    T* const destination = to + plane.to + first * (together ? few : 1);
    constexpr int step = static_cast<int>(threadsPerBlock);
    if constexpr (together) {
      for (int row = 0; row < few; ++row)
        for (int i = lane; i < columns; i += step) tile[i * few + row] = source[row * p.row + i];
      __syncthreads();
      for (int i = lane; i < columns * few; i += step) destination[i] = tile[i];
    } else {
      for (int i = lane; i < columns * few; i += step) tile[i] = source[i];
      __syncthreads();
      for (int row = 0; row < few; ++row)
        for (int i = lane; i < columns; i += step) destination[row * p.row + i] = tile[i * few + row];
    }
    __syncthreads();
  }
}

/// By packs of n, and what is left by elements.
template <int n, class T>
__global__ void fillElements(T* to, T value, std::int64_t count) {
  Pack<T, n> values;
  for (int i = 0; i < n; ++i) values[i] = value;
  const std::int64_t packs = count / n;
  for (std::int64_t i = thread(); i < packs; i += threads()) reinterpret_cast<Pack<T, n>*>(to)[i] = values;
  for (std::int64_t i = packs * n + thread(); i < count; i += threads()) to[i] = value;
}

/// The axis with stride 1, or -1.
int neighbours(const Shape& box, const Arrangement& arrangement) {
  for (int axis = box.rank - 1; axis >= 0; --axis)
    if (arrangement.strides[axis] == 1) return axis;
  return -1;
}

/// What moves at once at most.
using Widest = Pack<std::uint64_t, 2>;

template <class T>
void copy(Stream& q, const Shape& box, const Arrangement& from, const Arrangement& to, const void* memory,
          void* destinationMemory) {
  const T* const source = static_cast<const T*>(memory) + from.begin;
  T* const destination = static_cast<T*>(destinationMemory) + to.begin;
  const int fast = neighbours(box, to), slow = neighbours(box, from);
  const bool turns = fast >= 0 && slow >= 0 && fast != slow;
  // A short axis, whose elements lie together on one side.
  const bool gathers = turns && box.dims[fast] <= mostFew && to.strides[slow] == box.dims[fast],
             scatters = turns && box.dims[slow] <= mostFew && from.strides[fast] == box.dims[slow];
  const bool tiled = gathers || scatters || (turns && box.dims[fast] >= 8 && box.dims[slow] >= 8);
  Loops loops;
  for (int axis = 0; axis < box.rank; ++axis) {
    if (tiled && (axis == fast || axis == slow)) continue;
    loops.dims[loops.rank] = box.dims[axis];
    loops.from[loops.rank] = from.strides[axis];
    loops.to[loops.rank++] = to.strides[axis];
    loops.count *= box.dims[axis];
  }
  for (int axis = 0; axis < loops.rank; ++axis) loops.by[axis] = {loops.dims[axis], loops.count};
  if (!tiled) {
    launchLoop(q, "copy", copyElements<T>, (loops.count + loadsAtOnce - 1) / loadsAtOnce, loops, source, destination);
    return;
  }
  if constexpr (!std::is_same_v<T, Widest>) { // whose neighbours are the same on both sides
    if (gathers || scatters) {
      NarrowPlanes narrow{.few = box.dims[gathers ? fast : slow],
                          .wide = box.dims[gathers ? slow : fast],
                          .row = gathers ? from.strides[fast] : to.strides[slow],
                          .columns = 0,
                          .tiles = 0,
                          .outer = loops};
      const std::int64_t most = narrowBytes / static_cast<std::int64_t>(sizeof(T)) / narrow.few;
      narrow.tiles = (narrow.wide + most - 1) / most;
      narrow.columns = (narrow.wide + narrow.tiles - 1) / narrow.tiles;
      cuda::launchBlocks(q, "copy", gathers ? copyNarrowTiles<true, T> : copyNarrowTiles<false, T>,
                         loops.count * narrow.tiles, narrow, source, destination);
      return;
    }
    Planes planes{.rows = box.dims[slow],
                  .columns = box.dims[fast],
                  .fromColumn = from.strides[fast],
                  .toRow = to.strides[slow],
                  .rowTiles = (box.dims[slow] + tileSize - 1) / tileSize,
                  .columnTiles = (box.dims[fast] + tileSize - 1) / tileSize,
                  .tiles = 0,
                  .outer = loops};
    planes.tiles = planes.rowTiles * planes.columnTiles * loops.count;
    cuda::launchBlocks(q, "copy", copyTiles<T>, planes.tiles, planes, source, destination);
  }
}

bool multiple(const void* memory, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(memory) % bytes == 0;
}

/// The same copy, of half as many elements of twice the size, if pairs of neighbours stay together and begin at
/// multiples of their size.
bool pairUp(Shape& box, Arrangement& from, Arrangement& to) {
  const int axis = neighbours(box, to);
  if (axis < 0 || axis != neighbours(box, from) || box.dims[axis] % 2 != 0) return false;
  Shape halfBox = box;
  Arrangement halfFrom = from, halfTo = to;
  halfBox.dims[axis] /= 2;
  for (auto [half, whole] : {std::pair{&halfFrom, &from}, std::pair{&halfTo, &to}}) {
    if (whole->begin % 2 != 0) return false;
    half->begin /= 2;
    for (int other = 0; other < box.rank; ++other) {
      if (other == axis) continue;
      if (whole->strides[other] % 2 != 0) return false;
      half->strides[other] /= 2;
    }
  }
  box = halfBox;
  from = halfFrom;
  to = halfTo;
  return true;
}

/// Calls f with an unsigned integer of that many bytes.
template <class F>
void withWidth(std::size_t elementBytes, F f) {
  switch (elementBytes) {
  case 1: return f(std::uint8_t());
  case 2: return f(std::uint16_t());
  case 4: return f(std::uint32_t());
  case 8: return f(std::uint64_t());
  }
  assert(false && "elements have 1, 2, 4 or 8 bytes");
}

} // namespace

void StridedCopy::run(Stream& q, const void* from, void* to, std::size_t elementBytes) const {
  if (box_.rank > 0 && box_.elements() == 0) return;
  Shape box = box_;
  Arrangement source = from_, destination = to_;
  while (elementBytes < sizeof(Widest) && multiple(from, 2 * elementBytes) && multiple(to, 2 * elementBytes) &&
         pairUp(box, source, destination))
    elementBytes *= 2;
  if (elementBytes == sizeof(Widest))
    copy<Widest>(q, box, source, destination, from, to);
  else
    withWidth(elementBytes, [&]<class T>(T) { copy<T>(q, box, source, destination, from, to); });
}

void fill(Stream& q, void* to, std::int64_t count, std::uint64_t pattern, std::size_t elementBytes) {
  withWidth(elementBytes, [&]<class T>(T) {
    constexpr int n = sizeof(Widest) / sizeof(T);
    const bool packs = multiple(to, sizeof(Widest));
    launchLoop(q, "fill", packs ? fillElements<n, T> : fillElements<1, T>, packs ? count / n + count % n : count,
               static_cast<T*>(to), static_cast<T>(pattern), count);
  });
}

} // namespace pdcrt
