// See Scatter.h. Updates of one row are made by the block of the first of them, in order.
#include "pdcrt/kernels/Scatter.h"

#include "cuda/support/IndexedRows.h"
#include "pdcrt/CudaWorkspace.h"

namespace pdcrt {
namespace {

struct Sizes {
  std::int64_t size, inner, count;
  Combination kind;
};

using cuda::rowOfKey;

template <class T>
__device__ T combine(Combination kind, T to, T from) {
  using Wide = std::conditional_t<std::is_floating_point_v<T>, T, std::uint64_t>;
  switch (kind) {
  case Combination::replace: return from;
  case Combination::add: return static_cast<T>(static_cast<Wide>(to) + static_cast<Wide>(from));
  case Combination::multiply: return static_cast<T>(static_cast<Wide>(to) * static_cast<Wide>(from));
  case Combination::max: return maximum(to, from);
  case Combination::min: return minimum(to, from);
  }
  return from;
}

template <class T>
__global__ void update(Sizes s, const cuda::RowKey* keys, const T* updates, T* y) {
  for (std::int64_t block = blockIdx.x; block < s.count; block += gridDim.x) {
    const std::int64_t row = rowOfKey(keys[block]);
    if (row == cuda::noRow || (block > 0 && rowOfKey(keys[block - 1]) == row)) continue;
    for (std::int64_t j = threadIdx.x; j < s.inner; j += blockDim.x) {
      T value = y[row * s.inner + j];
      for (std::int64_t i = block; i < s.count && rowOfKey(keys[i]) == row; ++i)
        value = combine(s.kind, value, updates[cuda::placeOfKey(keys[i]) * s.inner + j]);
      y[row * s.inner + j] = value;
    }
  }
}

} // namespace

Scatter::Scatter(Setup& setup, const Options& options) : options_(options) {
  setup.needWorkspace(cuda::workspaceOf(options));
}

void Scatter::run(Stream& q, Element element, const void* x, const std::int64_t* indices, const void* updates,
                  void* y) const {
  const Sizes sizes = {options_.size, options_.inner, options_.count, options_.kind};
  PDCRT_CUDA(cudaMemcpyAsync(y, x, static_cast<std::size_t>(sizes.size * sizes.inner) * bytesOf(element),
                             cudaMemcpyDefault, cuda::streamOf(q)));
  const cuda::RowKey* const keys = cuda::sortRows(q, {sizes.size}, sizes.count, indices);
  withElement(element, [&]<class T>(T) {
    cuda::launchBlocks(q, "scatter", update<T>, sizes.count, sizes, keys, static_cast<const T*>(updates),
                       static_cast<T*>(y));
  });
}

} // namespace pdcrt
