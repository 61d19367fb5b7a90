// What the fused kernels of a stage program need: the scalar functions and, in a program for CUDA, packs of elements
// that move in one access, and launches.
#pragma once

#include "pdcrt/Math.h"
#include "pdcrt/Stream.h"
#include "pdcrt/View.h"

#if defined(__CUDACC__) || defined(PDCRT_CUDA_STAND_IN)

#ifdef PDCRT_CUDA_STAND_IN
#include <cuda_runtime.h>
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>

#ifdef __CUDACC__
#define PDCRT_LAUNCH(kernel, grid, block, stream, ...) kernel<<<grid, block, 0, stream>>>(__VA_ARGS__)
#endif

namespace pdcrt {

/// Reports an error of the last launch, with the name of what was launched (device/cuda/Cuda.h).
void checkLaunch(const char* what);

/// `n` neighbours, loaded and stored at once.
template <class T, int n>
struct alignas(sizeof(T) * n) Pack {
  T elements[n];
  __device__ T& operator[](int i) { return elements[i]; }
  __device__ const T& operator[](int i) const { return elements[i]; }
};

/// Elements i … i + n - 1; i is a multiple of n.
template <int n, class T>
__device__ inline Pack<std::remove_const_t<T>, n> loadPack(View<T> view, std::int64_t i) {
  return *reinterpret_cast<const Pack<std::remove_const_t<T>, n>*>(view.data + i);
}
template <class T, int n>
__device__ inline void storePack(View<T> view, std::int64_t i, const Pack<T, n>& pack) {
  *reinterpret_cast<Pack<T, n>*>(view.data + i) = pack;
}

/// The number of this thread, and how many there are: `for (i = thread(); i < n; i += threads())` covers 0 … n - 1.
template <class Index = std::int64_t>
__device__ inline Index thread() {
  return static_cast<Index>(blockIdx.x) * static_cast<Index>(blockDim.x) + static_cast<Index>(threadIdx.x);
}
template <class Index = std::int64_t>
__device__ inline Index threads() {
  return static_cast<Index>(gridDim.x) * static_cast<Index>(blockDim.x);
}

inline constexpr unsigned threadsPerBlock = 256;

/// Enough blocks for `count` threads, at most so many that every multiprocessor of today's devices is full twice.
inline unsigned blocksFor(std::int64_t count) {
  constexpr std::int64_t most = 4096;
  return static_cast<unsigned>(std::clamp<std::int64_t>((count + threadsPerBlock - 1) / threadsPerBlock, 1, most));
}

/// Puts a loop over `count` threads into the stream.
template <class... Parameters, class... Arguments>
void launchLoop(Stream& q, const char* name, void (*kernel)(Parameters...), std::int64_t count,
                const Arguments&... arguments) {
  if (count == 0) return;
  PDCRT_LAUNCH(kernel, blocksFor(count), threadsPerBlock, static_cast<cudaStream_t>(q.native()),
               static_cast<Parameters>(arguments)...);
  checkLaunch(name);
}

} // namespace pdcrt

#endif
