// See Attention.h. Products of cuBLASLt over all heads at once, with one kernel over rows between them: here the scores
// are in memory, but in the workspace, not from the forward pass to the backward pass. Or, where the options say so,
// the fused attention of cuDNN.
//
// Of 16 bits are only the operands of products: scores and sums are floats, and what becomes an operand, weights and
// the gradients of scores, is rounded where the floats of its row were. So such a row begins where the next row of
// floats would, and no more workspace is needed.
#include "pdcrt/kernels/Attention.h"

#include "AttentionShapes.h"
#include "AttentionTimes.h"
#include "FusedAttention.h"
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

/// As many T as there are from one row of weights to the next.
template <class T>
constexpr std::int64_t strideOf(std::int64_t keys) {
  return keys * static_cast<std::int64_t>(sizeof(float) / sizeof(T));
}

/// Threads write a row of T over floats that others read: between reading and writing as many as there are threads,
/// all of them wait. What is written after that lies before what is still to be read.
template <class T>
__device__ void haveRead() {
  if constexpr (sizeof(T) < sizeof(float)) __syncthreads();
}

/// Products become weights, and the two numbers by which they are found again.
template <class T>
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
    T* const weights = reinterpret_cast<T*>(p + row.begin);
    for (std::int64_t begin = 0; begin < s.keys; begin += blockDim.x) {
      const std::int64_t i = begin + threadIdx.x;
      const float weight = i < row.seen ? pdcrt::exp(row.score(s, p, i) - max) * factor : 0.0f;
      haveRead<T>();
      if (i < s.keys) weights[i] = static_cast<T>(weight);
    }
    if (threadIdx.x == 0) {
      if (largest) largest[at] = max;
      if (inverse) inverse[at] = factor;
    }
  }
}

/// As pdcrt::Dropout: a thread draws one Philox block, which is for four elements.
template <class T>
__global__ void drop(Sizes s, Draw draw, const std::uint64_t* recorded, T* p, std::uint8_t* mask) {
  const std::uint64_t minibatch = recorded ? *recorded : draw.minibatch;
  const std::int64_t count = s.rows * s.keys;
  for (std::int64_t block = thread(); block * 4 < count; block += threads()) {
    const PhiloxBlock words = philox(philoxCounter(static_cast<std::uint32_t>(block), s.op, minibatch), draw.seed);
    for (std::int64_t i = 0; i < 4 && block * 4 + i < count; ++i) {
      const std::int64_t at = block * 4 + i;
      T& weight = p[at / s.keys * strideOf<T>(s.keys) + at % s.keys];
      mask[at] = words[static_cast<std::size_t>(i)] >= s.threshold;
      weight = static_cast<T>(mask[at] ? static_cast<float>(weight) * s.kept : 0.0f);
    }
  }
}

/// Products become weights again, in p, and the gradient of weights, in dp, that of the products. With dropout p is
/// then what was left of the weights.
template <class T>
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
    T* const weights = reinterpret_cast<T*>(p + row.begin);
    T* const gradients = reinterpret_cast<T*>(dp + row.begin);
    for (std::int64_t begin = 0; begin < s.keys; begin += blockDim.x) {
      const std::int64_t i = begin + threadIdx.x, place = row.begin + i;
      const bool counts = i < row.seen && !(s.hides && row.bias && row.bias[i] <= Attention::hidden);
      const float score = counts ? (dp[place] - sum) * p[place] * s.scale : 0.0f;
      float weight = i < row.seen ? p[place] : 0.0f;
      if (mask && i < row.seen) weight = mask[place] ? weight * s.kept : 0.0f;
      haveRead<T>();
      if (i >= s.keys) continue;
      gradients[i] = static_cast<T>(score);
      weights[i] = static_cast<T>(weight);
    }
  }
}

