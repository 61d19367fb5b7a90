// Threads that use the stand-in at once, as the ranks of a run in one process do: what one allocates is none of the
// others' business.
#include <cuda_runtime.h>

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

namespace {

constexpr std::size_t bytes = 256;

void allocateUntil(const std::atomic<bool>& end) {
  std::array<void*, 64> memory = {};
  while (!end) {
    for (void*& block : memory) ASSERT_EQ(cudaMalloc(&block, bytes), cudaSuccess);
    for (void* block : memory) ASSERT_EQ(cudaFree(block), cudaSuccess);
  }
}

TEST(CudaThreads, OneCopiesWhileOthersAllocate) {
  std::atomic<bool> end = false;
  std::vector<std::thread> others;
  for (int i = 0; i < 2; ++i) others.emplace_back([&end] { allocateUntil(end); });
  void *from = nullptr, *to = nullptr;
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaMalloc(&from, bytes), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&to, bytes), cudaSuccess);
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  for (int i = 0; i < 1'000'000; ++i)
    ASSERT_EQ(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  end = true;
  for (std::thread& other : others) other.join();
}

} // namespace
