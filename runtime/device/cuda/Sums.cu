// Sums of gradients (Device.h), in an order that is the same in every run.
#include "pdcrt/Device.h"

#include "Cuda.h"

#include <array>

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

constexpr unsigned squareBlocks = 512;

/// Partial sums of squares, one per block.
__global__ void addSquares(const float* values, std::int64_t count, double* partial) {
  double sum = 0;
  for (std::int64_t i = thread(); i < count; i += threads()) sum += double(values[i]) * values[i];
  sum = cuda::blockSum(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

/// Where the partial sums of all blocks are, on the device and on the host, of a thread.
struct Partials {
  double *device = nullptr, *host = nullptr;
  std::size_t sums = 0;

  bool make(std::size_t wanted) {
    if (wanted <= sums) return true;
    clear();
    const std::size_t bytes = wanted * squareBlocks * sizeof(double);
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

Status device::sumsOfSquares(Stream& q, std::span<const Floats> of, std::span<double> sums) {
  if (!partials.make(of.size())) return {Exit::noDevice, "the GPU has no room for sums of squares"};
  const auto blocksOf = [](const Floats& floats) {
    return std::min<std::int64_t>(squareBlocks, (floats.count + threadsPerBlock - 1) / threadsPerBlock);
  };
  for (std::size_t i = 0; i < of.size(); ++i)
    cuda::launchBlocks(q, "squares", addSquares, blocksOf(of[i]), of[i].values, of[i].count,
                       partials.device + i * squareBlocks);
  copy(q, partials.host, partials.device, of.size() * squareBlocks * sizeof(double));
  if (Status status = wait(q); !status) return status;
  for (std::size_t i = 0; i < of.size(); ++i) {
    sums[i] = 0;
    for (std::int64_t block = 0; block < blocksOf(of[i]); ++block)
      sums[i] += partials.host[i * squareBlocks + static_cast<std::size_t>(block)];
  }
  return {};
}

} // namespace pdcrt