/// With the logarithm of the sum of exp(score) in place of the largest score, exp(score - that) is the weight.
__global__ void fillWithOnes(std::int64_t count, float* to) {
  for (std::int64_t i = thread(); i < count; i += threads()) to[i] = 1;
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

/// Refuses what the device does not have, or not in the workspace that was planned.
std::shared_ptr<const cuda::FusedAttention> fusedOf(const Attention::Options& o, bool forward, bool gradient) {
  if (!Attention::takesFused(o))
    refuseAttention(o, "the fused algorithm is for 16 bits and heads of 8, 16, … 128 elements, without bias and "
                       "dropout; measure again: pdc-profile");
  std::string why;
  std::shared_ptr<const cuda::FusedAttention> fused = cuda::FusedAttention::make(o, gradient, why);
  if (!fused) refuseAttention(o, "there is no fused algorithm here (" + why + "); measure on this device: pdc-profile");
  const std::size_t needed = std::max(forward ? fused->forwardBytes() : 0, gradient ? fused->gradientBytes() : 0);
  if (needed > cuda::roundedUp(static_cast<std::size_t>(o.algorithms.workspace)))
    refuseAttention(o, "the fused algorithm needs " + std::to_string(needed) +
                           " bytes of workspace on this device, the program was planned with " +
                           std::to_string(o.algorithms.workspace) + "; measure on it: pdc-profile");
  return fused;
}

} // namespace

/// The query heads that share keys and values are rows of one product.
struct Attention::Impl {
  Sizes sizes;
  cuda::Product scores;  ///< queries · transposed keys
  cuda::Product results; ///< weights · values
  cuda::Product dweights, dqueries, dkeys, dvalues;
  std::shared_ptr<const cuda::FusedAttention> fused;
  bool fusedForward, fusedGradient;

  float* weights(Stream& q) const {
    return reinterpret_cast<float*>(q.workspace() + cuda::roundedUp(cuda::productBytes));
  }
  float* weightsGradient(Stream& q) const {
    return weights(q) + cuda::roundedUp(cuda::bytesOfFloats(sizes.rows * sizes.keys)) / sizeof(float);
  }
};

Attention::Attention(Setup& setup, const Options& asked) : impl_(std::make_unique<Impl>()) {
  checkSizes(asked);
  Options o = asked;
  if (setup.times() && o.algorithms == Algorithms{}) o.algorithms = cuda::fastest(o, *setup.times());
  setup.needWorkspace(cuda::workspaceOf(o));
  impl_->sizes = sizesOf(o);
  impl_->fusedForward = o.algorithms.forward == Algorithm::fused;
  impl_->fusedGradient = o.algorithms.inputGradient == Algorithm::fused;
  if (impl_->fusedForward || impl_->fusedGradient) impl_->fused = fusedOf(o, impl_->fusedForward, impl_->fusedGradient);
  const std::int64_t rows = o.heads / o.groups * o.queries;
  const auto product = [&](cuda::Product::Options sizes) {
    sizes.batch = o.batch * o.groups;
    sizes.element = o.element;
    return cuda::Product(sizes);
  };
  const auto stride = o.keys * static_cast<std::int64_t>(sizeof(float) / bytesOf(o.element));
  impl_->scores = product({.m = rows, .k = o.size, .n = o.keys, .transposeB = true, .wideResult = true});
  impl_->results = product({.m = rows, .k = o.keys, .n = o.valueSize, .rowStride = stride});
  impl_->dweights = product({.m = rows, .k = o.valueSize, .n = o.keys, .transposeB = true, .wideResult = true});
  impl_->dqueries = product({.m = rows, .k = o.keys, .n = o.size, .rowStride = stride});
  impl_->dkeys = product({.m = o.keys, .k = rows, .n = o.size, .transposeA = true, .rowStride = stride});
  impl_->dvalues = product({.m = o.keys, .k = rows, .n = o.valueSize, .transposeA = true, .rowStride = stride});
}

Attention::~Attention() = default;
Attention::Attention(Attention&&) noexcept = default;
Attention& Attention::operator=(Attention&&) noexcept = default;

template <class T>
void Attention::forward(Stream& q, OperandView<T> query, OperandView<T> key, OperandView<T> value,
                        View<const float> bias, View<T> y, View<float> largest, View<float> inverse) const {
  if (impl_->fusedForward) {
    impl_->fused->forward(q, query.data, key.data, value.data, y.data, largest.data, cuda::alignedWorkspace(q));
    if (inverse)
      launchLoop(q, "attention, statistics", fillWithOnes, impl_->sizes.rows, impl_->sizes.rows, inverse.data);
    return;
  }
  float* const p = impl_->weights(q);
  impl_->scores.run(q, query.data, key.data, nullptr, p);
  cuda::launchBlocks(q, "attention", softmax<T>, impl_->sizes.rows, impl_->sizes, bias.data, p, largest.data,
                     inverse.data);
  impl_->results.run(q, p, value.data, nullptr, y.data);
}
void Attention::forward(Stream& q, View<const float> query, View<const float> key, View<const float> value,
                        View<const float> bias, View<float> y, View<float> largest, View<float> inverse) const {
  forward<float>(q, query, key, value, bias, y, largest, inverse);
}

