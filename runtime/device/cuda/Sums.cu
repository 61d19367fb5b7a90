// Sums of gradients (Device.h), in an order that is the same in every run.
#include "pdcrt/Device.h"

#include "Cuda.h"

#include <algorithm>

namespace pdcrt {
namespace {

constexpr std::size_t termsAtOnce = 16;

struct Terms {
  const float* at[termsAtOnce];
  int count;
};

__global__ void addTerms(float* sum, Terms terms, std::int64_t count) {
  for (std::int64_t i = thread(); i < count; i += threads()) {
    float total = terms.at[0][i];
    for (int term = 1; term < terms.count; ++term) total += terms.at[term][i];
    sum[i] = total;
  }
}

__global__ void divideAll(float* values, float divisor, std::int64_t count) {
  for (std::int64_t i = thread(); i < count; i += threads()) values[i] /= divisor;
}

constexpr std::size_t mostSquareBlocks = 4096; // of threads, beside which nothing is gained

/// Sums of the squares of each `block` elements; a block of threads makes one sum after the other.
__global__ void addSquares(const float* values, std::int64_t count, std::int64_t block, double* sums) {
  for (std::int64_t which = blockIdx.x; which * block < count; which += gridDim.x) {
    const std::int64_t begin = which * block, end = begin + block < count ? begin + block : count;
    double sum = 0;
    for (std::int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) sum += double(values[i]) * values[i];
    sum = cuda::blockSum(sum);
    if (threadIdx.x == 0) sums[which] = sum;
    __syncthreads(); // the next sum uses the same shared memory
  }
}

/// Where the sums are, on the device and on the host, of a thread.
struct Partials {
  double *device = nullptr, *host = nullptr;
  std::size_t sums = 0;

  bool make(std::size_t wanted) {
    if (wanted <= sums) return true;
    clear();
    const std::size_t bytes = wanted * sizeof(double);
    if (!cuda::got(cudaMalloc(&device, bytes)) || !cuda::got(cudaMallocHost(&host, bytes))) return false;
    sums = wanted;
    return true;
  }
  void clear() {
    if (device) cudaFree(device);
    if (host) cudaFreeHost(host);
    device = host = nullptr;
    sums = 0;
  }
  ~Partials() { clear(); }
};

thread_local Partials partials;

} // namespace

void device::addUp(Stream& q, float* sum, std::span<const float* const> terms, std::int64_t count) {
  // More terms than fit: the sum so far goes through `sum`, which is therefore no later term's memory.
  Terms some{};
  for (std::size_t next = 0; next < terms.size();) {
    some.count = 0;
    if (next > 0) some.at[some.count++] = sum;
    while (some.count < static_cast<int>(termsAtOnce) && next < terms.size()) some.at[some.count++] = terms[next++];
    launchLoop(q, "sum", addTerms, count, sum, some, count);
  }
}

void device::divide(Stream& q, float* values, float divisor, std::int64_t count) {
  launchLoop(q, "division", divideAll, count, values, divisor, count);
}

Status device::sumsOfSquares(Stream& q, std::span<const Floats> of, std::int64_t block, std::span<double> sums) {
  if (!partials.make(sums.size())) return {Exit::noDevice, "the GPU has no room for sums of squares"};
  std::size_t next = 0;
  for (const Floats& floats : of) {
    const std::size_t blocks = blocksOfSquares(floats.count, block);
    if (blocks == 0) continue;
    cuda::launchBlocks(q, "squares", addSquares, static_cast<std::int64_t>(std::min(blocks, mostSquareBlocks)),
                       floats.values, floats.count, block, partials.device + next);
    next += blocks;
  }
  copy(q, partials.host, partials.device, sums.size() * sizeof(double));
  if (Status status = wait(q); !status) return status;
  std::copy_n(partials.host, sums.size(), sums.begin());
  return {};
}

} // namespace pdcrt
