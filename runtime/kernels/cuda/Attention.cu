// See Attention.h. Products of cuBLASLt over all heads at once, with one kernel over rows between them: here the scores
// are in memory, but in the workspace, not from the forward pass to the backward pass.
#include "pdcrt/kernels/Attention.h"

#include "AttentionShapes.h"
#include "Product.h"
#include "Recorded.h"
#include "pdcrt/Random.h"

#include <cmath>
#include <limits>

namespace pdcrt {
namespace {

using cuda::blockCombine;
using cuda::blockSum;

struct Sizes {
  std::int64_t heads, queries, keys, rows;
  BiasStrides bias;
  float scale, kept;
  std::uint64_t threshold;
  std::uint32_t op;
  bool causal, hides;
};

/// What a row of scores is scaled by and added, and how many keys it has.
struct Row {
  std::int64_t begin, seen;
  const float* bias;

  __device__ Row(const Sizes& s, std::int64_t row, const float* all) : begin(row * s.keys), seen(s.keys), bias(all) {
    const std::int64_t query = row % s.queries, head = row / s.queries;
    if (s.causal) seen = query + 1 + s.keys - s.queries;
    if (all) bias += head / s.heads * s.bias.batch + head % s.heads * s.bias.head + query * s.bias.query;
  }
  __device__ float score(const Sizes& s, const float* products, std::int64_t i) const {
    return products[begin + i] * s.scale + (bias ? bias[i] : 0.0f);
  }
};

/// Products become weights, and the two numbers by which they are found again.
__global__ void softmax(Sizes s, const float* bias, float* p, float* largest, float* inverse) {
  for (std::int64_t at = blockIdx.x; at < s.rows; at += gridDim.x) {
    const Row row(s, at, bias);
    float max = -std::numeric_limits<float>::infinity();
    for (std::int64_t i = threadIdx.x; i < row.seen; i += blockDim.x) max = maximum(max, row.score(s, p, i));
    max = blockCombine(max, -std::numeric_limits<float>::infinity(), cuda::Larger());
    double sum = 0;
    for (std::int64_t i = threadIdx.x; i < row.seen; i += blockDim.x) sum += pdcrt::exp(row.score(s, p, i) - max);
    sum = blockSum(sum);
    const float factor = static_cast<float>(1 / sum);
    for (std::int64_t i = threadIdx.x; i < s.keys; i += blockDim.x)
      p[row.begin + i] = i < row.seen ? pdcrt::exp(row.score(s, p, i) - max) * factor : 0.0f;
    if (threadIdx.x == 0) {
      if (largest) largest[at] = max;
      if (inverse) inverse[at] = factor;
    }
  }
}

/// As pdcrt::Dropout: a thread draws one Philox block, which is for four elements.
__global__ void drop(Sizes s, Draw draw, const std::uint64_t* recorded, float* p, std::uint8_t* mask) {
  const std::uint64_t minibatch = recorded ? *recorded : draw.minibatch;
  const std::int64_t count = s.rows * s.keys;
  for (std::int64_t block = thread(); block * 4 < count; block += threads()) {
    const PhiloxBlock words = philox(philoxCounter(static_cast<std::uint32_t>(block), s.op, minibatch), draw.seed);
    for (std::int64_t i = 0; i < 4 && block * 4 + i < count; ++i) {
      const std::int64_t at = block * 4 + i;
      mask[at] = words[static_cast<std::size_t>(i)] >= s.threshold;
      p[at] = mask[at] ? p[at] * s.kept : 0.0f;
    }
  }
}

/// Products become weights again, in p, and the gradient of weights, in dp, that of the products. With dropout p is
/// then what was left of the weights.
__global__ void gradient(Sizes s, const float* bias, const float* largest, const float* inverse,
                         const std::uint8_t* mask, float* p, float* dp) {
  for (std::int64_t at = blockIdx.x; at < s.rows; at += gridDim.x) {
    const Row row(s, at, bias);
    double partial = 0;
    for (std::int64_t i = threadIdx.x; i < s.keys; i += blockDim.x) {
      const std::int64_t place = row.begin + i;
      const float weight = i < row.seen ? pdcrt::exp(row.score(s, p, i) - largest[at]) * inverse[at] : 0.0f;
      if (mask) dp[place] = mask[place] ? dp[place] * s.kept : 0.0f;
      if (i < row.seen) partial += double(dp[place]) * weight;
      p[place] = weight;
    }
    const float sum = static_cast<float>(blockSum(partial));
    for (std::int64_t i = threadIdx.x; i < s.keys; i += blockDim.x) {
      const std::int64_t place = row.begin + i;
      const bool counts = i < row.seen && !(s.hides && row.bias && row.bias[i] <= Attention::hidden);
      dp[place] = counts ? (dp[place] - sum) * p[place] * s.scale : 0.0f;
      if (mask) p[place] = mask[place] ? p[place] * s.kept : 0.0f;
    }
  }
}

Sizes sizesOf(const Attention::Options& o) {
  return {.heads = o.heads,
          .queries = o.queries,
          .keys = o.keys,
          .rows = o.batch * o.heads * o.queries,
          .bias = BiasStrides(o.bias),
          .scale = static_cast<float>(o.scale),
          .kept = static_cast<float>(1 / (1 - o.ratio)),
          .threshold = static_cast<std::uint64_t>(std::llround(o.ratio * 4294967296.0)),
          .op = o.op,
          .causal = o.causal,
          .hides = o.hides};
}

} // namespace

/// The query heads that share keys and values are rows of one product.
struct Attention::Impl {
  Sizes sizes;
  cuda::Product scores;  ///< queries · transposed keys
  cuda::Product results; ///< weights · values
  cuda::Product dweights, dqueries, dkeys, dvalues;

