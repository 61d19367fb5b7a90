// See Softmax.h. One block per row.
#include "pdcrt/kernels/Softmax.h"

#include "device/cuda/Cuda.h"

#include <limits>

namespace pdcrt {
namespace {

using cuda::blockCombine;
using cuda::blockSum;

__global__ void softmax(Softmax::Options o, const float* x, float* y) {
  for (std::int64_t row = blockIdx.x; row < o.rows; row += gridDim.x) {
    const float* const from = x + row * o.classes;
    float* const to = y + row * o.classes;
    float max = -std::numeric_limits<float>::infinity();
    for (std::int64_t i = threadIdx.x; i < o.classes; i += blockDim.x) max = maximum(max, from[i]);
    max = blockCombine(max, -std::numeric_limits<float>::infinity(), cuda::Larger());
    double sum = 0;
    for (std::int64_t i = threadIdx.x; i < o.classes; i += blockDim.x) sum += pdcrt::exp(from[i] - max);
    sum = blockSum(sum);
    const float factor = static_cast<float>(1 / sum), logSum = static_cast<float>(std::log(sum));
    for (std::int64_t i = threadIdx.x; i < o.classes; i += blockDim.x)
      to[i] = o.logarithm ? (from[i] - max) - logSum : pdcrt::exp(from[i] - max) * factor;
  }
}

__global__ void gradient(Softmax::Options o, const float* dy, const float* y, float* dx) {
  for (std::int64_t row = blockIdx.x; row < o.rows; row += gridDim.x) {
    const std::int64_t begin = row * o.classes;
    double partial = 0;
    for (std::int64_t i = threadIdx.x; i < o.classes; i += blockDim.x)
      partial += o.logarithm ? double(dy[begin + i]) : double(dy[begin + i]) * y[begin + i];
    const float sum = static_cast<float>(blockSum(partial));
    for (std::int64_t i = threadIdx.x; i < o.classes; i += blockDim.x)
      dx[begin + i] =
          o.logarithm ? dy[begin + i] - pdcrt::exp(y[begin + i]) * sum : (dy[begin + i] - sum) * y[begin + i];
  }
}

} // namespace

Softmax::Softmax(Setup&, const Options& o) : options_(o) {}

void Softmax::forward(Stream& q, View<const float> x, View<float> y) const {
  cuda::launchBlocks(q, "softmax", softmax, options_.rows, options_, x.data, y.data);
}

void Softmax::inputGradient(Stream& q, View<const float> dy, View<const float> y, View<float> dx) const {
  cuda::launchBlocks(q, "softmax, gradient", gradient, options_.rows, options_, dy.data, y.data, dx.data);
}

} // namespace pdcrt
