// StridedCopy, and fill. One thread per element of the destination's order, where neighbours that stay together count
// as one element of up to 16 bytes; a plane in which source and destination run along different axes goes through tiles
// in shared memory, so that both sides are read and written whole.
#include "pdcrt/kernels/StridedCopy.h"

#include "Divider.h"

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
  const bool tiled = fast >= 0 && slow >= 0 && fast != slow && box.dims[fast] >= 8 && box.dims[slow] >= 8;
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
