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

/// Where the partial sums are, on the device and on the host, of a thread.
struct Partials {
  double *device = nullptr, *host = nullptr;

  bool make() {
    if (device) return true;
    return cudaMalloc(&device, squareBlocks * sizeof(double)) == cudaSuccess &&
           cudaMallocHost(&host, squareBlocks * sizeof(double)) == cudaSuccess;
  }
  ~Partials() {
    if (device) cudaFree(device);
    if (host) cudaFreeHost(host);
  }
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

Status device::sumOfSquares(Stream& q, const float* values, std::int64_t count, double& sum) {
  sum = 0;
  if (count == 0) return {};
  if (!partials.make()) return {Exit::noDevice, "the GPU has no room for sums of squares"};
  const std::int64_t blocks = std::min<std::int64_t>(squareBlocks, (count + threadsPerBlock - 1) / threadsPerBlock);
  cuda::launchBlocks(q, "squares", addSquares, blocks, values, count, partials.device);
  copy(q, partials.host, partials.device, static_cast<std::size_t>(blocks) * sizeof(double));
  if (Status status = wait(q); !status) return status;
  for (std::int64_t i = 0; i < blocks; ++i) sum += partials.host[i];
  return {};
}

} // namespace pdcrt
