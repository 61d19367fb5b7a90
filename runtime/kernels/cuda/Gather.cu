// See Gather.h. The gradient has no atomic sums: of the rows of dy with one index, the block of the first one adds all,
// in order.
#include "pdcrt/kernels/Gather.h"

#include "IndexedRows.h"
#include "pdcrt/CudaWorkspace.h"

#include <type_traits>

namespace pdcrt {
namespace {

using cuda::rowOf;

struct Sizes {
  std::int64_t outer, size, inner, count;
};

template <class T, class Index>
__global__ void gatherRows(Sizes s, const T* x, const Index* indices, T* y) {
  for (std::int64_t i = thread(); i < s.outer * s.count * s.inner; i += threads()) {
    const std::int64_t row = rowOf(indices[i / s.inner % s.count], s.size), outer = i / (s.inner * s.count);
    y[i] = row < 0 ? static_cast<T>(~T(0)) : x[(outer * s.size + row) * s.inner + i % s.inner];
  }
}

template <class Index>
__global__ void addRows(Sizes s, const float* dy, const Index* indices, cuda::IndexedRows rows, float* dx) {
  for (std::int64_t block = blockIdx.x; block < s.outer * s.count; block += gridDim.x) {
    const std::int64_t i = block % s.count, outer = block / s.count, row = rowOf(indices[i], s.size);
    if (row < 0 || rows.first[row] != i) continue;
    for (std::int64_t j = threadIdx.x; j < s.inner; j += blockDim.x) {
      float sum = 0;
      for (std::int64_t other = i; other < s.count; other = rows.next[other])
        sum += dy[(outer * s.count + other) * s.inner + j];
      dx[(outer * s.size + row) * s.inner + j] = sum;
    }
  }
}

Sizes sizesOf(const Gather::Options& o) {
  return {o.outer, o.size, o.inner, o.count};
}

template <class Index>
void gatherAny(Stream& q, const Gather::Options& o, const void* x, const Index* indices, void* y,
               std::size_t elementBytes) {
  const auto as = [&]<class T>(T) {
    launchLoop(q, "gather", gatherRows<T, Index>, o.outer * o.count * o.inner, sizesOf(o), static_cast<const T*>(x),
               indices, static_cast<T*>(y));
  };
  switch (elementBytes) {
  case 1: return as(std::uint8_t());
  case 2: return as(std::uint16_t());
  case 4: return as(std::uint32_t());
  case 8: return as(std::uint64_t());
  }
}

template <class Index>
void gradient(Stream& q, const Gather::Options& o, const float* dy, const Index* indices, float* dx) {
  PDCRT_CUDA(
      cudaMemsetAsync(dx, 0, static_cast<std::size_t>(o.outer * o.size * o.inner) * sizeof(float), cuda::streamOf(q)));
  const cuda::IndexedRows rows = cuda::indexRows(q, o.size, o.count, indices);
  cuda::launchBlocks(q, "gather, gradient", addRows<Index>, o.outer * o.count, sizesOf(o), dy, indices, rows, dx);
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
