// See TopK.h. An element's place is the number of those that are better; one block per line counts them.
#include "pdcrt/kernels/TopK.h"

#include "device/cuda/Cuda.h"

namespace pdcrt {
namespace {

template <class T>
__device__ bool larger(T a, T b) {
  return a > b || (a != a && b == b);
}

template <class T>
__global__ void best(TopK::Options o, const T* x, std::int64_t* indices) {
  for (std::int64_t line = blockIdx.x; line < o.outer * o.inner; line += gridDim.x) {
    const std::int64_t outer = line / o.inner, inner = line % o.inner;
    const T* const column = x + outer * o.size * o.inner + inner;
    for (std::int64_t i = threadIdx.x; i < o.size; i += blockDim.x) {
      const T value = column[i * o.inner];
      std::int64_t better = 0;
      for (std::int64_t j = 0; j < o.size && better < o.k; ++j) {
        const T other = column[j * o.inner];
        const bool wins = o.largest ? larger(other, value) : larger(value, other);
        const bool loses = o.largest ? larger(value, other) : larger(other, value);
        better += wins || (!loses && j < i);
      }
      if (better < o.k) indices[(outer * o.k + better) * o.inner + inner] = i;
    }
  }
}

} // namespace

TopK::TopK(Setup&, const Options& options) : options_(options) {}

void TopK::run(Stream& q, Element element, const void* x, View<std::int64_t> indices) const {
  withElement(element, [&]<class T>(T) {
    cuda::launchBlocks(q, "top k", best<T>, options_.outer * options_.inner, options_, static_cast<const T*>(x),
                       indices.data);
  });
}

} // namespace pdcrt
