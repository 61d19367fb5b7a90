// See Gather.h. The gradient has no atomic sums: the rows of dy with one index are added in pieces of at most
// `indicesPerPiece`, in the order of the indices, and then the pieces in theirs. So an index that all share takes no
// longer than one that few do.
#include "pdcrt/kernels/Gather.h"

#include "cuda/support/Divider.h"
#include "cuda/support/IndexedRows.h"
#include "pdcrt/CudaWorkspace.h"

#include <type_traits>

namespace pdcrt {
namespace {

using cuda::rowOf;

struct Sizes {
  std::int64_t outer, size, inner, count;
};

template <class T, class Index>
__global__ void gatherRows(Sizes s, cuda::TableRows rows, const T* x, const Index* indices, T* y) {
  for (std::int64_t i = thread(); i < s.outer * s.count * s.inner; i += threads()) {
    const std::int64_t row = rowOf(indices[i / s.inner % s.count], rows), outer = i / (s.inner * s.count);
    if (row >= 0)
      y[i] = x[(outer * s.size + row) * s.inner + i % s.inner];
    else
      y[i] = row == cuda::outsideOfTable ? static_cast<T>(~T(0)) : T(0);
  }
}

using cuda::indicesPerPiece;
using cuda::lowerBound;
using cuda::rowKey;
using cuda::RowKey;
using cuda::rowOfKey;

/// The gradient's launches: a thread makes `n` neighbours of a sum. Numbers of threads are taken apart by `packs`, the
/// packs of a row, and `counts`.
struct GradientSizes : Sizes {
  cuda::Divider packs, counts;
};

/// Whether a piece begins at a place of the sorted keys: there, or a multiple of pieces before, its row begins.
__device__ bool beginsPiece(const RowKey* keys, std::int64_t at) {
  const std::int64_t row = rowOfKey(keys[at]);
  if (row == cuda::noRow) return false;
  if (at == 0 || rowOfKey(keys[at - 1]) != row) return true;
  if (at < indicesPerPiece || rowOfKey(keys[at - indicesPerPiece]) != row) return false;
  return (at - lowerBound(keys, 0, at, rowKey(row, 0))) % indicesPerPiece == 0;
}

/// Where the piece that begins at `at` goes if its row has others. The first pieces of two such rows are further apart
/// than a piece is long, and so are their other ones: no two go to one place.
__device__ std::int64_t roomOf(std::int64_t at, bool first) {
  return at / indicesPerPiece * 2 + (first ? 0 : 1);
}

/// Adds `count` packs in their order; `from(i)` is where the i-th one is. Several are on their way at once.
template <int n, class From>
__device__ void addAll(Pack<float, n>& sum, std::int64_t count, From from) {
  constexpr int atOnce = 8;
  Pack<float, n> values[atOnce];
  for (std::int64_t i = 0; i < count; i += atOnce) {
    for (int j = 0; j < atOnce; ++j)
      if (i + j < count) values[j] = loadPack<n>(View<const float>{from(i + j)}, 0);
    for (int j = 0; j < atOnce; ++j)
      for (int k = 0; k < n && i + j < count; ++k) sum[k] += values[j][k];
  }
}

template <int n>
__global__ void addPieces(GradientSizes s, const float* dy, const RowKey* keys, float* pieces, float* dx) {
  const std::int64_t packs = s.inner / n;
  for (std::int64_t i = thread(); i < s.outer * s.count * packs; i += threads()) {
    const std::int64_t place = s.packs.quotient(i), column = (i - place * packs) * n;
    const std::int64_t outer = s.counts.quotient(place), at = place - outer * s.count;
    if (!beginsPiece(keys, at)) continue;
    const std::int64_t row = rowOfKey(keys[at]), most = minimum(at + indicesPerPiece, s.count);
    const std::int64_t end = lowerBound(keys, at, most, rowKey(row + 1, 0));
    const float* const from = dy + outer * s.count * s.inner + column;
    Pack<float, n> sum = {};
    addAll(sum, end - at, [&](std::int64_t j) { return from + cuda::placeOfKey(keys[at + j]) * s.inner; });
    const bool first = at == 0 || rowOfKey(keys[at - 1]) != row, last = end == s.count || rowOfKey(keys[end]) != row;
    float* const to = first && last ? dx + (outer * s.size + row) * s.inner
                                    : pieces + (outer * cuda::piecesOf(s.count) + roomOf(at, first)) * s.inner;
    storePack(View<float>{to + column}, 0, sum);
  }
}

/// Adds up the rows of several pieces. Where a piece's length goes by, at most one such row begins; it goes on there.
template <int n>
__global__ void addLongRows(GradientSizes s, std::int64_t windows, const RowKey* keys, const float* pieces, float* dx) {
  const std::int64_t packs = s.inner / n;
  for (std::int64_t i = thread(); i < s.outer * windows * packs; i += threads()) {
    const std::int64_t place = s.packs.quotient(i), column = (i - place * packs) * n;
    const std::int64_t outer = place / windows, next = (place % windows + 1) * indicesPerPiece;
    const std::int64_t row = rowOfKey(keys[next]), first = lowerBound(keys, 0, next, rowKey(row, 0));
    const std::int64_t second = first + indicesPerPiece;
    if (row == cuda::noRow || second < next || first == next || second >= s.count || rowOfKey(keys[second]) != row)
      continue;
    const std::int64_t end = lowerBound(keys, second, s.count, rowKey(row + 1, 0));
    const float* const from = pieces + outer * cuda::piecesOf(s.count) * s.inner + column;
    Pack<float, n> sum = loadPack<n>(View<const float>{from + roomOf(first, true) * s.inner}, 0);
    addAll(sum, (end - second + indicesPerPiece - 1) / indicesPerPiece,
           [&](std::int64_t j) { return from + roomOf(second + j * indicesPerPiece, false) * s.inner; });
    storePack(View<float>{dx + (outer * s.size + row) * s.inner + column}, 0, sum);
  }
}

cuda::TableRows rowsOf(const Gather::Options& o, const Stream& q) {
  if (o.rows == 0) return {o.size};
  return {.size = o.size, .first = q.member() * o.size, .all = o.rows};
}

Sizes sizesOf(const Gather::Options& o) {
  return {o.outer, o.size, o.inner, o.count};
}

template <class Index>
void gatherAny(Stream& q, const Gather::Options& o, const void* x, const Index* indices, void* y,
               std::size_t elementBytes) {
  const auto as = [&]<class T>(T) {
    launchLoop(q, "gather", gatherRows<T, Index>, o.outer * o.count * o.inner, sizesOf(o), rowsOf(o, q),
               static_cast<const T*>(x), indices, static_cast<T*>(y));
  };
  switch (elementBytes) {
  case 1: return as(std::uint8_t());
  case 2: return as(std::uint16_t());
  case 4: return as(std::uint32_t());
  case 8: return as(std::uint64_t());
  }
}

template <int n>
void addRows(Stream& q, const Gather::Options& o, const float* dy, const RowKey* keys, float* dx) {
  const std::int64_t packs = o.inner / n, sums = o.outer * o.count * packs;
  const GradientSizes sizes = {sizesOf(o), {packs, sums}, {o.count, sums}};
  auto* const pieces = reinterpret_cast<float*>(q.workspace() + cuda::sortedRowBytes(o.count));
  launchLoop(q, "gather, gradient", addPieces<n>, sums, sizes, dy, keys, pieces, dx);
  const std::int64_t windows = o.count > 0 ? (o.count - 1) / indicesPerPiece : 0;
  launchLoop(q, "gather, gradient", addLongRows<n>, o.outer * windows * packs, sizes, windows, keys, pieces, dx);
}

template <class Index>
void gradient(Stream& q, const Gather::Options& o, const float* dy, const Index* indices, float* dx) {
  PDCRT_CUDA(
      cudaMemsetAsync(dx, 0, static_cast<std::size_t>(o.outer * o.size * o.inner) * sizeof(float), cuda::streamOf(q)));
  const RowKey* const keys = cuda::sortRows(q, rowsOf(o, q), o.count, indices);
  constexpr int n = 4;
  const auto addresses = reinterpret_cast<std::uintptr_t>(dy) | reinterpret_cast<std::uintptr_t>(dx);
  const bool packed = o.inner % n == 0 && addresses % (n * sizeof(float)) == 0;
  (packed ? addRows<n> : addRows<1>)(q, o, dy, keys, dx);
}

} // namespace

Gather::Gather(Setup& setup, const Options& o) : options_(o) {
  setup.needWorkspace(cuda::workspaceOf(o));
}

void Gather::gather(Stream& q, const void* x, const std::int64_t* indices, void* y, std::size_t elementBytes) const {
  gatherAny(q, options_, x, indices, y, elementBytes);
}
void Gather::gather(Stream& q, const void* x, const std::int32_t* indices, void* y, std::size_t elementBytes) const {
  gatherAny(q, options_, x, indices, y, elementBytes);
}

void Gather::inputGradient(Stream& q, View<const float> dy, View<const std::int64_t> indices, View<float> dx) const {
  gradient(q, options_, dy.data, indices.data, dx.data);
}
void Gather::inputGradient(Stream& q, View<const float> dy, View<const std::int32_t> indices, View<float> dx) const {
  gradient(q, options_, dy.data, indices.data, dx.data);
}

} // namespace pdcrt
