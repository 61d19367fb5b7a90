// See LayerNorm.h. One block per row; the gradients of scale and bias are sums over the rows, in parts (SumParts).
#include "pdcrt/kernels/LayerNorm.h"

#include "Cuda.h"
#include "pdcrt/CudaWorkspace.h"

namespace pdcrt {
namespace {

using cuda::blockSum;

__global__ void normalise(LayerNorm::Options o, bool centred, const float* x, const float* scale, const float* bias,
                          float* y, float* means, float* inverses) {
  for (std::int64_t row = blockIdx.x; row < o.rows; row += gridDim.x) {
    const float* const from = x + row * o.size;
    const double count = static_cast<double>(o.size);
    double mean = 0;
    if (centred) {
      for (std::int64_t i = threadIdx.x; i < o.size; i += blockDim.x) mean += from[i];
      mean = blockSum(mean) / count;
    }
    double squares = 0;
    for (std::int64_t i = threadIdx.x; i < o.size; i += blockDim.x) squares += (from[i] - mean) * (from[i] - mean);
    const double inverse = 1 / std::sqrt(blockSum(squares) / count + o.epsilon);
    if (threadIdx.x == 0 && means) means[row] = static_cast<float>(mean);
    if (threadIdx.x == 0 && inverses) inverses[row] = static_cast<float>(inverse);
    const float shift = static_cast<float>(mean), factor = static_cast<float>(inverse);
    for (std::int64_t i = threadIdx.x; i < o.size; i += blockDim.x) {
      float value = (from[i] - shift) * factor;
      if (scale) value *= scale[i];
      if (bias) value += bias[i];
      y[row * o.size + i] = value;
    }
  }
}

/// dx = (g - shift - (x - mean) · slope) · inverse with g = dy · scale, where `shift`, the mean of g, is 0 when the
/// mean of x was not taken off (`means` is null).
__global__ void differentiate(LayerNorm::Options o, const float* dy, const float* x, const float* scale,
                              const float* means, const float* inverses, float* dx) {
  for (std::int64_t row = blockIdx.x; row < o.rows; row += gridDim.x) {
    const std::int64_t begin = row * o.size;
    const float mean = means ? means[row] : 0.0f, inverse = inverses[row];
    double sum = 0, products = 0;
    for (std::int64_t i = threadIdx.x; i < o.size; i += blockDim.x) {
      const float g = scale ? dy[begin + i] * scale[i] : dy[begin + i];
      sum += g;
      products += double(g) * (x[begin + i] - mean);
    }
    sum = blockSum(sum);
    products = blockSum(products);
    const double count = static_cast<double>(o.size);
    const float shift = means ? static_cast<float>(sum / count) : 0.0f;
    const float slope = static_cast<float>(products / count * inverse * inverse);
    for (std::int64_t i = threadIdx.x; i < o.size; i += blockDim.x) {
      const float g = scale ? dy[begin + i] * scale[i] : dy[begin + i];
      dx[begin + i] = (g - shift - (x[begin + i] - mean) * slope) * inverse;
    }
  }
}

constexpr int tileColumns = static_cast<int>(cuda::columnsPerBlock),
              tileRows = static_cast<int>(threadsPerBlock) / tileColumns;

/// One part of 32 columns' sums per block: of dy · (x - mean) · inverse, and of dy.
__global__ void addRows(LayerNorm::Options o, cuda::SumParts parts, const float* dy, const float* x, const float* means,
                        const float* inverses, double* scales, double* biases) {
  __shared__ double values[2][tileRows][tileColumns];
  const int column = static_cast<int>(threadIdx.x) % tileColumns, lane = static_cast<int>(threadIdx.x) / tileColumns;
  const std::int64_t tiles = (o.size + tileColumns - 1) / tileColumns;
  for (std::int64_t block = blockIdx.x; block < tiles * parts.parts; block += gridDim.x) {
    const std::int64_t i = block % tiles * tileColumns + column, part = block / tiles;
    const std::int64_t end = (part + 1) * parts.size < o.rows ? (part + 1) * parts.size : o.rows;
    double scale = 0, bias = 0;
    if (i < o.size)
      for (std::int64_t row = part * parts.size + lane; row < end; row += tileRows) {
        const float mean = means ? means[row] : 0.0f, d = dy[row * o.size + i];
        scale += double(d) * ((x[row * o.size + i] - mean) * inverses[row]);
        bias += d;
      }
    values[0][lane][column] = scale;
    values[1][lane][column] = bias;
    __syncthreads();
    if (lane == 0 && i < o.size) {
      for (int other = 1; other < tileRows; ++other) {
        scale += values[0][other][column];
        bias += values[1][other][column];
      }
      scales[part * o.size + i] = scale;
      biases[part * o.size + i] = bias;
    }
    __syncthreads();
  }
}

__global__ void addParts(std::int64_t size, std::int64_t parts, const double* scales, const double* biases,
                         float* dscale, float* dbias) {
  for (std::int64_t i = thread(); i < size; i += threads()) {
    double scale = 0, bias = 0;
    for (std::int64_t part = 0; part < parts; ++part) {
      scale += scales[part * size + i];
      bias += biases[part * size + i];
    }
    dscale[i] = static_cast<float>(scale);
    if (dbias) dbias[i] = static_cast<float>(bias);
  }
}

} // namespace

LayerNorm::LayerNorm(Setup& setup, const Options& o) : options_(o) {
  setup.needWorkspace(cuda::workspaceOf(o));
}

void LayerNorm::forward(Stream& q, View<const float> x, View<const float> scale, View<const float> bias, View<float> y,
                        View<float> means, View<float> inverses) const {
  cuda::launchBlocks(q, "layer normalisation", normalise, options_.rows, options_, true, x.data, scale.data, bias.data,
                     y.data, means.data, inverses.data);
}

void LayerNorm::inputGradient(Stream& q, View<const float> dy, View<const float> x, View<const float> scale,
                              View<const float> means, View<const float> inverses, View<float> dx) const {
  cuda::launchBlocks(q, "layer normalisation, input gradient", differentiate, options_.rows, options_, dy.data, x.data,
                     scale.data, means.data, inverses.data, dx.data);
}

void LayerNorm::weightGradient(Stream& q, View<const float> dy, View<const float> x, View<const float> means,
                               View<const float> inverses, View<float> dscale, View<float> dbias) const {
  const cuda::SumParts parts = cuda::partsOfColumns(options_.size, options_.rows);
  auto* const scales = reinterpret_cast<double*>(q.workspace());
  double* const biases = scales + parts.parts * options_.size;
  cuda::launchBlocks(q, "layer normalisation, weight gradient", addRows,
                     (options_.size + tileColumns - 1) / tileColumns * parts.parts, options_, parts, dy.data, x.data,
                     means.data, inverses.data, scales, biases);
  launchLoop(q, "layer normalisation, weight gradient", addParts, options_.size, options_.size, parts.parts, scales,
             biases, dscale.data, dbias.data);
}

void LayerNorm::rmsForward(Stream& q, View<const float> x, View<const float> scale, View<float> y,
                           View<float> inverses) const {
  cuda::launchBlocks(q, "RMS normalisation", normalise, options_.rows, options_, false, x.data, scale.data, nullptr,
                     y.data, nullptr, inverses.data);
}

void LayerNorm::rmsInputGradient(Stream& q, View<const float> dy, View<const float> x, View<const float> scale,
                                 View<const float> inverses, View<float> dx) const {
  cuda::launchBlocks(q, "RMS normalisation, input gradient", differentiate, options_.rows, options_, dy.data, x.data,
                     scale.data, nullptr, inverses.data, dx.data);
}

void LayerNorm::rmsWeightGradient(Stream& q, View<const float> dy, View<const float> x, View<const float> inverses,
                                  View<float> dscale) const {
  weightGradient(q, dy, x, {}, inverses, dscale, {});
}

} // namespace pdcrt
