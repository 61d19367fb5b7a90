// The part of CUDA's runtime that the runtime of pdc uses, on the CPU: for tests where no GPU is. The declarations are
// those of the toolkit's headers; what the calls do is in ../Runtime.cpp. Kernels are compiled as C++: a block's
// threads run one after the other, or as fibers where they meet at a barrier.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#define __global__
#define __device__
#define __host__
#define __shared__ static thread_local

struct uint3 {
  unsigned x, y, z;
};

enum cudaError_t : int {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorNotReady = 600,
  cudaErrorPeerAccessAlreadyEnabled = 704,
};
enum cudaMemcpyKind {
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
  cudaMemcpyDeviceToDevice = 3,
  cudaMemcpyDefault = 4
};
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal = 1 };
inline constexpr unsigned cudaStreamNonBlocking = 1, cudaEventDefault = 0, cudaEventDisableTiming = 2;
struct cudaDeviceProp {
  char name[256];
};

namespace stand_in {
struct Stream;
struct Event;
struct Graph;
} // namespace stand_in
using cudaGraph_t = stand_in::Graph*;
using cudaGraphExec_t = stand_in::Graph*;
using cudaStream_t = stand_in::Stream*;
using cudaEvent_t = stand_in::Event*;

const char* cudaGetErrorString(cudaError_t code);
cudaError_t cudaGetLastError();
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total);
cudaError_t cudaMalloc(void** memory, std::size_t bytes);
cudaError_t cudaFree(void* memory);
cudaError_t cudaMallocHost(void** memory, std::size_t bytes);
cudaError_t cudaFreeHost(void* memory);
template <class T>
cudaError_t cudaMalloc(T** memory, std::size_t bytes) {
  return cudaMalloc(reinterpret_cast<void**>(memory), bytes);
}
template <class T>
cudaError_t cudaMallocHost(T** memory, std::size_t bytes) {
  return cudaMallocHost(reinterpret_cast<void**>(memory), bytes);
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer);
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags);
cudaError_t cudaMemset(void* memory, int value, std::size_t bytes);
cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t stream);
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable);

namespace stand_in {

/// Which thread of a kernel runs.
struct Coordinates {
  uint3 thread, block, blockSize, grid;
};
extern thread_local Coordinates here;

/// Runs all threads of all blocks; `body` is the kernel with its arguments.
void runKernel(unsigned grid, unsigned block, void (*body)(void*), void* arguments);
/// Puts work into a stream; the null stream does it at once.
void enqueue(cudaStream_t stream, std::function<void()> work);
bool immediate(cudaStream_t stream);

template <class... Parameters>
void launch(void (*kernel)(Parameters...), unsigned grid, unsigned block, cudaStream_t stream,
            Parameters... arguments) {
  auto run = [=] {
    auto call = [&] { kernel(arguments...); };
    runKernel(
        grid, block, [](void* f) { (*static_cast<decltype(call)*>(f))(); }, &call);
  };
  if (immediate(stream))
    run();
  else
    enqueue(stream, run);
}

/// Waits for the other threads of the block, or of the warp.
void barrier();
void warpBarrier();
/// Where a thread leaves a value for the others of its warp.
void* exchange(unsigned lane);

template <class T>
T shuffle(T value, unsigned lane) {
  const unsigned own = here.thread.x % 32;
  *static_cast<T*>(exchange(own)) = value;
  warpBarrier();
  const T other = *static_cast<T*>(exchange(lane));
  warpBarrier();
  return other;
}

} // namespace stand_in

#define threadIdx (::stand_in::here.thread)
#define blockIdx (::stand_in::here.block)
#define blockDim (::stand_in::here.blockSize)
#define gridDim (::stand_in::here.grid)
#define __syncthreads() ::stand_in::barrier()
#define __syncwarp() ::stand_in::warpBarrier()
#define __shfl_xor_sync(mask, value, distance)                                                                         \
  ::stand_in::shuffle(value, (::stand_in::here.thread.x % 32) ^ static_cast<unsigned>(distance))
#define PDCRT_LAUNCH(kernel, grid, block, stream, ...) ::stand_in::launch(kernel, grid, block, stream, __VA_ARGS__)

inline int atomicMin(int* at, int value) {
  const int old = *at;
  if (value < old) *at = value;
  return old;
}
inline int atomicMax(int* at, int value) {
  const int old = *at;
  if (value > old) *at = value;
  return old;
}
