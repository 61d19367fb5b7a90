// See Scatter.h. Updates of one row are made by the block of the first of them, in order.
#include "pdcrt/kernels/Scatter.h"

#include "Cuda.h"
#include "pdcrt/CudaWorkspace.h"

namespace pdcrt {
namespace {

struct Sizes {
  std::int64_t size, inner, count;
  Combination kind;
};

__device__ std::int64_t rowOf(std::int64_t index, std::int64_t size) {
  if (index < 0) index += size;
  return index >= 0 && index < size ? index : -1;
}

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

__global__ void findEnds(Sizes s, const std::int64_t* indices, int* first, int* last) {
  for (std::int64_t i = thread(); i < s.count; i += threads()) {
    const std::int64_t row = rowOf(indices[i], s.size);
    if (row < 0) continue;
    atomicMin(first + row, static_cast<int>(i));
    atomicMax(last + row, static_cast<int>(i));
  }
}

template <class T>
__global__ void update(Sizes s, const std::int64_t* indices, const T* updates, const int* first, const int* last,
                       T* y) {
  for (std::int64_t block = blockIdx.x; block < s.count; block += gridDim.x) {
    const std::int64_t row = rowOf(indices[block], s.size);
    if (row < 0 || first[row] != block) continue;
    for (std::int64_t j = threadIdx.x; j < s.inner; j += blockDim.x) {
      T value = y[row * s.inner + j];
      for (std::int64_t i = block; i <= last[row]; ++i)
        if (rowOf(indices[i], s.size) == row) value = combine(s.kind, value, updates[i * s.inner + j]);
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
  int* const first = reinterpret_cast<int*>(q.workspace());
  int* const last = first + sizes.size;
  const auto rows = static_cast<std::size_t>(sizes.size) * sizeof(int);
  const cudaStream_t stream = cuda::streamOf(q);
  PDCRT_CUDA(cudaMemcpyAsync(y, x, static_cast<std::size_t>(sizes.size * sizes.inner) * bytesOf(element),
                             cudaMemcpyDeviceToDevice, stream));
  PDCRT_CUDA(cudaMemsetAsync(first, 0x7F, rows, stream));
  PDCRT_CUDA(cudaMemsetAsync(last, 0xFF, rows, stream));
  launchLoop(q, "scatter, ends", findEnds, sizes.count, sizes, indices, first, last);
  withElement(element, [&]<class T>(T) {
    cuda::launchBlocks(q, "scatter", update<T>, sizes.count, sizes, indices, static_cast<const T*>(updates), first,
                       last, static_cast<T*>(y));
  });
}

} // namespace pdcrt