template <class T>
void Attention::forwardDropped(Stream& q, Draw draw, OperandView<T> query, OperandView<T> key, OperandView<T> value,
                               View<const float> bias, View<T> y, View<float> largest, View<float> inverse,
                               View<std::uint8_t> mask) const {
  const Sizes& s = impl_->sizes;
  float* const p = impl_->weights(q);
  impl_->scores.run(q, query.data, key.data, nullptr, p);
  cuda::launchBlocks(q, "attention", softmax<T>, s.rows, s, bias.data, p, largest.data, inverse.data);
  launchLoop(q, "attention, dropout", drop<T>, (s.rows * s.keys + 3) / 4, s, draw, cuda::recordedMinibatch(),
             reinterpret_cast<T*>(p), mask.data);
  impl_->results.run(q, p, value.data, nullptr, y.data);
}
void Attention::forwardDropped(Stream& q, Draw draw, View<const float> query, View<const float> key,
                               View<const float> value, View<const float> bias, View<float> y, View<float> largest,
                               View<float> inverse, View<std::uint8_t> mask) const {
  forwardDropped<float>(q, draw, query, key, value, bias, y, largest, inverse, mask);
}

template <class T>
void Attention::inputGradient(Stream& q, OperandView<T> dy, OperandView<T> query, OperandView<T> key,
                              OperandView<T> value, View<const float> bias, View<const float> largest,
                              View<const float> inverse, View<const std::uint8_t> mask, View<T> dquery, View<T> dkey,
                              View<T> dvalue) const {
  if (impl_->fusedGradient)
    return impl_->fused->inputGradient(q, dy.data, query.data, key.data, value.data, dquery.data, dkey.data,
                                       dvalue.data, cuda::alignedWorkspace(q));
  const Sizes& s = impl_->sizes;
  float* const p = impl_->weights(q);
  float* const dp = impl_->weightsGradient(q);
  impl_->scores.run(q, query.data, key.data, nullptr, p);
  impl_->dweights.run(q, dy.data, value.data, nullptr, dp);
  cuda::launchBlocks(q, "attention, gradient", gradient<T>, s.rows, s, bias.data, largest.data, inverse.data, mask.data,
                     p, dp);
  if (dquery) impl_->dqueries.run(q, dp, key.data, nullptr, dquery.data);
  if (dkey) impl_->dkeys.run(q, dp, query.data, nullptr, dkey.data);
  if (dvalue) impl_->dvalues.run(q, p, dy.data, nullptr, dvalue.data);
}
void Attention::inputGradient(Stream& q, View<const float> dy, View<const float> query, View<const float> key,
                              View<const float> value, View<const float> bias, View<const float> largest,
                              View<const float> inverse, View<const std::uint8_t> mask, View<float> dquery,
                              View<float> dkey, View<float> dvalue) const {
  inputGradient<float>(q, dy, query, key, value, bias, largest, inverse, mask, dquery, dkey, dvalue);
}

#define PDCRT_ATTENTION(T)                                                                                             \
  template void Attention::forward(Stream&, View<const T>, View<const T>, View<const T>, View<const float>, View<T>,   \
                                   View<float>, View<float>) const;                                                    \
  template void Attention::forwardDropped(Stream&, Draw, View<const T>, View<const T>, View<const T>,                  \
                                          View<const float>, View<T>, View<float>, View<float>, View<std::uint8_t>)    \
      const;                                                                                                           \
  template void Attention::inputGradient(Stream&, View<const T>, View<const T>, View<const T>, View<const T>,          \
                                         View<const float>, View<const float>, View<const float>,                      \
                                         View<const std::uint8_t>, View<T>, View<T>, View<T>) const;
PDCRT_ATTENTION(bfloat16)
PDCRT_ATTENTION(float16)
#undef PDCRT_ATTENTION

} // namespace pdcrt
