// What the kernels for CUDA share: checked calls, launches, and sums over warps and blocks.
//
// Only the .cu files of this folder include it. Under the stand-in of the tests (test/stand-in) they are compiled as
// C++, and its headers take the place of the toolkit's.
#pragma once

#include "pdcrt/Fused.h"
#include "pdcrt/Setup.h"
#include "pdcrt/Stream.h"

#include <cuda_runtime.h>

#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace pdcrt::cuda {

[[noreturn]] inline void fail(const char* call, const char* reason) {
  throw std::runtime_error(std::string(call) + ": " + reason);
}
inline void check(cudaError_t code, const char* call) {
  if (code != cudaSuccess) fail(call, cudaGetErrorString(code));
}
#define PDCRT_CUDA(call) ::pdcrt::cuda::check(call, #call)

/// Whether a call succeeded without which the program goes on. CUDA keeps the error, and the next launch would report
/// it.
inline bool got(cudaError_t code) {
  if (code != cudaSuccess) static_cast<void>(cudaGetLastError());
  return code == cudaSuccess;
}

inline cudaStream_t streamOf(const Stream& q) {
  return static_cast<cudaStream_t>(q.native());
}

/// device::allowTf32() was called.
inline std::atomic<bool> tf32{false};

/// Bytes of workspace that a product of matrices may use (NVIDIA's recommendation for the newest devices).
inline constexpr std::size_t productWorkspace = std::size_t{32} << 20;

#if defined(__CUDACC__) || defined(PDCRT_CUDA_STAND_IN)

/// Blocks of threads with something to do together: `blocks` of them.
template <class... Parameters, class... Arguments>
void launchBlocks(Stream& q, const char* name, void (*kernel)(Parameters...), std::int64_t blocks,
                  const Arguments&... arguments) {
  if (blocks == 0) return;
  PDCRT_LAUNCH(kernel, static_cast<unsigned>(std::min<std::int64_t>(blocks, 0x7FFFFFFF)), threadsPerBlock, streamOf(q),
               static_cast<Parameters>(arguments)...);
  checkLaunch(name);
}

inline constexpr int warpSize32 = 32;
inline constexpr int warpsPerBlock = static_cast<int>(threadsPerBlock) / warpSize32;

struct Add {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct Larger {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return maximum(a, b);
  }
};

/// Combines the values of all threads of the block, in one order; every thread gets the result. All threads of the
/// block, `warps` warps of them, must call it.
template <int warps = warpsPerBlock, class Combine, class T>
__device__ T blockCombine(T value, T neutral, Combine combine) {
  __shared__ T ofWarps[warps];
  for (int distance = warpSize32 / 2; distance > 0; distance /= 2)
    value = combine(value, __shfl_xor_sync(0xFFFFFFFFu, value, distance));
  __syncthreads(); // the room may still be read for an earlier result
  if (threadIdx.x % warpSize32 == 0) ofWarps[threadIdx.x / warpSize32] = value;
  __syncthreads();
  T result = neutral;
  for (int warp = 0; warp < warps; ++warp) result = combine(result, ofWarps[warp]);
  return result;
}

template <int warps = warpsPerBlock, class T>
__device__ T blockSum(T value) {
  return blockCombine<warps>(value, T(0), Add());
}

#endif

} // namespace pdcrt::cuda