  float* weights(Stream& q) const {
    return reinterpret_cast<float*>(q.workspace() + cuda::roundedUp(cuda::productBytes));
  }
  float* weightsGradient(Stream& q) const {
    return weights(q) + cuda::roundedUp(cuda::bytesOfFloats(sizes.rows * sizes.keys)) / sizeof(float);
  }
};

Attention::Attention(Setup& setup, const Options& o) : impl_(std::make_unique<Impl>()) {
  checkSizes(o);
  setup.needWorkspace(cuda::workspaceOf(o));
  impl_->sizes = sizesOf(o);
  const std::int64_t rows = o.heads / o.groups * o.queries;
  const auto product = [&](std::int64_t m, std::int64_t k, std::int64_t n, bool transposeA, bool transposeB) {
    return cuda::Product(
        {.m = m, .k = k, .n = n, .transposeA = transposeA, .transposeB = transposeB, .batch = o.batch * o.groups});
  };
  impl_->scores = product(rows, o.size, o.keys, false, true);
  impl_->results = product(rows, o.keys, o.valueSize, false, false);
  impl_->dweights = product(rows, o.valueSize, o.keys, false, true);
  impl_->dqueries = product(rows, o.keys, o.size, false, false);
  impl_->dkeys = product(o.keys, rows, o.size, true, false);
  impl_->dvalues = product(o.keys, rows, o.valueSize, true, false);
}

Attention::~Attention() = default;
Attention::Attention(Attention&&) noexcept = default;
Attention& Attention::operator=(Attention&&) noexcept = default;

void Attention::forward(Stream& q, View<const float> query, View<const float> key, View<const float> value,
                        View<const float> bias, View<float> y, View<float> largest, View<float> inverse) const {
  float* const p = impl_->weights(q);
  impl_->scores.run(q, query.data, key.data, nullptr, p);
  cuda::launchBlocks(q, "attention", softmax, impl_->sizes.rows, impl_->sizes, bias.data, p, largest.data,
                     inverse.data);
  impl_->results.run(q, p, value.data, nullptr, y.data);
}

void Attention::forwardDropped(Stream& q, Draw draw, View<const float> query, View<const float> key,
                               View<const float> value, View<const float> bias, View<float> y, View<float> largest,
                               View<float> inverse, View<std::uint8_t> mask) const {
  const Sizes& s = impl_->sizes;
  float* const p = impl_->weights(q);
  impl_->scores.run(q, query.data, key.data, nullptr, p);
  cuda::launchBlocks(q, "attention", softmax, s.rows, s, bias.data, p, largest.data, inverse.data);
  launchLoop(q, "attention, dropout", drop, (s.rows * s.keys + 3) / 4, s, draw, cuda::recordedMinibatch(), p,
             mask.data);
  impl_->results.run(q, p, value.data, nullptr, y.data);
}

void Attention::inputGradient(Stream& q, View<const float> dy, View<const float> query, View<const float> key,
                              View<const float> value, View<const float> bias, View<const float> largest,
                              View<const float> inverse, View<const std::uint8_t> mask, View<float> dquery,
                              View<float> dkey, View<float> dvalue) const {
  const Sizes& s = impl_->sizes;
  float* const p = impl_->weights(q);
  float* const dp = impl_->weightsGradient(q);
  impl_->scores.run(q, query.data, key.data, nullptr, p);
  impl_->dweights.run(q, dy.data, value.data, nullptr, dp);
  cuda::launchBlocks(q, "attention, gradient", gradient, s.rows, s, bias.data, largest.data, inverse.data, mask.data, p,
                     dp);
  if (dquery) impl_->dqueries.run(q, dp, key.data, nullptr, dquery.data);
  if (dkey) impl_->dkeys.run(q, dp, query.data, nullptr, dkey.data);
  if (dvalue) impl_->dvalues.run(q, p, dy.data, nullptr, dvalue.data);
}

} // namespace pdcrt
